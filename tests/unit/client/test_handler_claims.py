"""The messages that the handlers of a listener share."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from jmsql import JMSException, Queue, RedeliveryPolicy
from jmsql.client._async.session.transactions.handler import HandlerClaims as TaskHandlerClaims
from jmsql.client._sync.session.transactions.handler import HandlerClaims
from jmsql.client.receiving.fetching import PrefetchBuffer, QueueSource
from jmsql.client.receiving.notified import QueueChanges
from jmsql.store.control.server import ServerClock
from jmsql.store.receiving.receive import dequeue
from jmsql.store.receiving.redelivery import Rules
from jmsql.store.rows.message_rows import ClaimedRow
from jmsql.timings import InternalTimings
from tests.background import Background

PATIENCE = 10.0


def row(sequence: int, delivery_count: int | None) -> ClaimedRow:
    values = {"inverse_priority": 5, "sequence": sequence, "delivery_count": delivery_count, "handle": sequence}
    return ClaimedRow._make((dict.fromkeys(ClaimedRow._fields) | values).values())


def buffer_of_two(timings: InternalTimings) -> PrefetchBuffer:
    """Return the buffer of a message that was delivered before, and of one that was not."""
    source = QueueSource(1, None, dequeue, Queue("orders"), None, timings.sweep_interval, QueueChanges())
    buffer = PrefetchBuffer(source, None, ServerClock(timings), timings)
    buffer.keep([row(1, 1), row(2, None)], are_recorded=False)
    return buffer


def client_with(redelivery: object, timings: InternalTimings) -> Any:
    control = SimpleNamespace(is_certain=True, cancellations=SimpleNamespace(heard=()))
    return SimpleNamespace(control=control, redelivery=redelivery, returned=lambda keys: None, timings=timings)


class FailsOnce:
    """Redelivery whose first question, if a message is exhausted, fails when it may."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.may_fail = threading.Event()

    def rules(self, buffer: PrefetchBuffer) -> Rules:
        return Rules(RedeliveryPolicy(), 0, 0)

    def free_until(self, buffer: PrefetchBuffer) -> float:
        return 0.0

    def is_exhausted(self, *arguments: object) -> bool:
        if self.asked.is_set():
            return False
        self.asked.set()
        assert self.may_fail.wait(PATIENCE)
        raise JMSException("the connection was lost")


class FailsOnceForTasks:
    """The same, for tasks."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.may_fail = asyncio.Event()

    async def rules(self, buffer: PrefetchBuffer) -> Rules:
        return Rules(RedeliveryPolicy(), 0, 0)

    def free_until(self, buffer: PrefetchBuffer) -> float:
        return 0.0

    async def is_exhausted(self, *arguments: object) -> bool:
        if self.asked.is_set():
            return False
        self.asked.set()
        await self.may_fail.wait()
        raise JMSException("the connection was lost")


def test_a_message_that_is_put_back_comes_before_later_ones_with_threads() -> None:
    timings = InternalTimings()
    redelivery = FailsOnce()
    claims = HandlerClaims(client_with(redelivery, timings), buffer_of_two(timings))
    database: Any = None
    first = Background(lambda: claims.next_on(database))
    assert redelivery.asked.wait(PATIENCE)
    meanwhile = Background(claims.take)
    meanwhile.wait_until_it_waits()
    redelivery.may_fail.set()
    with pytest.raises(JMSException, match="was lost"):
        first.result()
    assert meanwhile.result() is None, "the first message needs a statement"
    delivered = [claims.next_on(database), claims.take()]
    assert [each and each.sequence for each in delivered] == [1, 2]


def test_a_message_that_is_put_back_comes_before_later_ones_with_tasks() -> None:
    async def deliver() -> list[int | None]:
        timings = InternalTimings()
        redelivery = FailsOnceForTasks()
        claims = TaskHandlerClaims(client_with(redelivery, timings), buffer_of_two(timings))
        database: Any = None
        first = asyncio.create_task(claims.next_on(database))
        await asyncio.wait_for(redelivery.asked.wait(), PATIENCE)
        delivered = [claims.take()]
        redelivery.may_fail.set()
        with pytest.raises(JMSException, match="was lost"):
            await first
        delivered += [await claims.next_on(database), claims.take()]
        return [each and each.sequence for each in delivered]

    assert asyncio.run(deliver()) == [None, 1, 2]
