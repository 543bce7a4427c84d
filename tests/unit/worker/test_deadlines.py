"""The deadline of a handler's call."""

from __future__ import annotations

import pytest

from jmsql.worker.handlers import deadline as deadlines
from jmsql.worker.handlers.deadline import Deadline


class Clock:
    """A monotonic clock that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(deadlines, "monotonic", clock)
    return clock


def test_a_handler_that_keeps_itself_alive_has_its_time_once_more_and_ends_with_it(clock: Clock) -> None:
    deadline = Deadline(10.0)
    clock.now += 9.0
    deadline.restart()
    clock.now += 9.0
    assert not deadline.expire()  # by a watch that has seen the former deadline
    deadline.restart()
    clock.now += 11.0
    with pytest.raises(TimeoutError, match="longer than its timeout of 10 s"):
        deadline.restart()
    assert deadline.expire()
    with pytest.raises(TimeoutError):
        deadline.restart()
