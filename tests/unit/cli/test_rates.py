"""The rates of messages between two looks."""

from __future__ import annotations

from typing import Any

import pytest

from jmsql.cli.monitoring.rates import DestinationRates, Look, Order, Rates
from jmsql.store.administration.measurement import DestinationMeasurement, StoreMeasurement

EMPTY = DestinationMeasurement("queue", "orders", None, None, 0, 0, 0, 0, 0, 0, None, None, 0, 0, 0, 0, 0)


def look(time: float, *destinations: DestinationMeasurement) -> Look:
    return Look(StoreMeasurement(time, 0, 0, 0, 0.0, 0, 0.0, 0.0, 0), destinations)


def rates_between(*looks: Look, order: Order = Order.busy) -> list[DestinationRates]:
    """The rates between the last two looks."""
    seen = Rates()
    for each in looks:
        seen.see(each)
    return seen.sorted(order)


@pytest.mark.parametrize(
    ("before", "now", "rates"),
    [
        ({}, {"sent": 20, "ready": 20}, (10.0, 0.0, 0.0)),
        ({"ready": 4}, {"acknowledged": 4}, (0.0, 2.0, 0.0)),
        ({}, {"sent": 6, "acknowledged": 4, "rolled_back": 2, "ready": 2}, (3.0, 2.0, 1.0)),
        ({}, {"ready": 8}, (4.0, 0.0, 0.0)),
        ({"ready": 2}, {"ready": 2, "acknowledged": 6}, (3.0, 3.0, 0.0)),
        ({"ready": 9}, {}, (0.0, 0.0, 0.0)),
        ({"sent": 9, "acknowledged": 9}, {}, (0.0, 0.0, 0.0)),
    ],
    ids=[
        "sent",
        "received",
        "rolled back",
        "sent inside applications' own transactions",
        "and received at once",
        "purged",
        "deleted and made again",
    ],
)
def test_rates(before: dict[str, Any], now: dict[str, Any], rates: tuple[float, float, float]) -> None:
    [moved] = rates_between(look(100.0, EMPTY._replace(**before)), look(102.0, EMPTY._replace(**now)))
    assert (moved.in_rate, moved.out_rate, moved.rolled_back_rate) == rates


def test_a_first_look_tells_no_rates() -> None:
    [moved] = rates_between(look(1.0, EMPTY))
    assert (moved.in_rate, moved.out_rate, moved.rolled_back_rate) == (None, None, None)


def test_orders() -> None:
    a = EMPTY._replace(destination="a", ready=1, oldest_seconds=5.0, consumers=1)
    b = EMPTY._replace(destination="b", ready=9, oldest_seconds=1.0)
    c = EMPTY._replace(destination="c")
    before, now = look(1.0, a, b, c), look(2.0, a, c._replace(acknowledged=7), b)
    names = {order: [each.now.destination for each in rates_between(before, now, order=order)] for order in Order}
    assert names == {
        Order.busy: ["c", "b", "a"],
        Order.depth: ["b", "a", "c"],
        Order.age: ["a", "b", "c"],
        Order.name: ["a", "b", "c"],
    }


def arrivals(*states: dict[str, Any], interval: float = 1.0) -> list[float | None]:
    """How many messages came in at each look but the first."""
    looks = [look(number * interval, EMPTY._replace(**state)) for number, state in enumerate(states)]
    return [
        None if moved.in_rate is None else moved.in_rate * interval
        for number in range(2, len(looks) + 1)
        for moved in rates_between(*looks[:number])
    ]


def test_what_is_counted_after_it_was_seen_came_in_once() -> None:
    assert arrivals({}, {"ready": 10}, {"ready": 10, "sent": 10}) == [10.0, 0.0]
    assert arrivals({"ready": 2}, {}, {"acknowledged": 2}, {"acknowledged": 2, "ready": 1}) == [0.0, 0.0, 1.0]


def test_what_comes_in_after_a_purge_is_seen() -> None:
    purged: list[dict[str, Any]] = [{}] * 7
    assert arrivals({"ready": 100}, *purged, {"ready": 3})[-1] == 3.0
