"""How often a process notifies of a destination in transactions of the application's."""

from __future__ import annotations

import pytest

from jmsql.client.pacing import NotificationPacing
from jmsql.values.recently_used import RecentlyUsed


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in a list of its own."""
    now = [1000.0]
    monkeypatch.setattr("jmsql.client.pacing.monotonic", lambda: now[0])
    return now


def test_twenty_at_once_then_one_in_each_interval(now: list[float]) -> None:
    pacing = NotificationPacing()
    assert [pacing.is_due("orders", 0.01) for _ in range(30)] == [True] * 20 + [False] * 10
    notified = 0
    for _ in range(100):
        now[0] += 0.005
        notified += pacing.is_due("orders", 0.01)
    assert notified == pytest.approx(50, abs=1)


def test_a_pause_gives_all_twenty_back(now: list[float]) -> None:
    pacing = NotificationPacing()
    for _ in range(3):
        assert sum(pacing.is_due("orders", 0.01) for _ in range(30)) == 20
        now[0] += 0.21


def test_each_destination_counts_apart(now: list[float]) -> None:
    assert now
    pacing = NotificationPacing()
    for name in ("orders", "invoices"):
        assert sum(pacing.is_due(name, 0.01) for _ in range(30)) == 20


def test_it_remembers_no_more_than_a_thousand_destinations() -> None:
    pacing = NotificationPacing()
    for number in range(2000):
        assert pacing.is_due(number, 1.0)
    assert len(pacing) == 1000


def test_the_least_recently_used_destination_is_forgotten_first() -> None:
    known = RecentlyUsed[str, int](2)
    known["a"], known["b"] = 1, 2
    assert known.get("a") == 1
    known["c"] = 3
    assert [known.get(key) for key in "abc"] == [1, None, 3]
    known["c"] = 4
    assert (known.get("c"), len(known)) == (4, 2)
