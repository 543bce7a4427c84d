"""Objects in pickled form, for classes that nothing else can encode, and only for those that are named.

A pickle can call anything that it can name. Reading therefore finds the classes that were allowed and nothing else;
their constructors and ``__setstate__`` are trusted. SQL cannot look into such a body.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable
from typing import TypeVar

from jmsql.exceptions import MessageFormatException
from jmsql.messages.codecs.registry import register_codec
from jmsql.public_names import set_module

T = TypeVar("T")

_PROTOCOL = 4


class _AllowingUnpickler(pickle.Unpickler):
    """Finds no classes but those given."""

    def __init__(self, data: bytes, allowed: dict[tuple[str, str], type]) -> None:
        super().__init__(io.BytesIO(data))
        self._allowed = allowed

    def find_class(self, module: str, name: str) -> type:
        try:
            return self._allowed[module, name]
        except KeyError:
            raise MessageFormatException(
                f"A pickled object in the message wants {module}.{name}, which is not allowed here; "
                "name it in `allow` of register_pickled_type if it should be."
            ) from None


@set_module("jmsql")
def register_pickled_type(cls: type[T], *, allow: Iterable[type] = (), name: str | None = None) -> None:
    """Allow objects of a class in messages, in pickled form.

    Args:
        cls: The class; its subclasses are not included.
        allow: The classes of the objects within, beyond Python's built-in containers, numbers and strings.
        name: The name of the class in messages; None for its module and qualified name.

    Raises:
        ValueError: Another class has this name, or the class is one that always travels.
    """
    allowed = {(each.__module__, each.__qualname__): each for each in (cls, *allow)}

    def encode(value: T) -> bytes:
        return pickle.dumps(value, _PROTOCOL)

    def decode(data: bytes) -> T:
        value = _AllowingUnpickler(data, allowed).load()
        if type(value) is not cls:
            raise MessageFormatException(f"The pickled object in the message is not of the type {cls.__qualname__}.")
        return value

    register_codec(cls, encode=encode, decode=decode, name=name)
