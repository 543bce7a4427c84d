"""Forked children: the state that they must not share with their parent, and the end of one that returns to jmsql."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

generation = 0
"""The number of forks between the first process and this one. Asking the system for the process costs a microsecond."""


def end_forked_child(error: BaseException | None = None) -> NoReturn:
    """End this process, which the application's code has forked.

    Such a child is a copy of its parent, with the parent's message, session and loop. It must not settle the message,
    nor receive the next one. So it ends as if the code had been the whole program; its parent goes on.

    Args:
        error: The error that the code has raised, if it has.
    """
    exit_code = 0
    if isinstance(error, SystemExit):
        exit_code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            sys.stderr.write(f"{error.code}\n")
    elif error is not None:
        traceback.print_exception(error)
        exit_code = 1
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(exit_code)  # the functions that the parent has registered for its exit are not the child's


_renewals: WeakKeyDictionary[Any, Callable[[Any], object]] = WeakKeyDictionary()


def renew_in_forked_children(part: T, renew: Callable[[T], object]) -> None:
    """Have a part of the process made new in each forked child, for as long as there is the part.

    For numbers that the parent goes on to count, and for locks: a thread of the parent may hold one at the fork, and
    the child has no thread that would release it.

    Args:
        part: The part, which is found by its identity.
        renew: Is called with it in the child, where no other thread runs.
    """
    _renewals[part] = renew


def _begin_child() -> None:
    global generation
    generation += 1
    for part, renew in list(_renewals.items()):
        renew(part)


os.register_at_fork(after_in_child=_begin_child)
