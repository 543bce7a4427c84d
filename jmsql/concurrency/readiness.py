"""Waiting for sockets, with descriptors of any size."""

from __future__ import annotations

import math
import select
from collections.abc import Sequence
from typing import Protocol

# `select.select` raises ValueError for a descriptor from 1,024 on, so `select.poll` waits where there is one. Windows
# and eventlet have none. Both functions are found at the call: gevent and eventlet replace them in the module.


class _HasDescriptor(Protocol):
    def fileno(self) -> int: ...


Source = int | _HasDescriptor
"""A descriptor, or an object that has one, such as a socket."""


def wait_until_ready(
    readable: Sequence[Source], seconds: float | None, *, writable: Sequence[Source] = ()
) -> list[Source]:
    """Wait until a source can be read or written; return those that can be read.

    A source whose other end is closed can be read.

    Args:
        readable: The sources to read.
        seconds: The most time; None: no limit.
        writable: The sources to write.
    """
    if not hasattr(select, "poll"):
        return select.select(readable, writable, (), seconds)[0]  # noqa: TID251 - there is nothing else
    masks: dict[int, int] = {}
    for sources, mask in ((readable, select.POLLIN), (writable, select.POLLOUT)):
        for source in sources:
            descriptor = _descriptor(source)
            masks[descriptor] = masks.get(descriptor, 0) | mask
    poll = select.poll()
    for descriptor, mask in masks.items():
        poll.register(descriptor, mask)
    events = dict(poll.poll(None if seconds is None else math.ceil(seconds * 1000)))
    return [source for source in readable if events.get(_descriptor(source), 0) & ~select.POLLOUT]


def _descriptor(source: Source) -> int:
    return source if isinstance(source, int) else source.fileno()
