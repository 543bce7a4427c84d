"""The console's polls of the store."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import pytest

from jmsql import ConnectionFactory
from jmsql.console.database import Database
from jmsql.console.poller import Poller
from jmsql.store.administration import overview
from jmsql.store.administration.overview import DestinationOverview
from jmsql.store.statement import Steps


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
