"""Bodies as their types describe them: values made of JSON and of other simpler values, and JSON made of them.

The library that the application has does it: pydantic for its models, msgspec for its structs, and for dataclasses and
the types of Python's either of the two, pydantic first. Without both, `TypeCheck` does. The type that a message claims
plays no part here.
"""

from __future__ import annotations

import importlib.util
import math
import re
import sys
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any

from jmsql.exceptions import MessageFormatException
from jmsql.messages.codecs.type_check import TypeCheck, simple, to_json
from jmsql.messages.types.typed_json import parse_strict_json

_LONG_NUMBER = re.compile(rb"[0-9][0-9.]{15}|[0-9][eE][+-]?[0-9]{2}")
"""The beginning of a number that a double may not keep: one with many digits, or a large exponent."""

_LONGEST_INTEGER = 4300
"""Digits up to which Python and the libraries read an integer."""


class Schema(ABC):
    """The schema of a type: it checks, reads and writes the type's objects."""

    _name: str
    _is_proved = False
    """True once an object of the type was read again, and was the same."""

    @property
    def _has_floats(self) -> bool:
        """False if no object of the type holds a double."""
        return True

    @abstractmethod
    def decode(self, data: bytes) -> object:
        """Make an object of JSON in UTF-8.

        Raises:
            MessageFormatException: That is no JSON, or not such an object; the message says where, and shows no value.
        """

    @abstractmethod
    def convert(self, value: object) -> object:
        """Make an object of a value that is one, or that is made of dicts, lists and simple values.

        Raises:
            MessageFormatException: It is not such an object; the message says where, and shows no value.
        """

    def encode(self, value: object) -> str:
        """Write an object of the type as JSON that can be read as the type.

        The first one is read again. Later ones only if they are suspect: that takes longer than to write them.

        Raises:
            MessageFormatException: The object holds something that JSON cannot say, or would not come back the same.
        """
        text = self._write(value)
        # The libraries write inf and nan as null.
        is_finite = not self._has_floats or "null" not in text or _is_finite(value)
        if not (self._is_proved and is_finite and (len(text) <= _LONGEST_INTEGER or not _has_long_integer(text))):
            advice = "If another type is to read it, send JSON as a text." if is_finite else "JSON has no inf and nan."
            self._prove(value, text, advice)
            self._is_proved = True
        return text

    def _prove(self, value: object, text: str, advice: str) -> None:
        """Read the written text again.

        Raises:
            MessageFormatException: It cannot be read, or another object comes of it.
        """
        try:
            again = self._read_again(value, text)
        except MessageFormatException as error:
            raise MessageFormatException(f"This {self._name} could not be read again: {error} {advice}") from error
        place = _difference(self._simple(value), self._simple(again))
        if place is not None:
            where = f": {place.removeprefix('.')} differs" if place else ""
            raise MessageFormatException(f"This {self._name} would not come back the same{where}. {advice}")

    def _read_again(self, value: object, text: str) -> object:  # noqa: ARG002 - for those that write it otherwise
        return self.decode(text.encode())

    @abstractmethod
    def _write(self, value: object) -> str:
        """Write an object of the type as JSON.

        Raises:
            MessageFormatException: It holds something that JSON cannot say.
        """

    @abstractmethod
    def _simple(self, value: object) -> object:
        """Return all that an object holds, in dicts and lists."""

    def complete(self) -> None:  # noqa: B027 - libraries other than pydantic refuse such annotations at once
        """Read the annotations that name classes which were not defined yet.

        Raises:
            TypeError: One of them is not defined now either.
        """

    @abstractmethod
    def json_schema(self) -> dict[str, Any]:
        """Return the JSON schema of the bodies; an empty one, which allows any, if the library writes none."""


