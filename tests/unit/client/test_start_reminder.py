"""What waits for messages of a connection that nobody has started says so once, after a while."""

from __future__ import annotations

import pytest

from jmsql.client.start_reminder import StartReminder

DELAY = 5.0


class Clock:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_it_warns_once_when_the_time_has_come(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    reminder = StartReminder(DELAY, clock)
    assert reminder.remind("a consumer") == DELAY
    clock.now += DELAY - 1
    assert reminder.remind("another") == 1
    assert caplog.messages == []
    clock.now += 1
    assert reminder.remind("a consumer") is None
    [message] = caplog.messages
    assert message.startswith("'a consumer' receives nothing: its connection was never started. Call start()")
    clock.now += 1000
    assert reminder.remind("another") is None
    assert len(caplog.messages) == 1


def test_it_does_not_warn_once_the_connection_was_started(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    reminder = StartReminder(DELAY, clock)
    reminder.remind("a consumer")
    reminder.settle()
    clock.now += 1000
    assert reminder.remind("a consumer") is None
    assert caplog.messages == []
