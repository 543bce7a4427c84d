"""The rates of messages between two looks."""

from __future__ import annotations

from typing import Any

import pytest

from jmsql.store.administration.rates import Counters, Rate, Rates

EMPTY = Counters(0, 0, 0, 0)


def rates_of(*states: dict[str, Any], interval: float) -> list[Rate | None]:
    """The rates of a destination at each look but the first."""
    seen = Rates()
    found = [seen.see(number * interval, {1: EMPTY._replace(**state)}).get(1) for number, state in enumerate(states)]
    assert found[0] is None
    return found[1:]


@pytest.mark.parametrize(
    ("before", "now", "rates"),
    [
        ({}, {"sent": 20, "depth": 20}, (10.0, 0.0, 0.0)),
        ({"depth": 4}, {"acknowledged": 4}, (0.0, 2.0, 0.0)),
        ({}, {"sent": 6, "acknowledged": 4, "rolled_back": 2, "depth": 2}, (3.0, 2.0, 1.0)),
        ({}, {"depth": 8}, (4.0, 0.0, 0.0)),
        ({"depth": 2}, {"depth": 2, "acknowledged": 6}, (3.0, 3.0, 0.0)),
        ({"depth": 9}, {}, (0.0, 0.0, 0.0)),
        ({"sent": 9, "acknowledged": 9}, {}, (0.0, 0.0, 0.0)),
        ({"depth": None}, {"sent": 4, "acknowledged": 2, "depth": None}, (2.0, 1.0, 0.0)),
        ({"depth": None}, {"sent": 4, "depth": 900}, (2.0, 0.0, 0.0)),
        ({"depth": 900}, {"sent": 400, "depth": None}, (200.0, 0.0, 0.0)),
    ],
    ids=[
        "sent",
        "received",
        "rolled back",
        "sent inside applications' own transactions",
        "and received at once",
        "purged",
        "deleted and made again",
        "more than are counted",
        "fewer than that again",
        "more than that now",
    ],
)
def test_rates(before: dict[str, Any], now: dict[str, Any], rates: tuple[float, float, float]) -> None:
    assert rates_of(before, now, interval=2.0) == [rates]


def test_a_destination_left_out_of_a_poll_has_no_rate_and_is_remembered() -> None:
    seen = Rates()
    assert seen.see(0.0, {1: EMPTY, 2: EMPTY}) == {}
    assert set(seen.see(1.0, {1: EMPTY})) == {1}
    assert seen.see(4.0, {2: EMPTY._replace(sent=8)}) == {2: (2.0, 0.0, 0.0)}
    assert seen.see(1000.0, {2: EMPTY._replace(sent=9)}) == {}, "it was forgotten"


def arrivals(*states: dict[str, Any]) -> list[float | None]:
    """How many messages came in at each look but the first."""
    return [None if rate is None else rate.incoming for rate in rates_of(*states, interval=1.0)]


def test_a_message_counted_after_it_was_seen_came_in_once() -> None:
    assert arrivals({}, {"depth": 10}, {"depth": 10, "sent": 10}) == [10.0, 0.0]
    assert arrivals({"depth": 2}, {}, {"acknowledged": 2}, {"acknowledged": 2, "depth": 1}) == [0.0, 0.0, 1.0]


def test_messages_after_a_purge_are_seen() -> None:
    purged: list[dict[str, Any]] = [{}] * 7
    assert arrivals({"depth": 100}, *purged, {"depth": 3})[-1] == 3.0
