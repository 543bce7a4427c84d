"""What a task finishes although it is cancelled, and when the cancellation takes effect."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import anyio
import pytest

from jmsql.concurrency import tasks
from jmsql.concurrency.tasks import cancellation, interruptible, run_to_completion, shielded


@pytest.fixture(autouse=True)
def _grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancellation, "_GRACE", 0.01)


def current() -> asyncio.Task[object]:
    task = asyncio.current_task()
    assert task is not None
    return task


def cancel_soon() -> None:
    """Cancel the caller where it waits next."""
    asyncio.get_running_loop().call_soon(current().cancel)


class Steps:
    """Waits several times in several ways, and is cancelled in one of them."""

    def __init__(self, cancelled_in: int) -> None:
        self.cancelled_in = cancelled_in
        self.taken: list[int] = []

    async def _wait(self, number: int) -> None:
        ways: list[Callable[[], Awaitable[object]]] = [
            lambda: asyncio.sleep(0),
            lambda: asyncio.sleep(0.002),
            lambda: asyncio.get_running_loop().run_in_executor(None, lambda: None),
            lambda: asyncio.gather(asyncio.sleep(0), asyncio.sleep(0.001)),
            lambda: run_to_completion(asyncio.sleep(0.001)),
        ]
        await ways[number]()

    async def run(self) -> list[int]:
        for number in range(5):
            if number == self.cancelled_in:
                cancel_soon()
            await self._wait(number)
            self.taken.append(number)
        return self.taken


@pytest.mark.parametrize("number", range(5))
async def test_a_cancellation_anywhere_takes_effect_behind_the_operation(number: int) -> None:
    steps = Steps(number)

    async def operate() -> None:
        assert await run_to_completion(steps.run()) == list(range(5))
        await asyncio.sleep(10)

    task = asyncio.create_task(operate())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps.taken == list(range(5))


async def test_a_limited_wait_for_a_lock_ends_in_time_and_cancels_nothing() -> None:
    lock, held = tasks.RLock(), tasks.RLock()
    may_end = asyncio.Event()

    async def hold() -> None:
        async with held:
            await may_end.wait()

    holder = asyncio.create_task(hold())
    await asyncio.sleep(0)
    takes = [await run_to_completion(tasks.taken_within(each, 0.001)) for each in (held, lock, held)]
    assert takes == [False, True, False]
    assert current().cancelling() == 0
    may_end.set()
    await holder
    assert await run_to_completion(tasks.taken_within(held, 10))
    await asyncio.sleep(0)  # where a noted cancellation would take effect


async def test_a_lock_that_comes_in_time_is_taken_by_the_one_that_waits() -> None:
    lock = tasks.RLock()
    order: list[str] = []

    async def work(name: str, seconds: float | None) -> None:
        if await lock.__aenter__(seconds):
            order.append(name)
            await asyncio.sleep(0)
            await lock.__aexit__(None, None, None)

    async with asyncio.TaskGroup() as group:
        await lock.__aenter__()
        for name, seconds in (("a", 10), ("b", None), ("c", 10)):
            group.create_task(work(name, seconds))
        await asyncio.sleep(0)
        await lock.__aexit__(None, None, None)
    assert order == ["a", "b", "c"]
    assert lock.is_free


async def test_a_lock_inside_is_waited_for() -> None:
    lock = tasks.RLock()
    holds, may_end = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with lock:
            holds.set()
            await may_end.wait()

    async def work() -> str:
        async with lock:
            return "done"

    holder = asyncio.create_task(hold())
    await holds.wait()
    task = asyncio.create_task(run_to_completion(work()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    may_end.set()
    assert await task == "done"
    await holder


async def test_an_operation_after_a_late_cancellation_does_not_begin() -> None:
    begun = 0

    async def work() -> None:
        nonlocal begun
        begun += 1
        cancel_soon()
        await asyncio.sleep(0)

    async def operate() -> None:
        await run_to_completion(work())
        await run_to_completion(work())  # never waits in between

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(operate())
    assert begun == 1


async def test_a_block_is_cancelled_as_a_whole_or_not_at_all() -> None:
    done: list[str] = []

    async def work(name: str) -> None:
        if name == "first":
            cancel_soon()
        await asyncio.sleep(0)
        done.append(name)

    async def operate() -> None:
        with shielded():
            await run_to_completion(work("first"))
            await run_to_completion(work("second"))
        await asyncio.sleep(10)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(operate())
    assert done == ["first", "second"]


async def test_an_error_inside_is_raised_before_the_cancellation_takes_effect() -> None:
    async def fail() -> None:
        cancel_soon()
        await asyncio.sleep(0)
        raise ValueError

    async def operate() -> None:
        with pytest.raises(ValueError):
            await run_to_completion(fail())
        await asyncio.sleep(10)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(operate())


async def test_a_time_out_that_ended_in_time_takes_its_cancellation_back() -> None:
    async with asyncio.timeout(0.005) as time_out:
        await run_to_completion(asyncio.sleep(0.02))
    assert time_out.expired()
    assert not current().cancelling()
    await asyncio.sleep(0.001)
    await run_to_completion(asyncio.sleep(0))


async def test_a_cancel_scope_of_anyio_ends_behind_the_operation() -> None:
    waited = 0
    with anyio.move_on_after(0.005) as scope:
        await run_to_completion(asyncio.sleep(0.02))
        waited += 1
        await run_to_completion(asyncio.sleep(0))
        await asyncio.sleep(10)
    assert scope.cancelled_caught
    assert waited == 1


class Exchange:
    """A conversation that the server may interrupt."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.is_running = True
        self.requests = 0
        self.given_up = False
        self.heeds = True
        self.answers_request = 0
        self.error: Exception | None = None

    @property
    def can_be_interrupted(self) -> bool:
        return self.is_running

    async def interrupt(self) -> None:
        self.requests += 1
        if self.heeds and not self.answer.done():
            self.answer.set_exception(InterruptedError())
        elif self.requests == self.answers_request:
            self.answer.set_result("done")
        if self.error is not None:
            raise self.error

    def was_interrupted(self, error: BaseException) -> bool:
        return isinstance(error, InterruptedError)

    def end_connection(self) -> None:
        self.given_up = True

    async def converse(self) -> str:
        return await self.answer


