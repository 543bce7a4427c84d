"""The console's polls of the store."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from jmsql.console.poller import Poller
from jmsql.store.administration import overview


def test_rates_of_watched_destinations_begin_again_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    memories: list[overview.Memory] = []
    monkeypatch.setattr(overview, "of", lambda _, memory: memories.append(memory))
    poller = Poller(Mock(), hidden=False)
    poller.rates(7)
    poller._watched_besides(set())
    poller._watched_besides(set())
    poller._disconnect()
    poller._watched_besides(set())
    first, second, after_the_pause = memories
    assert first is second
    assert after_the_pause is not second
