"""Bodies as their types describe them: values made of JSON and of other simpler values, and JSON made of them.

The library that the application has does it: pydantic for its models, msgspec for its structs, and for dataclasses and
the types of Python's either of the two, pydantic first. Without both, `TypeCheck` does. Nothing here looks at what a
message says of its type.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

from jmsql.exceptions import MessageFormatException
from jmsql.messages.codecs.type_check import TypeCheck, to_json

_LONG_FRACTION = re.compile(rb"[0-9][0-9.]{15}[0-9.eE+-]*")
"""What may be a number with more digits than a double keeps."""


class Schema(ABC):
    """What the objects of a type look like, and how they are made."""

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

    @abstractmethod
    def encode(self, value: object) -> str:
        """Write an object of the type as JSON.

        Raises:
            MessageFormatException: It holds something that JSON cannot say.
        """

    @abstractmethod
    def json_schema(self) -> dict[str, Any]:
        """Return the JSON schema of what is read; an empty one, which allows anything, if nothing writes it."""


class PydanticSchema(Schema):
    """What pydantic says of a type.

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
        self._has_decimals = any(part == "decimal" for part in _strings(self._adapter.core_schema))

    def decode(self, data: bytes) -> object:
        if self._has_decimals and _LONG_FRACTION.search(data):
            # pydantic reads the numbers in JSON as doubles, for decimals too.
            return self.convert(_parse(data, self._name, parse_float=_exact))
        try:
            value: object = self._adapter.validate_json(data)
        except self._error as error:
            raise self._failure(error) from None  # which shows values of the body
        return value

    def convert(self, value: object) -> object:
        try:
            converted: object = self._adapter.validate_python(value)
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

    def encode(self, value: object) -> str:
        try:
            return self._adapter.dump_json(value, by_alias=True).decode()
        except ValueError as error:
            raise MessageFormatException(f"This {self._name} cannot be written as JSON: {error}") from error

    def json_schema(self) -> dict[str, Any]:
        import pydantic

        try:
            return self._adapter.json_schema()
        except pydantic.errors.PydanticUserError:
            return {}


class MsgspecSchema(Schema):
    """What msgspec says of a type.

    Raises:
        TypeError: msgspec does not know it.
    """

    def __init__(self, annotation: Any) -> None:
        import msgspec

        self._annotation = annotation
        self._name = _name(annotation)
        self._decoder = msgspec.json.Decoder(annotation)
        # What a decoder refuses as a custom type only when it meets one.
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

    def encode(self, value: object) -> str:
        import msgspec

        try:
            return msgspec.json.encode(value).decode()
        except (TypeError, ValueError) as error:
            raise MessageFormatException(f"This {self._name} cannot be written as JSON: {error}") from error

    def json_schema(self) -> dict[str, Any]:
        import msgspec

        return msgspec.json.schema(self._annotation)


class CheckedSchema(Schema):
    """What Python's own annotations say of a type, where the application has neither library.

    Raises:
        TypeError: It is neither a dataclass nor a type of Python's.
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

    def encode(self, value: object) -> str:
        return to_json(value)

    def json_schema(self) -> dict[str, Any]:
        return {}


def schema_of(annotation: Any) -> Schema:
    """Return what the library that the application has says of a type.

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
    """Return what `schema_of` returns for a class; it is made once."""
    return schema_of(cls)


def describes_itself(cls: type) -> bool:
    """Tell whether a class is a pydantic model, a msgspec struct or a dataclass."""
    return is_dataclass(cls) or _descends_from(cls, "pydantic", "BaseModel") or _descends_from(cls, "msgspec", "Struct")


def _descends_from(cls: type, module: str, base: str) -> bool:
    """Tell whether `cls` is a subclass, without importing a module that nobody else needs."""
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


def _parse(data: bytes, name: str, parse_float: Callable[[str], object]) -> object:
    try:
        return json.loads(data, parse_float=parse_float)
    except (ValueError, RecursionError) as error:
        raise MessageFormatException(f"The body is not {name}: it is not JSON ({error}).") from error


def _exact(number: str) -> float | Decimal:
    """Return a number of JSON's as a double, or as a decimal if it has more digits than a double keeps."""
    exact = Decimal(number)
    return double if Decimal(repr(double := float(number))) == exact else exact
