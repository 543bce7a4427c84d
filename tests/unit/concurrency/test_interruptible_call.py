"""Exceptions that one thread raises in a function of another: inside of its call, or not at all."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from jmsql.concurrency.interruptible_call import Interrupted, InterruptibleCall
from tests.forked import ForkedProcess

CALLS = 3000


class OverdueError(Exception):
    pass


@pytest.fixture
def switching() -> Iterator[None]:
    """Threads take turns at almost every instruction."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def spin(seconds: float) -> int:
    """Run Python code for a while."""
    count, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        count += 1
    return count


def interrupt_until(call: InterruptibleCall, is_over: Callable[[], bool]) -> bool:
    """Interrupt a call as soon as that is possible; return False if it was over before."""
    while not is_over():
        if call.interrupt(OverdueError):
            return True
        time.sleep(0)
    return False


def test_the_exception_is_raised_inside_of_the_function_and_its_cleanup_runs() -> None:
    call = InterruptibleCall()
    cleaned: list[int] = []

    def work() -> None:
        try:
            spin(60)
        finally:
            cleaned.append(spin(0.01))

    thread = threading.Thread(target=interrupt_until, args=(call, lambda: bool(cleaned)))
    thread.start()
    with pytest.raises(OverdueError) as caught:
        call.run(work)
    thread.join()
    assert cleaned[0] > 0
    assert "work" in [entry.name for entry in caught.traceback]


@pytest.mark.usefixtures("switching")
def test_no_exception_lands_outside_of_the_call() -> None:
    """Calls that end at the moment at which they are interrupted, one after the other in one thread."""
    chance = random.Random(7)
    current: list[InterruptibleCall] = []
    inside, returned = 0, 0
    strays: list[OverdueError] = []
    is_over = threading.Event()
    asked: list[bool] = []

    def interrupt_all() -> None:
        last = None
        while not is_over.is_set():
            call = current[-1] if current else None
            if call is not None and call is not last:
                spin(chance.uniform(0, 0.0004))
                asked.append(call.interrupt(OverdueError))
                last = call

    threads = [threading.Thread(target=interrupt_all) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(CALLS):
            call = InterruptibleCall()
            current[:] = [call]
            try:
                try:
                    call.run(spin, chance.uniform(0, 0.0004))
                    returned += 1
                except OverdueError:
                    inside += 1
                spin(0.00002)  # the commit, the next message
            except OverdueError as error:
                strays.append(error)
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert strays == []
    assert inside + returned == CALLS
    assert asked.count(True) >= inside > 0
    assert returned > 0


def test_a_call_is_interrupted_once_and_not_after_its_end() -> None:
    call = InterruptibleCall()
    assert not call.interrupt(OverdueError), "it has not begun"
    thread = threading.Thread(target=interrupt_until, args=(call, lambda: False))
    thread.start()
    caught = 0

    def work() -> None:
        nonlocal caught
        for _ in range(2):
            try:
                spin(60 if not caught else 0.05)
            except OverdueError:
                caught += 1
                call.interrupt(OverdueError)

    call.run(work)
    thread.join()
    assert caught == 1
    assert not call.interrupt(OverdueError)


def test_code_of_the_library_is_not_interrupted() -> None:
    """Lock-holding code of jmsql that the function calls: the exception waits until it returns to the function."""
    call = InterruptibleCall()
    namespace = {"__name__": "jmsql.client.of_a_test", "spin": spin}
    exec("def library():\n    for _ in range(20): spin(0.005)\n    return True", namespace)
    has_returned: list[bool] = []

    def work() -> None:
        has_returned.append(namespace["library"]())  # type: ignore[operator]
        spin(60)

    thread = threading.Thread(target=interrupt_until, args=(call, lambda: False))
    thread.start()
    with pytest.raises(OverdueError):
        call.run(work)
    thread.join()
    assert has_returned == [True]


def test_a_function_that_calls_the_library_in_a_loop_is_interrupted_at_such_a_call() -> None:
    call = InterruptibleCall()
    guard = Interrupted(call, OverdueError)
    guard.check("session")  # before the function runs

    def work() -> None:
        thread = threading.Thread(target=guard.check, args=("session",))
        thread.start()
        thread.join()
        with pytest.raises(OverdueError):
            guard.check("session")
        guard.check("session")  # in the cleanup
        assert not call.interrupt(OverdueError)

    call.run(work)
    guard.check("session")


def call_under_a_profiler_what_follows_an_interrupted_call() -> None:
    call = InterruptibleCall()

    def ends_by_itself() -> None:
        with pytest.raises(OverdueError):
            call.raise_here(OverdueError)

    call.run(ends_by_itself)
    sys.setprofile(lambda *_: None)
    spin(0)
    sys.setprofile(None)


def test_functions_still_begin_under_a_profiler_after_an_exception_was_taken_back() -> None:
    """In Python 3.11 none did while the interpreter was told of an exception that is not there."""
    process = ForkedProcess(call_under_a_profiler_what_follows_an_interrupted_call)
    try:
        assert process.wait(60) == 0
    finally:
        process.kill()
