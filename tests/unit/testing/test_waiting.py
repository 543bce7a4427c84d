from __future__ import annotations

from collections import deque

import pytest

from jmsql.testing import receive_all, wait_for


def test_wait_for_returns_the_conditions_value() -> None:
    answers = deque([0, 0, 3])
    assert wait_for(answers.popleft) == 3


def test_wait_for_fails_with_the_last_value() -> None:
    with pytest.raises(AssertionError, match=r"Not fulfilled within 0\.01 s; the last value was \[\]\."):
        wait_for(list, timeout=0.01)


def test_wait_for_asks_at_least_once() -> None:
    assert wait_for(lambda: "yes", timeout=0) == "yes"


class Mailbox:
    def __init__(self, *messages: str) -> None:
        self.messages = deque(messages)
        self.timeouts: list[float | None] = []

    def receive(self, timeout: float | None = None) -> str | None:
        self.timeouts.append(timeout)
        return self.messages.popleft() if self.messages else None


def test_drain_receives_until_nothing_comes() -> None:
    mailbox = Mailbox("first", "second")
    assert receive_all(mailbox) == ["first", "second"]
    assert mailbox.timeouts == [0.0, 0.0, 0.0]


def test_drain_waits_for_each_message_as_long_as_told() -> None:
    mailbox = Mailbox("only")
    assert receive_all(mailbox, timeout=0.5) == ["only"]
    assert mailbox.timeouts == [0.5, 0.5]
