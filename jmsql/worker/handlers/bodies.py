"""The body of a message as a handler's annotation describes it."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from typing import Any, TypeAlias

from jmsql.exceptions import MessageFormatException
from jmsql.messages import BytesMessage, MapMessage, Message, ObjectMessage, TextMessage
from jmsql.messages.codecs.registry import is_registered
from jmsql.messages.codecs.schemas import Schema, schema_of
from jmsql.messages.types.typed_json import parse_strict_json

# Where the body comes from: a message says how it is read by its class, and the handler says by its annotation. Text,
# bytes and `object` are given as the message has them. Anything else is JSON in a text or bytes, or a map, or an
# object, and is read by the library that describes the annotation. An object that is of the annotated class already is
# not converted.
#
# A value that does not fit is the message's fault, and no retry would mend it: the caller turns the
# MessageFormatException into `Reject`. The error names the place in the body and shows no value, since errors go to the
# log.


Read: TypeAlias = Callable[[Message], object]
"""Reads the body; raises MessageFormatException if the message has no such body."""

_AS_IT_IS = (str, bytes, bytearray, object)
"""Bodies that are read as the message has them, and never as JSON."""
_ANYTHING = {Any, object}


def members_of(annotation: Any) -> tuple[Any, ...]:
    """Return a union's members, without None; else the annotation alone."""
    if typing.get_origin(annotation) in {typing.Union, types.UnionType}:
        return tuple(member for member in typing.get_args(annotation) if member is not types.NoneType)
    return (annotation,)


def is_optional(annotation: Any) -> bool:
    """Tell whether a body may be missing."""
    members = typing.get_args(annotation) if typing.get_origin(annotation) in {typing.Union, types.UnionType} else ()
    return annotation in _ANYTHING or types.NoneType in members


def body_schema(annotation: Any) -> Schema | None:
    """Return the schema of the bodies that an annotation describes; None: they are read as the message has them.

    Raises:
        TypeError: No message has such a body.
    """
    members = members_of(annotation)
    if any(member in _AS_IT_IS for member in members):
        if len(members) > 1:
            raise TypeError("text and bytes cannot have another type in JSON")
        return None
    return schema_of(annotation)


def body_reader(annotation: Any, *, may_be_missing: bool = False) -> Read:
    """Return a reader of the bodies that an annotation describes.

    Args:
        annotation: A class, or anything that pydantic or msgspec knows, perhaps with None.
        may_be_missing: True if None is read from a message without a body, whatever the annotation says.

    Raises:
        TypeError: No message has such a body.
    """
    members = members_of(annotation)
    only = members[0] if len(members) == 1 else None
    kind: Any = typing.get_origin(only) or only
    try:
        schema = body_schema(annotation)
    except TypeError:
        if not (isinstance(kind, type) and is_registered(kind)):
            raise
        schema = None
    if schema is None:
        assert isinstance(kind, type)
        read = _read_as_it_is(kind)
    elif kind in {dict, list} and _ANYTHING.issuperset(typing.get_args(only)[-1:]):
        read = _read_json(kind)
    else:
        read = _read_by(schema, kind, {each.__name__: schema_of(each) for each in members if _is_class(each)})
    name = kind.__name__ if _is_class(kind) else str(annotation)
    optional = may_be_missing or is_optional(annotation)

    def read_body(message: Message) -> object:
        body = read(message)
        if body is None and not optional:
            raise MessageFormatException(f"The handler takes {name}, and the message has no body.")
        return body

    return read_body


def _is_class(annotation: object) -> bool:
    return isinstance(annotation, type) and typing.get_origin(annotation) is None


def _read_as_it_is(kind: type) -> Read:
    def read(message: Message) -> object:
        body: object = message.get_body(kind)
        if body is None and isinstance(empty := _empty_body(message), kind):
            return empty
        return body

    return read


def _read_json(kind: type) -> Read:
    """Return a reader of a dict or list with any contents: from JSON, a map, or an object."""
    as_it_is = _read_as_it_is(kind)

    def read(message: Message) -> object:
        data = _json_in(message)
        if data is None:
            return as_it_is(message)
        place = f"The body of this {type(message).__name__}"
        try:
            body: object = parse_strict_json(data)
        except (ValueError, RecursionError) as error:
            raise MessageFormatException(
                f"{place} is no JSON ({error}), and the handler takes {kind.__name__}."
            ) from error
        if not isinstance(body, kind):
            expected = "object" if kind is dict else "array"
            raise MessageFormatException(f"{place} is JSON, but no {expected}, and the handler takes {kind.__name__}.")
        return body

    return read


def _read_by(schema: Schema, kind: Any, by_name: dict[str, Schema]) -> Read:
    """Return a reader of bodies by their schema.

    Args:
        schema: The schema.
        kind: The class of the bodies, if it is one.
        by_name: Of a choice between classes, the schema of each: JMSType says which, if it names one of them.
    """
    # A TypedDict refuses isinstance, and typing_extensions has another TypedDict than typing.
    is_checkable = _is_class(kind) and kind not in _BUILT_IN and not hasattr(kind, "__required_keys__")

    def read(message: Message) -> object:
        chosen = by_name.get(message.jms_type or "", schema) if len(by_name) > 1 else schema
        data = _json_in(message)
        if data is not None:
            return chosen.decode(data)
        match message:
            case ObjectMessage():
                value = message.get_object()
            case MapMessage():
                value = {name: _plain(member) for name, member in message.items()}
            case _:
                value = message.get_body(object)
        if value is None or (is_checkable and isinstance(value, kind)):
            return value
        return chosen.convert(value)

    return read


_BUILT_IN = (dict, list, tuple, set, frozenset)
"""Classes whose elements are looked at, too."""


def _json_in(message: Message) -> bytes | None:
    """Return a message's JSON in UTF-8, or the object to convert to JSON; None: it has another kind of body."""
    if isinstance(message, TextMessage):
        return None if message.text is None else message.text.encode("utf-8", "surrogatepass")
    if isinstance(message, BytesMessage):
        return message.get_body(bytes)
    return None


def _plain(value: object) -> object:
    """Return a value of a map as a value of Python's own classes."""
    for kind in (int, float, str):
        if isinstance(value, kind) and type(value) is not bool:
            return kind(value)
    return value


def _empty_body(message: Message) -> object:
    """Return the empty bytes or map that a message was sent with, which `get_body` takes for no body, as JMS does."""
    match message:
        case BytesMessage():
            return b""
        case MapMessage():
            return {}
        case _:
            return None
