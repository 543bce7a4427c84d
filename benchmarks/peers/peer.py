"""What the comparison with peers needs of each."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from benchmarks.database import BenchmarkDatabase
from benchmarks.measurement import Work


class Unavailable(Exception):
    """The peer is not here to be measured; the text says why."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer, ready to be measured. What it sends with `fill` and what it receives are in the same queue.

    Args:
        name: What tables call it.
        send: Sends so many messages at once, durably, with each step.
        receive: Receives and acknowledges so many with each step.
        fill: Sends messages to be received.
        share: Which share of the others' messages it has in a round, being slower.
    """

    name: str
    send: Callable[[int], AbstractContextManager[Work]]
    receive: Callable[[int], AbstractContextManager[Work]]
    fill: Work
    share: float = 1.0


OpenPeer = Callable[[BenchmarkDatabase], AbstractContextManager[Peer]]
"""Makes a peer ready, in the same database if it uses PostgreSQL. Raises Unavailable."""


def import_peer(module: str) -> Any:
    """Import a peer's package, which is not installed with jmsql.

    Raises:
        Unavailable: It is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Unavailable(f"{error}; install the dependency group `benchmarks`") from error
