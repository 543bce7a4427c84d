"""How objects of one class travel in an ObjectMessage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from jmsql.exceptions import MessageFormatException

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """How objects of one class are taken apart and put together.

    Args:
        type: The class; objects of its subclasses need codecs of their own.
        name: The class's name in messages.
        encode: Gives something simpler for an object: built-in values, or objects that have codecs themselves.
        decode: Makes an object from a result of `encode`.
        version: The version of the results of `encode`.
        upgrade: Takes a result of an older version's `encode`, and that version; returns an argument for `decode`.
    """

    type: type[T]
    name: str
    encode: Callable[[T], object]
    decode: Callable[[Any], T]
    version: int = 1
    upgrade: Callable[[Any, int], object] | None = None

    def simplify(self, value: T) -> object:
        """Take an object apart.

        Raises:
            MessageFormatException: The codec cannot encode this object.
        """
        try:
            return self.encode(value)
        except MessageFormatException:
            raise
        except Exception as error:
            raise MessageFormatException(
                f"This {self.name!r} cannot be encoded ({type(error).__name__}: {error})."
            ) from error

    def rebuild(self, data: object, version: int) -> T:
        """Make an object of data that a message holds.

        Raises:
            MessageFormatException: The data's version is unknown here, or no object can be made of the data.
        """
        try:
            return self.decode(data if version == self.version else self._upgrade(data, version))
        except MessageFormatException:
            raise
        except Exception as error:
            raise MessageFormatException(
                f"No {self.name!r} can be made of what the message holds ({type(error).__name__}: {error})."
            ) from error

    def _upgrade(self, data: object, version: int) -> object:
        if self.upgrade is None or version > self.version:
            raise MessageFormatException(
                f"The message holds version {version!r} of {self.name!r}, and version {self.version} is registered "
                "here; give `upgrade` when registering, or update this program."
            )
        return self.upgrade(data, version)