class PydanticSchema(Schema):
    """A type's schema by pydantic.

    Raises:
        TypeError: pydantic does not know it.
    """

    def __init__(self, annotation: Any) -> None:
        import pydantic

        self._name = _name(annotation)
        self._error = pydantic.ValidationError
        try:
            self._adapter = pydantic.TypeAdapter(annotation)
        except pydantic.errors.PydanticUserError as error:
            raise TypeError(str(error).partition("\n")[0]) from error

    # Found at the first use: a class may name another one that its module defines further down, below the handler.
    # pydantic knows nothing of its fields until then.

    @cached_property
    def _has_decimals(self) -> bool:
        return "decimal" in self._parts

    @cached_property
    def _has_floats(self) -> bool:
        return not self._parts.isdisjoint({"float", "any", "complex"})

    @cached_property
    def _parts(self) -> frozenset[str]:
        self.complete()
        return frozenset(_strings(self._adapter.core_schema))

    def complete(self) -> None:
        from pydantic.errors import PydanticUserError

        try:
            self._adapter.rebuild()  # does nothing where it is complete
        except (NameError, PydanticUserError) as error:  # PydanticUndefinedAnnotation is a NameError
            reason = str(error).partition("\n")[0]
            raise TypeError(f"An annotation in {self._name} means nothing when the program runs: {reason}.") from error

    def decode(self, data: bytes) -> object:
        return self._decode(data)

    def _decode(self, data: bytes, **names: Any) -> object:
        if self._has_decimals and _LONG_NUMBER.search(data):
            # pydantic reads the numbers in JSON as doubles, for decimals too.
            return self._convert(_parse(data, self._name, parse_float=_exact), **names)
        try:
            value: object = self._adapter.validate_json(data, **names)
        except self._error as error:
            raise self._failure(error) from None  # which shows values of the body
        return value

    def _read_again(self, value: object, text: str) -> object:  # noqa: ARG002
        # By the names of fields: the aliases of a program that only sends are those of its readers.
        return self._decode(self._adapter.dump_json(value, by_alias=False), by_alias=False, by_name=True)

    def convert(self, value: object) -> object:
        return self._convert(value)

    def _convert(self, value: object, **names: Any) -> object:
        try:
            converted: object = self._adapter.validate_python(value, **names)
        except self._error as error:
            raise self._failure(error) from None
        return converted

    def _failure(self, error: Any) -> MessageFormatException:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        places = [".".join(map(str, each["loc"])) for each in problems]
        reasons = [
            f"{place}: {each['msg']}" if place else each["msg"] for place, each in zip(places, problems, strict=True)
        ]
        return MessageFormatException(f"The body is not {self._name}: {'; '.join(reasons)}.")

    def _write(self, value: object) -> str:
        try:
            return self._adapter.dump_json(value, by_alias=True).decode()
        except ValueError as error:
            raise MessageFormatException(f"This {self._name} cannot be written as JSON: {error}") from error

    def _simple(self, value: object) -> object:
        try:
            found: object = self._adapter.dump_python(value, round_trip=True, serialize_as_any=True, warnings=False)
        except (ValueError, RecursionError):  # from an application's serializer that supports JSON alone
            return None
        return found

    def json_schema(self) -> dict[str, Any]:
        import pydantic

        try:
            return self._adapter.json_schema()
        except pydantic.errors.PydanticUserError:
            return {}


class MsgspecSchema(Schema):
    """A type's schema by msgspec.

    Raises:
        TypeError: msgspec does not know it.
    """

    def __init__(self, annotation: Any) -> None:
        import msgspec

        self._annotation = annotation
        self._name = _name(annotation)
        self._decoder = msgspec.json.Decoder(annotation)
        # A decoder refuses a custom type only when it meets a value; this raises now.
        msgspec.json.schema(annotation)
        self._error = msgspec.ValidationError
        self._decode_error = msgspec.DecodeError

    def decode(self, data: bytes) -> object:
        try:
            value: object = self._decoder.decode(data)
        except self._decode_error as error:  # a ValidationError is one
            raise self._failure(error) from None
        return value

    def convert(self, value: object) -> object:
        import msgspec

        try:
            converted: object = msgspec.convert(value, self._annotation, strict=False, from_attributes=True)
        except self._error as error:
            raise self._failure(error) from None
        return converted

    def _failure(self, error: Exception) -> MessageFormatException:
        return MessageFormatException(f"The body is not {self._name}: {error}.")

    def _write(self, value: object) -> str:
        import msgspec

        try:
            return msgspec.json.encode(value).decode()
        except (TypeError, ValueError) as error:
            raise MessageFormatException(f"This {self._name} cannot be written as JSON: {error}") from error

    def _simple(self, value: object) -> object:
        import msgspec

        return msgspec.to_builtins(value)

    def json_schema(self) -> dict[str, Any]:
        import msgspec

        return msgspec.json.schema(self._annotation)


class CheckedSchema(Schema):
    """A type's schema by Python's own annotations, where the application has neither library.

    Raises:
        TypeError: It is neither a dataclass nor a built-in type.
    """

    def __init__(self, annotation: Any) -> None:
        self._name = _name(annotation)
        self._check = TypeCheck(annotation)

    def decode(self, data: bytes) -> object:
        return self.convert(_parse(data, self._name, parse_float=_exact))

    def convert(self, value: object) -> object:
        try:
            return self._check.convert(value)
        except (TypeError, ValueError) as error:
            raise MessageFormatException(f"The body is not {self._name}: {error}.") from None

    def _write(self, value: object) -> str:
        return to_json(value)

    def _simple(self, value: object) -> object:
        return simple(value)

    def json_schema(self) -> dict[str, Any]:
        return {}


