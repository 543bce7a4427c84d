"""Running side by side and waiting, with the same names for threads and for asyncio's tasks.

The client's source is written for `tasks`; the source for threads, which is generated from it, imports the same names
from `threads`.
"""

from collections.abc import Callable
from typing import Final, TypeVar

__all__ = ["ASYNC", "settable"]

Getter = TypeVar("Getter", bound=Callable[..., object])

ASYNC: Final = True
"""Chooses, in the client's source, between two branches: `make generate` keeps the other branch for threads."""


def settable(getter: Getter) -> Getter:
    """Mark a property that threads can also set: `make generate` makes the setter, of the method ``set_`` and its name.

    Under asyncio that method is awaited instead.
    """
    return getter
