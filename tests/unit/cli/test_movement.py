"""What moved between two looks."""

from __future__ import annotations

from typing import Any

import pytest

from jmsql.cli.movement import Look, Order, movements
from jmsql.store.measurement import DestinationMeasurement, StoreMeasurement

EMPTY = DestinationMeasurement("queue", "orders", None, None, 0, 0, 0, 0, 0, 0, None, None, 0, 0, 0, 0, 0)


def look(time: float, *destinations: DestinationMeasurement) -> Look:
    return Look(StoreMeasurement(time, 0, 0, 0, 0.0, 0, 0.0, 0.0, 0), destinations)


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
    [moved] = movements(look(100.0, EMPTY._replace(**before)), look(102.0, EMPTY._replace(**now)), Order.busy)
    assert (moved.in_rate, moved.out_rate, moved.rolled_back_rate) == rates


def test_a_first_look_tells_no_rates() -> None:
    [moved] = movements(None, look(1.0, EMPTY), Order.busy)
    assert (moved.in_rate, moved.out_rate, moved.rolled_back_rate) == (None, None, None)


def test_orders() -> None:
    a = EMPTY._replace(destination="a", ready=1, oldest_seconds=5.0, consumers=1)
    b = EMPTY._replace(destination="b", ready=9, oldest_seconds=1.0)
    c = EMPTY._replace(destination="c")
    before, now = look(1.0, a, b, c), look(2.0, a, c._replace(acknowledged=7), b)
    names = {order: [each.now.destination for each in movements(before, now, order)] for order in Order}
    assert names == {
        Order.busy: ["c", "b", "a"],
        Order.depth: ["b", "a", "c"],
        Order.age: ["a", "b", "c"],
        Order.name: ["a", "b", "c"],
    }