def schema_of(annotation: Any) -> Schema:
    """Return a type's schema by the library that the application has.

    Raises:
        TypeError: None of them knows the type.
    """
    parts = set(_classes(annotation))
    if any(_descends_from(part, "pydantic", "BaseModel") or hasattr(part, "__pydantic_validator__") for part in parts):
        return PydanticSchema(annotation)
    if any(_descends_from(part, "msgspec", "Struct") for part in parts):
        return MsgspecSchema(annotation)
    kinds: dict[str, Callable[[Any], Schema]] = {"pydantic": PydanticSchema, "msgspec": MsgspecSchema}
    for library, kind in kinds.items():
        if _is_there(library):
            return kind(annotation)
    return CheckedSchema(annotation)


@lru_cache(maxsize=1024)
def schema_of_class(cls: type) -> Schema:
    """Return a class's schema, which is made once."""
    return schema_of(cls)


def describes_itself(cls: type) -> bool:
    """Tell whether a class is a pydantic model, a msgspec struct or a dataclass."""
    return is_dataclass(cls) or _descends_from(cls, "pydantic", "BaseModel") or _descends_from(cls, "msgspec", "Struct")


def _descends_from(cls: type, module: str, base: str) -> bool:
    """Tell whether `cls` is a subclass, without importing a module that the application does not need."""
    return module in sys.modules and issubclass(cls, getattr(sys.modules[module], base))


def _is_there(library: str) -> bool:
    return library in sys.modules or importlib.util.find_spec(library) is not None


def _classes(annotation: Any) -> Iterator[type]:
    """Return the classes that an annotation names."""
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        yield annotation
    for part in typing.get_args(annotation):
        yield from _classes(part)


def _strings(schema: object) -> Iterator[str]:
    """Return the strings within a schema of pydantic's core."""
    waiting, seen = [schema], set[int]()
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict | list | tuple) and id(part) not in seen:
            seen.add(id(part))
            waiting += part.values() if isinstance(part, dict) else part


def _name(annotation: Any) -> str:
    is_class = isinstance(annotation, type) and typing.get_origin(annotation) is None
    return annotation.__qualname__ if is_class else str(annotation)


_SIMPLE = frozenset({str, int, bool, bytes, type(None)})


def _is_finite(value: object) -> bool:
    """Return False if an object holds a double that is infinite or not a number."""
    waiting: list[Any] = [value]
    for part in waiting:
        kind = type(part)
        if kind in _SIMPLE:
            continue
        if isinstance(part, float):
            if not math.isfinite(part):
                return False
        elif isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, list | tuple | set | frozenset):
            waiting += part
        elif hasattr(kind, "__pydantic_fields__"):
            waiting += part.__dict__.values()
        else:
            for fields in ("__struct_fields__", "__dataclass_fields__"):
                waiting += [getattr(part, name, None) for name in getattr(kind, fields, ())]
    return True


def _has_long_integer(text: str) -> bool:
    return re.search(f"[0-9]{{{_LONGEST_INTEGER + 1}}}", text) is not None


def _difference(before: Any, after: Any) -> str | None:
    """Return the place of the first difference between dicts, lists and simple values; None: they are the same."""
    kinds = type(before), type(after)
    if kinds == (dict, dict):
        pairs = ((f".{key}", before.get(key, _MISSING), after.get(key, _MISSING)) for key in {**before, **after})
    elif kinds in {(list, list), (tuple, tuple)} and len(before) == len(after):
        pairs = ((f"[{index}]", *pair) for index, pair in enumerate(zip(before, after, strict=True)))
    else:
        return None if _is_same(before, after) else ""
    return next((f"{place}{rest}" for place, *pair in pairs if (rest := _difference(*pair)) is not None), None)


_MISSING = object()


def _is_same(before: Any, after: Any) -> bool:
    compare: object = type(before).__eq__
    if compare is object.__eq__ and type(before) is type(after) is not object:
        return True  # they cannot tell
    try:
        return bool(before == after or (before != before and after != after))  # noqa: PLR0124 - nan
    except Exception:  # noqa: BLE001 - from an application's class, such as an array
        return True


def _parse(data: bytes, name: str, parse_float: Callable[[str], object]) -> object:
    try:
        return parse_strict_json(data, parse_float=parse_float)
    except (ValueError, RecursionError) as error:
        raise MessageFormatException(f"The body is not {name}: it is not JSON ({error}).") from error


def _exact(number: str) -> float | Decimal:
    """Return a JSON number as a double, or as a decimal if it has more digits than a double keeps."""
    exact = Decimal(number)
    return double if Decimal(repr(double := float(number))) == exact else exact
