"""What a handler asks for: its parameters, read from its signature once, when it is registered."""

from __future__ import annotations

import inspect
import json
import types
import typing
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy

from jmsql.client._sync.connection.context import JMSContext
from jmsql.client._sync.session.session import Session
from jmsql.exceptions import MessageFormatException
from jmsql.messages import BytesMessage, MapMessage, Message, TextMessage
from jmsql.messages.codecs import codec_of

if TYPE_CHECKING:
    from sqlalchemy import orm

__all__ = ["HandlerCall", "Parameter", "read_parameters"]


class HandlerCall(NamedTuple):
    """A message on its way to a handler."""

    message: Message
    session: Session
    exits: ExitStack
    """Ends what was made for the handler, when it has returned or failed."""


class Parameter(NamedTuple):
    """A parameter of a handler, and where its value comes from."""

    name: str
    value: Callable[[HandlerCall], object]
    shares_transaction: bool = False
    """Whether the handler can do something in the session's transaction with it."""
    is_body: bool = False
    """Whether it is the message's body."""


_KINDS_BY_NAME: dict[str, type] = {
    "message": Message,
    "body": object,
    "database": sqlalchemy.Connection,
    "session": Session,
    "context": JMSContext,
}
_JSON = (dict, list)
"""What the JSON in a TextMessage is read as, where a handler wants it."""

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_POSSIBLE = (
    "a message class, a class of bodies (str, bytes, dict, or one given to jmsql.register_type), "
    "sqlalchemy.Connection, sqlalchemy.orm.Session, jmsql.Session or jmsql.JMSContext; "
    "without an annotation it is named message, body, database, session or context"
)


def read_parameters(handler: Callable[..., object], name: str, *, transacted: bool) -> tuple[Parameter, ...]:
    """Read what a handler asks for.

    Args:
        handler: The handler.
        name: Its name, for errors.
        transacted: Whether it is called in a transaction.

    Raises:
        TypeError: It is no function that can be called with a message, or asks for something that there is not.
    """
    if not callable(handler) or inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise TypeError(f"The handler {name} is no function that is called once for each message.")
    try:
        signature = inspect.signature(handler, eval_str=True)
    except (NameError, AttributeError) as error:
        raise TypeError(f"An annotation of the handler {name} means nothing when the program runs: {error}.") from error
    except ValueError as error:
        raise TypeError(f"The handler {name} does not say what its parameters are: {error}.") from error
    parameters = []
    for parameter in signature.parameters.values():
        if parameter.kind not in _NAMED:
            raise TypeError(
                f"The handler {name} has the parameter {parameter}; all are to be named, so that each says what it is."
            )
        if parameter.default is inspect.Parameter.empty:  # the others are the handler's own business
            parameters.append(_read(parameter, name, transacted=transacted))
    _check_that_one_is_the_body(parameters, signature, name)
    return tuple(parameters)


def _check_that_one_is_the_body(parameters: list[Parameter], signature: inspect.Signature, handler: str) -> None:
    bodies = sorted((each for each in parameters if each.is_body), key=lambda each: each.name != "body")
    if len(bodies) > 1:
        body, other = (signature.parameters[each.name] for each in bodies[:2])
        raise TypeError(
            f"The handler {handler} has the parameter {other}, for which a message has no value: its body is given to "
            f"the parameter {body}. Leave it out, or give it a default."
        )


def _kind(parameter: inspect.Parameter) -> tuple[object, bool]:
    """Return what class a parameter is to be of, and whether it may be None."""
    annotation = parameter.annotation
    if annotation is inspect.Parameter.empty or annotation is Any:
        return _KINDS_BY_NAME.get(parameter.name), parameter.name == "body"
    members = [annotation]
    if typing.get_origin(annotation) in {typing.Union, types.UnionType}:
        members = [member for member in typing.get_args(annotation) if member is not types.NoneType]
    optional = annotation is object or members != [annotation]
    return (typing.get_origin(members[0]) or members[0]) if len(members) == 1 else None, optional


def _read(parameter: inspect.Parameter, handler: str, *, transacted: bool) -> Parameter:
    from sqlalchemy import orm  # which takes a sixth of the time in which a command starts, and most need none of it

    name = parameter.name
    kind, optional = _kind(parameter)
    if not isinstance(kind, type):
        raise TypeError(f"The handler {handler} has the parameter {parameter}, and a parameter is {_POSSIBLE}.")
    if issubclass(kind, Message):
        return Parameter(name, _message(kind))
    if issubclass(kind, Session):
        return Parameter(name, lambda call: call.session, shares_transaction=transacted)
    if issubclass(kind, JMSContext):
        return Parameter(name, lambda call: JMSContext(call.session), shares_transaction=transacted)
    if issubclass(kind, sqlalchemy.Connection | orm.Session):
        if not transacted:
            raise TypeError(
                f"The handler {handler} asks for the database of its transaction; with transacted=False it has none."
            )
        return Parameter(name, _connection if kind is sqlalchemy.Connection else _orm(kind), shares_transaction=True)
    return Parameter(name, _body(_checked_body(kind, parameter, handler), optional=optional), is_body=True)


def _checked_body(kind: type, parameter: inspect.Parameter, handler: str) -> type:
    if kind is not object:
        try:
            codec_of(kind)
        except MessageFormatException as error:
            raise TypeError(
                f"The handler {handler} has the parameter {parameter}, and a parameter is {_POSSIBLE}."
            ) from error
    return kind


def _message(kind: type[Message]) -> Callable[[HandlerCall], object]:
    def value(call: HandlerCall) -> object:
        if not isinstance(call.message, kind):
            raise MessageFormatException(
                f"The handler wants a {kind.__name__}, and this is a {type(call.message).__name__}."
            )
        return call.message

    return value


def _body(kind: type, *, optional: bool) -> Callable[[HandlerCall], object]:
    def value(call: HandlerCall) -> object:
        message = call.message
        body: object
        if kind in _JSON and isinstance(message, TextMessage) and message.text is not None:
            body = _json(message.text, kind)
        else:
            body = message.get_body(kind)
            if body is None and isinstance(empty := _empty_body(message), kind):
                body = empty
        if body is None and not optional:
            raise MessageFormatException(f"The handler wants a {kind.__name__}, and the message has no body.")
        return body

    return value


def _json(text: str, kind: type) -> object:
    """Read what SQL, `jmsql send` and programs in other languages send."""
    try:
        body: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MessageFormatException(
            f"The body of this TextMessage is no JSON ({error}), and the handler wants a {kind.__name__}."
        ) from error
    if not isinstance(body, kind):
        raise MessageFormatException(
            f"The body of this TextMessage is JSON, but no {'object' if kind is dict else 'array'}, and the handler "
            f"wants a {kind.__name__}."
        )
    return body


def _empty_body(message: Message) -> object:
    """Return the empty bytes or map that a message was sent with, which `get_body` takes for no body, as JMS does."""
    match message:
        case BytesMessage():
            return b""
        case MapMessage():
            return {}
        case _:
            return None


def _connection(call: HandlerCall) -> object:
    return call.session.database


def _orm(kind: type[Any]) -> Callable[[HandlerCall], object]:
    def value(call: HandlerCall) -> object:
        return call.exits.enter_context(_orm_session(kind, call.session.database))

    return value


@contextmanager
def _orm_session(kind: type[orm.Session], connection: sqlalchemy.Connection) -> Iterator[orm.Session]:
    # Its commit and rollback end at a savepoint: a handler that calls them does not touch the message.
    with kind(bind=connection, join_transaction_mode="create_savepoint") as database:
        yield database
        database.commit()
