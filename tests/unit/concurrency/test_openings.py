"""Calls that open something, and what is done with them before they are awaited."""

from __future__ import annotations

import asyncio
from typing import Self

import pytest

from jmsql.concurrency.tasks.openings import async_resource


class Producer:
    """Stands for what is opened."""

    is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.is_closed = True


@async_resource
async def create_producer() -> Producer:
    await asyncio.sleep(0)
    return Producer()


async def test_it_is_awaited_entered_or_a_task() -> None:
    async with create_producer() as entered:
        open_inside = not entered.is_closed
    assert (open_inside, entered.is_closed) == (True, True)
    assert isinstance(await create_producer(), Producer)
    assert isinstance(await asyncio.create_task(create_producer()), Producer)


async def test_a_message_sent_by_one_that_was_not_awaited_says_so() -> None:
    producer = create_producer()
    with pytest.raises(TypeError, match=r"await session\.create_producer"):
        await producer.send("a message")
    producer.close()


async def test_an_attribute_of_one_that_was_not_awaited_says_so() -> None:
    consumer = create_producer()
    with pytest.raises(AttributeError, match="not awaited has no 'receive'"):
        await consumer.receive(timeout=1)  # type: ignore[attr-defined]
    assert not hasattr(consumer, "cr_code")
    consumer.close()
