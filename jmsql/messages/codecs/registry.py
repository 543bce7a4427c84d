"""The classes whose objects an ObjectMessage may hold.

Objects of the built-in classes, and of datetime, decimal and uuid, always travel. Other classes are registered, in
the programs that send and in those that receive; a message cannot make a program create an object of a class that it
did not register.

    @register_type(name="order")
    @dataclass
    class Order:
        number: int
        placed: datetime
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from jmsql.concurrency.functions import is_coroutine_function, name_of
from jmsql.exceptions import MessageFormatException
from jmsql.messages.codecs.class_codecs import codec_functions
from jmsql.messages.codecs.codec import Codec
from jmsql.messages.codecs.standard_codecs import STANDARD_CODECS
from jmsql.public_names import set_module

T = TypeVar("T")
C = TypeVar("C", bound=type)

_by_type: dict[type, Codec[Any]] = {codec.type: codec for codec in STANDARD_CODECS}
_by_name: dict[str, Codec[Any]] = {codec.name: codec for codec in STANDARD_CODECS}


def codec_of(cls: type[T]) -> Codec[T]:
    """Find the codec for objects of exactly this class.

    Raises:
        MessageFormatException: There is none.
    """
    codec = _by_type.get(cls)
    if codec is None:
        raise MessageFormatException(
            f"An ObjectMessage holds no {_full_name(cls)} unless it is registered: call "
            f"jmsql.register_type({cls.__qualname__}), or jmsql.register_codec for a class that is no "
            "dataclass, enumeration, pydantic model or msgspec struct."
        )
    return codec


def is_registered(cls: type) -> bool:
    """Tell whether an ObjectMessage may hold objects of exactly this class."""
    return cls in _by_type


def codec_named(name: object) -> Codec[Any]:
    """Find the codec that a message names.

    Raises:
        MessageFormatException: There is none.
    """
    codec = _by_name.get(name) if isinstance(name, str) else None
    if codec is None:
        raise MessageFormatException(
            f"The message holds an object of the type {name!r}, which this program does not allow: call "
            f"jmsql.register_type(cls, name={name!r}) with the class if it should."
        )
    return codec


@set_module("jmsql")
def register_codec(
    cls: type[T],
    *,
    encode: Callable[[T], object],
    decode: Callable[[Any], T],
    name: str | None = None,
    version: int = 1,
    upgrade: Callable[[Any, int], object] | None = None,
) -> None:
    """Allow objects of a class in messages, and say how they are encoded.

    Args:
        cls: The class; its subclasses are not included.
        encode: Returns something simpler for an object: built-in values, or objects of registered classes.
        decode: Makes an object from the result of `encode`.
        name: The name of the class in messages; None for its module and qualified name.
        version: The version of the results of `encode`.
        upgrade: Takes the result of an older version's `encode`, and that version; returns the argument of `decode`.

    Raises:
        TypeError: One of the functions is a coroutine function.
        ValueError: Another class has this name, or the class is one that always travels.
    """
    for function in (encode, decode, upgrade):
        if is_coroutine_function(function):
            raise TypeError(f"{name_of(function)} is a coroutine function, and a codec's functions are plain ones.")
    name = name if name is not None else _full_name(cls)
    known = _by_name.get(name)
    if known is not None and _full_name(known.type) != _full_name(cls):
        raise ValueError(f"The name {name!r} stands for {_full_name(known.type)}; give {_full_name(cls)} another.")
    if any(cls is standard.type for standard in STANDARD_CODECS):
        raise ValueError(f"Objects of {_full_name(cls)} travel without being registered.")
    codec = Codec(cls, name, encode, decode, version, upgrade)
    _by_type[cls] = codec
    _by_name[name] = codec


@overload
def register_type(cls: C) -> C: ...
@overload
def register_type(
    *, name: str | None = None, version: int = 1, upgrade: Callable[[Any, int], object] | None = None
) -> Callable[[C], C]: ...
@overload
def register_type(
    cls: C, *, name: str | None = None, version: int = 1, upgrade: Callable[[Any, int], object] | None = None
) -> C: ...
@set_module("jmsql")
def register_type(
    cls: C | None = None,
    *,
    name: str | None = None,
    version: int = 1,
    upgrade: Callable[[Any, int], object] | None = None,
) -> C | Callable[[C], C]:
    """Allow objects of a dataclass, enumeration, pydantic model or msgspec struct in messages; also a decorator.

    Args:
        cls: The class; its subclasses, and the classes of its fields, are registered by themselves.
        name: The name of the class in messages; None for its module and qualified name.
        version: The version of the class's fields.
        upgrade: Takes the fields of an older version as a dict, and that version; returns this version's fields.

    Raises:
        TypeError: The class is none of these; `register_codec` takes any.
        ValueError: Another class has this name.
    """

    def register(cls: C) -> C:
        encode, decode = codec_functions(cls)
        register_codec(cls, encode=encode, decode=decode, name=name, version=version, upgrade=upgrade)
        return cls

    return register if cls is None else register(cls)


def _full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
