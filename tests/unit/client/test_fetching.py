"""When a consumer doubts that there is a message, and for how long it heeds no news."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from jmsql import Queue
from jmsql.client.receiving.fetching import PrefetchBuffer, QueueSource
from jmsql.client.receiving.notified import QueueChanges
from jmsql.store.control.server import ServerClock
from jmsql.store.receiving.receive import dequeue
from jmsql.store.rows.message_rows import LastRow, MessageRow
from jmsql.store.statement import Steps
from jmsql.timings import InternalTimings

EMPTY = {"take": [], "has_messages": (False, False), "has_groups": False}
ROW = MessageRow._make({**dict.fromkeys(MessageRow._fields), "inverse_priority": 5, "sequence": 1}.values())
LAST = LastRow._make(ROW)


def buffer() -> PrefetchBuffer:
    timings = InternalTimings()
    source = QueueSource(1, None, dequeue, Queue("orders"), None, timings.sweep_interval, QueueChanges())
    return PrefetchBuffer(source, None, ServerClock(timings), timings)


def answer(steps: Steps[Any], answers: dict[str, Any]) -> Any:
    """Give the statements of a decision their results."""
    try:
        query = next(steps)
        while True:
            query = steps.send(answers[query.statement.name])
    except StopIteration as end:
        return end.value


def test_a_consumer_that_has_found_all_expects_nothing_until_a_notification() -> None:
    messages = buffer()
    doubts = [messages.is_likely_empty]
    answer(messages.fetch(1), EMPTY | {"take": [ROW]})
    doubts.append(messages.is_likely_empty)  # it got what it asked for
    answer(messages.fetch(2), EMPTY | {"take": [ROW]})
    doubts.append(messages.is_likely_empty)
    messages.source.notify(None)
    doubts.append(messages.is_likely_empty)
    assert doubts == [False, False, True, False]
    assert messages.rest <= 0


def test_the_back_off_grows_with_each_lost_race_until_a_message_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jmsql.client.receiving.fetching.monotonic", lambda: 1.0)
    messages = buffer()
    rests = []
    for _ in range(20):
        messages.source.notify(None)
        assert not answer(messages.may_find(), EMPTY)
        rests.append(round(messages.rest, 3))
    assert rests[:7] == [0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.064]
    assert max(rests) == 0.064
    messages.source.notify(None)
    assert answer(messages.may_find(), EMPTY | {"has_messages": (True, False)})
    answer(messages.fetch(1), EMPTY | {"take": [ROW]})
    assert messages.rest <= 0.0


def test_an_empty_poll_starts_no_back_off() -> None:
    messages = buffer()
    answer(messages.fetch(1), EMPTY)
    answer(messages.may_find(), EMPTY)
    assert messages.rest <= 0.0
    assert messages.is_likely_empty


def test_a_released_message_is_fetched_without_a_question() -> None:
    messages = buffer()
    answer(messages.fetch(1), EMPTY)
    doubts = [messages.is_likely_empty]
    messages.source.notify(messages.held.key(ROW))
    doubts.append(messages.is_likely_empty)
    assert doubts == [True, False]


def test_a_consumer_that_has_seen_the_end_asks_for_it_with_the_next_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(1.0, 60.0)
    monkeypatch.setattr("jmsql.client.receiving.fetching.monotonic", lambda: next(clock))
    messages = buffer()
    messages.begin_receive(waits=True)
    asked = []
    for taken in ([], [ROW], [ROW], [LAST]):
        ends_seen = messages.emptiness.ends_seen
        answer(messages.fetch(1), EMPTY | {"take": taken})
        asked.append((messages.emptiness.ends_seen != ends_seen, messages.asks_for_end))
    assert asked == [(True, True), (False, True), (False, True), (True, True)]
    for _ in range(8):
        assert messages.asks_for_end
        answer(messages.fetch(1), EMPTY | {"take": [ROW]})
    assert not messages.asks_for_end


def test_questions_for_the_end_take_a_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=1.0)
    monkeypatch.setattr("jmsql.client.receiving.fetching.monotonic", lambda: clock.now)
    messages = buffer()
    messages.begin_receive(waits=True)

    class Slow(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            clock.now = 1.5
            return super().__getitem__(name)

    answer(messages.fetch(1, asks=True), Slow(EMPTY))
    asks = []
    for clock.now in (11.4, 11.6):
        asks.append(messages.asks_for_end)
    assert asks == [False, True]


def test_a_poll_of_a_queue_that_is_likely_empty_takes_no_messages() -> None:
    messages = buffer()
    assert answer(messages.fetch_if_any(1), EMPTY) == []

    assert answer(messages.fetch_if_any(1), {"has_messages": (False, False)}) == []
    assert answer(messages.fetch_if_any(1), {"has_messages": (True, False), "take": [ROW]}) == [ROW]

    messages.source.notify(None)
    assert answer(messages.fetch_if_any(1), {"take": [ROW]}) == [ROW], "a notification is no poll"
