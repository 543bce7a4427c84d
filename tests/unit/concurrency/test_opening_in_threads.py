"""A caller that is cancelled leaves nothing open, also where its event loop ends with it."""

from __future__ import annotations

import asyncio
import threading

from jmsql.concurrency.tasks import opened_in_thread


class Opening:
    """Opens something in a thread, once it may; the event loop is told when the thread has begun and ended."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.may_open = threading.Event()
        self.has_opened = threading.Event()
        self.closed: list[str] = []
        self.has_closed = threading.Event()

    def open(self) -> str:
        self.has_begun.set()
        assert self.may_open.wait(60)
        self.has_opened.set()
        return "opened"

    def close(self, opened: str) -> None:
        self.closed.append(opened)
        self.has_closed.set()


def test_a_loop_that_ends_while_a_thread_opens_something_leaves_nothing_open_and_logs_nothing() -> None:
    opening = Opening()
    complaints: list[dict[str, object]] = []

    async def give_up() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
        task = asyncio.create_task(opened_in_thread(opening.close, opening.open))
        await asyncio.to_thread(opening.has_begun.wait, 60)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        opening.may_open.set()

    asyncio.run(give_up())
    assert opening.closed == ["opened"]
    assert complaints == []


def test_an_object_opened_for_a_cancelled_caller_is_closed() -> None:
    opening = Opening()

    async def give_up() -> None:
        task = asyncio.create_task(opened_in_thread(opening.close, opening.open))
        await asyncio.to_thread(opening.has_begun.wait, 60)
        opening.may_open.set()
        assert opening.has_opened.wait(60)  # the event loop, which this blocks, has not heard of it
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(give_up())
    assert opening.has_closed.wait(60)
    assert opening.closed == ["opened"]
