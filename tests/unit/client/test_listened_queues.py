"""The choice of the queues that a session's listeners look at: those with news, in turn, and now and then all."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from jmsql import Queue
from jmsql.client.consumer_state import ConsumerState
from jmsql.client.listened_queues import ListenedQueues
from jmsql.client.receiving.fetching import PrefetchBuffer, QueueSource
from jmsql.client.receiving.notified import QueueChanges
from jmsql.store.control.server import ServerClock
from jmsql.store.control.wake_ups import WakeUps
from jmsql.store.receiving.receive import dequeue
from jmsql.store.rows.message_rows import MessageKey
from jmsql.timings import InternalTimings

INTERVAL = 5.0


def consumer(queue_id: int) -> ConsumerState:
    timings, queue = InternalTimings(), Queue(f"queue {queue_id}")
    source = QueueSource(queue_id, None, dequeue, queue, None, timings.sweep_interval, QueueChanges())
    return ConsumerState("QueueReceiver", queue, None, PrefetchBuffer(source, None, ServerClock(timings), timings))


class Rounds:
    """The rounds of a session's listeners, at a time that stands still."""

    def __init__(self) -> None:
        self.wake_ups = WakeUps()
        self.consumers = tuple(consumer(queue_id) for queue_id in range(4))
        self.queues = ListenedQueues(self.wake_ups, lambda: None, INTERVAL)
        self.now = 100.0
        self.is_settled = True

    def run(self, found: int | None = None, news: Mapping[int, int] = MappingProxyType({})) -> list[int]:
        """Return the queues that a round looks at.

        Args:
            found: The queue that has a message; None: none has.
            news: Where there is news during the looks at some queues.
        """
        looked = []
        self.queues.use(self.consumers)
        self.queues.begin_round(is_settled=self.is_settled)
        while (each := self.queues.next()) is not None:
            self.queues.begin_look(each)
            number = each.buffer.source.queue_id
            looked.append(number)
            if number in news:
                self.wake_ups.wake(news[number])
            self.queues.end_look(each, found=number == found)
        return looked


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Rounds:
    rounds = Rounds()
    monkeypatch.setattr("jmsql.client.listened_queues.monotonic", lambda: rounds.now)
    assert rounds.run() == [0, 1, 2, 3]
    return rounds


def test_queues_with_news_are_looked_at_until_they_are_empty(rounds: Rounds) -> None:
    rounds.wake_ups.wake(2)
    rounds.wake_ups.wake(1)
    assert rounds.run(found=1) == [2, 1]
    assert rounds.run() == [1]


@pytest.mark.parametrize("elapsed", [0.0, 2 * INTERVAL])
def test_all_queues_are_looked_at_without_news_and_after_a_while(rounds: Rounds, elapsed: float) -> None:
    if elapsed:
        rounds.wake_ups.wake(2)
        rounds.now += elapsed
    assert sorted(rounds.run()) == [0, 1, 2, 3]


def test_a_queue_with_news_comes_first_within_a_round(rounds: Rounds) -> None:
    assert rounds.run(news={0: 3}) == [0, 3, 1, 2]
    assert not rounds.queues.has_late_news


def test_news_of_a_queue_after_its_turn_asks_for_another_round(rounds: Rounds) -> None:
    assert rounds.run(news={3: 3}) == [0, 1, 2, 3]
    assert rounds.queues.has_late_news
    assert rounds.run() == [3]
    assert not rounds.queues.has_late_news


def test_all_queues_are_looked_at_after_a_gap_in_the_news(rounds: Rounds) -> None:
    rounds.wake_ups.wake_all()
    assert sorted(rounds.run()) == [0, 1, 2, 3]


@pytest.mark.parametrize("is_settled", [False, True])
def test_a_message_that_the_session_gives_back_is_found_again(rounds: Rounds, is_settled: bool) -> None:
    rounds.is_settled = is_settled
    rounds.wake_ups.wake(2)
    assert rounds.run(found=2) == [2]
    assert rounds.run() == [2]
    rounds.wake_ups.wake(1)
    assert rounds.run() == [1]
    rounds.consumers[2].buffer.source.returned(MessageKey(2, 5, 1))
    rounds.wake_ups.wake(1)
    assert sorted(rounds.run()) == ([1] if is_settled else [1, 2])


def test_only_a_new_listener_looks_when_it_comes(rounds: Rounds) -> None:
    rounds.consumers = (*rounds.consumers, consumer(7))
    assert rounds.run() == [7]
    rounds.consumers = rounds.consumers[1:]
    rounds.wake_ups.wake(0)
    rounds.wake_ups.wake(3)
    assert rounds.run() == [3]


def test_a_queue_that_is_made_again_is_heard(rounds: Rounds) -> None:
    rounds.consumers[1].buffer.source.move(8)
    rounds.wake_ups.wake(1)
    rounds.wake_ups.wake(2)
    assert rounds.run(news={2: 8}) == [1, 2]
    assert rounds.queues.has_late_news
