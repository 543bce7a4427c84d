"""A forked child has no lock that a thread of its parent held, and repeats none of its parent's numbers."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from types import MethodType, ModuleType
from typing import Any, cast

import jmsql.admin
import jmsql.asyncio
import jmsql.embedded
import jmsql.metrics
import jmsql.worker
from jmsql.client.message_ids import MessageIds
from jmsql.metrics import ProcessCounters
from jmsql.timings import jitter

_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_PACKAGE = f"{jmsql.__name__}."


def in_child(call: Callable[[], str]) -> str:
    """Call in a forked process, and return what it returns."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(write_end, call().encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as told:
        result = told.read()
    os.waitpid(child, 0)
    return result


def held_locks() -> list[str]:
    """Return the places of the locks that are held."""
    return sorted(place for place, lock in process_locks() if not free(lock))


def free(lock: Any) -> bool:
    """Tell whether no thread holds a lock; it is free afterwards, if it was."""
    is_free: bool = lock.acquire(blocking=False)
    if is_free:
        lock.release()
    return is_free


def process_locks() -> Iterator[tuple[str, Any]]:
    """Find the locks that live as long as the process, from the modules on."""
    seen: set[int] = set()
    for name, module in list(sys.modules.items()):
        if name.startswith(_PACKAGE):
            for attribute, value in list(vars(module).items()):
                yield from locks_of(f"{name}.{attribute}", value, seen)


def locks_of(place: str, value: object, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Find the locks of an object and its parts."""
    kind = type(value)  # not by `isinstance`, which has Django's lazy objects read their settings
    if kind in _LOCKS:
        yield place, value
    if issubclass(kind, type | ModuleType) or id(value) in seen:
        return
    seen.add(id(value))
    parts: dict[str, object] = {}
    if kind is MethodType:
        parts = {"": cast("MethodType", value).__self__}
    elif kind in {set, list, tuple}:
        parts = {str(number): each for number, each in enumerate(cast("Iterable[object]", value))}
    elif kind.__module__.startswith(_PACKAGE):
        parts = dict(getattr(value, "__dict__", {}))
    for name, part in parts.items():
        yield from locks_of(f"{place}.{name}", part, seen)


def test_no_lock_of_the_process_is_held_in_a_child() -> None:
    counters = ProcessCounters()
    locks = dict(process_locks())
    assert len(locks) >= 6
    for lock in locks.values():
        lock.acquire()
    try:
        assert in_child(lambda: " ".join(held_locks())) == ""
    finally:
        for lock in locks.values():
            lock.release()
        counters.close()


def test_children_do_not_send_their_parents_message_ids_again() -> None:
    ids = MessageIds()
    sent = next(ids.following)
    children = [in_child(lambda: next(ids.following)) for _ in range(2)]
    assert len({sent, *children, next(ids.following)}) == 4


def test_pauses_of_children_differ() -> None:
    assert len({in_child(lambda: str(jitter.random())) for _ in range(2)}) == 2
