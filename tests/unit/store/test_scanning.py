"""Where a consumer looks next, and how many messages it takes at once."""

from __future__ import annotations

import pytest

from jmsql.client.prefetch_buffer import Prefetch
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


class TestPrefetch:
    def fetch(self, prefetch: Prefetch, clock: Clock, *, seconds: float, size: int = 200) -> int:
        """Fetch as many messages as the prefetch says, and use them up in some time."""
        count = prefetch.size()
        prefetch.fetched(count, count * size)
        prefetch.used += count
        clock.now += seconds
        return count

    def test_it_begins_with_one_and_doubles(self, clock: Clock) -> None:
        prefetch = Prefetch(0.25, clock)

        sizes = [self.fetch(prefetch, clock, seconds=0.001) for _ in range(9)]

        assert sizes == [1, 2, 4, 8, 16, 32, 64, 100, 100]

    def test_a_slow_consumer_holds_a_quarter_of_a_second_of_work(self, clock: Clock) -> None:
        prefetch = Prefetch(0.25, clock)
        for _ in range(9):
            self.fetch(prefetch, clock, seconds=0.001)

        self.fetch(prefetch, clock, seconds=10.0)  # 100 messages

        assert prefetch.size() == 2

    def test_a_consumer_of_one_message_a_second_holds_one(self, clock: Clock) -> None:
        prefetch = Prefetch(0.25, clock)

        sizes = [self.fetch(prefetch, clock, seconds=1.0) for _ in range(3)]

        assert sizes == [1, 1, 1]

    def test_large_messages_are_fetched_few_at_a_time(self, clock: Clock) -> None:
        prefetch = Prefetch(0.25, clock)

        sizes = [self.fetch(prefetch, clock, seconds=0.001, size=5 * 1024 * 1024) for _ in range(5)]

        assert sizes == [1, 2, 3, 3, 3]

    def test_a_transaction_fetches_what_the_one_before_used(self, clock: Clock) -> None:
        prefetch = Prefetch(0.25, clock)
        for _ in range(6):
            self.fetch(prefetch, clock, seconds=0.001)  # 63 messages
        prefetch.transaction_ended()

        assert prefetch.size() == 63

    def test_a_transaction_that_found_no_more_lowers_no_expectations(self, clock: Clock) -> None:
        prefetch = Prefetch(0.25, clock)
        for _ in range(6):
            self.fetch(prefetch, clock, seconds=0.001)  # 63 messages
        prefetch.transaction_ended()
        prefetch.fetched(2, 200)
        prefetch.used += 2
        prefetch.fetched(0, 0)
        prefetch.transaction_ended()

        assert prefetch.size() == 63

    def test_who_waits_is_not_slow(self, clock: Clock) -> None:
        prefetch = Prefetch(0.25, clock)
        for _ in range(9):
            self.fetch(prefetch, clock, seconds=0.001)
        prefetch.size()
        prefetch.fetched(0, 0)
        clock.now += 10.0

        assert prefetch.size() == 100

    def test_a_transaction_that_used_nothing_says_nothing(self, clock: Clock) -> None:
        prefetch = Prefetch(0.25, clock)
        for _ in range(3):
            self.fetch(prefetch, clock, seconds=0.001)  # 7 messages
        prefetch.transaction_ended()

        prefetch.transaction_ended()

        assert prefetch.size() == 7
