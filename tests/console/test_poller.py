"""The console's polls of the store."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import pytest

from jmsql import ConnectionFactory, ResourceAllocationException
from jmsql.console.database import Database
from jmsql.console.poller import Poller
from jmsql.store.administration import overview
from jmsql.store.administration.overview import DestinationOverview
from jmsql.store.statement import Steps
from jmsql.testing import wait_for
from tests.refused_threads import Refusal


def test_a_page_that_finds_an_old_look_has_a_new_one_though_the_poller_rests(jmsql_factory: ConnectionFactory) -> None:
    with (
        closing(Database(jmsql_factory, patience=60.0)) as database,
        closing(Poller(database, hidden=False, interval=3600.0, patience=0.2)) as poller,
    ):
        first = poller.snapshot().taken_at
        wait_for(lambda: database.now() - first > 0.2)
        assert poller.snapshot().taken_at > first


def test_a_page_begins_the_looks_once_a_thread_can_start(jmsql_factory: ConnectionFactory) -> None:
    with (
        closing(Database(jmsql_factory, patience=60.0)) as database,
        closing(Poller(database, hidden=False, interval=3600.0)) as poller,
    ):
        with Refusal("jmsql console"), pytest.raises(ResourceAllocationException):
            poller.snapshot()
        assert poller.snapshot().taken_at > 0


def test_rates_of_watched_destinations_begin_again_after_a_pause(
    jmsql_factory: ConnectionFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memories: list[overview.Memory] = []
    look = overview.of

    def look_with(numbers: Sequence[int], memory: overview.Memory) -> Steps[list[DestinationOverview]]:
        memories.append(memory)
        return look(numbers, memory)

    monkeypatch.setattr(overview, "of", look_with)
    with closing(Database(jmsql_factory, patience=60.0)) as database:
        poller = Poller(database, hidden=False)
        poller.rates(7)
        poller._watched_besides(set())
        poller._watched_besides(set())
        poller._disconnect()
        poller._watched_besides(set())
    first, second, after_the_pause = memories
    assert first is second
    assert after_the_pause is not second
