"""Where a consumer looks next."""

from __future__ import annotations

import pytest

from jmsql.store.receiving.reader import ScanBounds
from jmsql.store.receiving.receive import PRIORITIES


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


class TestScanBounds:
    def test_a_new_consumer_looks_from_the_front(self, clock: Clock) -> None:
        assert ScanBounds(1.0, clock).lowest == [0] * PRIORITIES

    def test_a_bound_is_past_the_messages_found(self, clock: Clock) -> None:
        bounds = ScanBounds(1.0, clock)

        bounds.passed([(5, 7), (5, 9), (2, 4)])

        assert bounds.lowest[5] == 10
        assert bounds.lowest[2] == 5
        assert bounds.lowest[4] == 0

    def test_a_bound_does_not_go_back_by_itself(self, clock: Clock) -> None:
        bounds = ScanBounds(1.0, clock)
        bounds.passed([(5, 9)])

        bounds.passed([(5, 3)])

        assert bounds.lowest[5] == 10

    def test_a_message_released_is_looked_for(self, clock: Clock) -> None:
        bounds = ScanBounds(1.0, clock)
        bounds.passed([(5, 9), (6, 9)])

        bounds.returned(5, 3)

        assert bounds.lowest[5] == 3
        assert bounds.lowest[6] == 10

    def test_a_quick_sweep_is_repeated_after_a_second(self, clock: Clock) -> None:
        bounds = ScanBounds(1.0, clock)
        assert bounds.sweep_due(idle=False)

        bounds.swept(0.001)

        clock.now += 0.9
        assert not bounds.sweep_due(idle=False)
        clock.now += 0.2
        assert bounds.sweep_due(idle=False)

    def test_a_slow_sweep_takes_a_twentieth_of_the_time(self, clock: Clock) -> None:
        bounds = ScanBounds(1.0, clock)

        bounds.swept(2.0)

        clock.now += 39.9
        assert not bounds.sweep_due(idle=False)
        clock.now += 0.2
        assert bounds.sweep_due(idle=False)

    def test_an_idle_consumer_sweeps_sooner(self, clock: Clock) -> None:
        bounds = ScanBounds(1.0, clock)

        bounds.swept(0.001)

        clock.now += 0.021
        assert bounds.sweep_due(idle=True)
        assert not bounds.sweep_due(idle=False)
