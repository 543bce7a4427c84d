"""What history costs: a queue that keeps it beside one that does not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from benchmarks import floor, provider
from benchmarks.database import BenchmarkDatabase
from benchmarks.measurement import BenchmarkResult, Contender, Work, at_least, compare
from benchmarks.setting import Setting
from jmsql import AcknowledgeMode
from jmsql.admin import Administration

_BATCH = 100
_TARGET = at_least(0.9)
_FLOORS = {"floor without history": False, "floor with history": True}
_Receive = Callable[[BenchmarkDatabase, str], AbstractContextManager[Work]]


def _transacted(database: BenchmarkDatabase, queue: str) -> AbstractContextManager[Work]:
    return provider.receive_in_transactions(database, queue, _BATCH)


def _floor(database: BenchmarkDatabase, queue: str, *, keeps: bool) -> AbstractContextManager[Work]:
    return floor.receive(database, queue, _BATCH, transacted=True, keeps=keeps)


def _client(database: BenchmarkDatabase, queue: str) -> AbstractContextManager[Work]:
    return provider.receive_in_batches(database, queue, AcknowledgeMode.CLIENT, _BATCH)


def history(setting: Setting) -> list[BenchmarkResult]:
    """Receive from a queue that keeps history, beside one that does not: transacted, CLIENT and AUTO; and by hand."""
    ways: dict[str, tuple[_Receive, int]] = {
        "transacted": (_transacted, setting.effort.messages),
        "CLIENT": (_client, setting.effort.messages),
        "AUTO": (provider.receive, setting.effort.singles),
    }
    found: list[BenchmarkResult] = []
    for mode, (receive, messages) in ways.items():
        without, keeping = f"{mode} without history", f"{mode} with history"
        with Administration(setting.database.url) as administration:
            administration.create_queue(keeping, history=True)
        contenders = [
            Contender(queue, partial(receive, setting.database, queue), partial(setting.database.fill, queue))
            for queue in (without, keeping)
        ]
        if receive is _transacted:
            contenders += [
                Contender(
                    queue,
                    partial(_floor, setting.database, queue, keeps=keeps),
                    partial(setting.database.fill, queue),
                )
                for queue, keeps in _FLOORS.items()
            ]
        samples = setting.measure(contenders, messages)
        found += compare("history", samples, keeping, {without: _TARGET})
        if receive is _transacted:
            keeping, without = reversed(_FLOORS)
            found += compare("history", samples, keeping, {without: None})
    return found