async def test_the_server_is_asked_to_interrupt_a_long_statement() -> None:
    exchange = Exchange()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.005):
            await interruptible(exchange.converse(), exchange)
    assert exchange.requests == 1
    assert not exchange.given_up


async def test_a_statement_answered_within_the_grace_has_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancellation, "_GRACE", 10)
    exchange = Exchange()

    async def operate() -> str:
        cancel_soon()
        asyncio.get_running_loop().call_later(0.01, exchange.answer.set_result, "done")
        return await interruptible(exchange.converse(), exchange)

    assert await asyncio.create_task(operate()) == "done"
    assert exchange.requests == 0


async def test_a_request_that_comes_too_late_changes_nothing() -> None:
    exchange = Exchange()
    exchange.heeds = False
    exchange.answers_request = 2  # the server ignores one that comes between two statements

    async def operate() -> str:
        cancel_soon()
        return await interruptible(exchange.converse(), exchange)

    assert await asyncio.create_task(operate()) == "done"
    assert exchange.requests == 2
    assert not exchange.given_up


async def test_a_connection_on_which_a_request_may_still_come_is_given_up() -> None:
    exchange = Exchange()
    exchange.error = OSError("the network is down")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.005):
            await interruptible(exchange.converse(), exchange)
    assert exchange.given_up


async def test_the_cleanup_after_an_interruption_is_not_interrupted() -> None:
    exchange, second = Exchange(), Exchange()
    asyncio.get_running_loop().call_later(0.05, second.answer.set_result, "rolled back")
    tidied: list[str] = []

    async def work() -> None:
        try:
            await interruptible(exchange.converse(), exchange)
        except asyncio.CancelledError:
            tidied.append(await interruptible(second.converse(), second))
            raise

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.005):
            await run_to_completion(work())
    assert (tidied, second.requests) == (["rolled back"], 0)


async def test_a_later_exchange_of_a_cancelled_operation_is_interrupted_as_well() -> None:
    first, second = Exchange(), Exchange()

    async def work() -> None:
        cancel_soon()
        asyncio.get_running_loop().call_soon(first.answer.set_result, "done")
        await interruptible(first.converse(), first)
        await interruptible(second.converse(), second)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(run_to_completion(work()))
    assert (first.requests, second.requests) == (0, 1)


async def test_a_driver_that_limits_its_own_time_is_awaited_apart() -> None:
    async def drive() -> str:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.001):
                await asyncio.sleep(10)
        return "done"

    async def operate() -> str:
        return await tasks.in_own_task(drive())

    assert await run_to_completion(operate()) == "done"
    assert not current().cancelling()


async def test_a_cancelled_caller_gets_the_lock_again_after_its_detached_work() -> None:
    lock, opened, begun, left = tasks.RLock(), asyncio.Event(), asyncio.Event(), asyncio.Event()
    happened: list[str] = []

    async def close() -> None:
        async with lock:
            happened.append("begins to close")
            begun.set()
            await opened.wait()
            happened.append("is closed")

    async def work() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await tasks.run_detached(close())
        happened.append("goes on")
        left.set()
        async with lock:
            happened.append("has the lock")

    working = asyncio.create_task(work())
    await begun.wait()
    working.cancel()
    await left.wait()
    for _ in range(3):
        await asyncio.sleep(0)
    opened.set()
    await working
    assert happened == ["begins to close", "goes on", "is closed", "has the lock"]


async def test_detached_work_takes_a_lock_that_its_caller_holds() -> None:
    lock, opened, begun = tasks.RLock(), asyncio.Event(), asyncio.Event()
    happened: list[str] = []

    async def close() -> None:
        async with lock:
            begun.set()
            await opened.wait()
            happened.append("is closed")

    async def listen() -> None:
        async with lock:
            with contextlib.suppress(asyncio.CancelledError):
                await tasks.run_detached(close())
            asyncio.get_running_loop().call_soon(opened.set)
            async with lock:
                happened.append("has the lock")

    listening = asyncio.create_task(listen())
    await begun.wait()
    listening.cancel()
    await listening
    assert happened == ["is closed", "has the lock"]
    assert lock.is_free
