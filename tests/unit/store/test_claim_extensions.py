"""Claims that are extended, and the sessions that wait until that has ended."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from jmsql.exceptions import JMSException
from jmsql.store.control.claim_extensions import ClaimExtensions
from jmsql.store.receiving.redelivery import ExtendedClaim
from jmsql.store.rows.message_rows import MessageKey
from jmsql.values.clock import monotonic


class Server:
    """Extends claims for as long as a test says, and then perhaps fails."""

    def __init__(self, extensions: ClaimExtensions, *, fails: bool) -> None:
        self.extensions = extensions
        self.fails = fails
        self.ended = threading.Event()
        self.seen: list[bool] = []

    def run(self, query: Any) -> None:
        self.extensions.call_after(self.ended.set)
        self.seen.append(self.ended.is_set())
        if self.fails:
            raise JMSException("The server is gone.")


@pytest.mark.parametrize("fails", [False, True])
def test_a_session_is_told_when_an_extension_has_ended(fails: bool) -> None:
    extensions = ClaimExtensions()
    extensions.add(object(), [ExtendedClaim(MessageKey(1, 5, 1), 7, 0.0, 0.0)])
    server = Server(extensions, fails=fails)
    if fails:
        with pytest.raises(JMSException):
            extensions.run(server)  # type: ignore[arg-type]
    else:
        extensions.run(server)  # type: ignore[arg-type]
    assert server.seen == [False]
    assert server.ended.is_set()
    assert not extensions.is_running


def test_a_session_is_told_at_once_if_nothing_is_extended() -> None:
    ended = threading.Event()
    ClaimExtensions().call_after(ended.set)
    assert ended.is_set()


def test_what_was_just_extended_is_not_due_again_for_the_next_holder() -> None:
    extensions = ClaimExtensions()
    claims = [ExtendedClaim(MessageKey(1, 5, 1), 7, 60.0, monotonic() - 50)]
    for due_in in (0.0, 20.0):
        holder = object()
        extensions.add(holder, claims)
        assert extensions.seconds_to_next() == pytest.approx(due_in, abs=5)
        extensions.run(Server(extensions, fails=False))  # type: ignore[arg-type]
        extensions.remove(holder)
    extensions.add(object(), [ExtendedClaim(MessageKey(1, 5, 2), 7, 60.0, monotonic())])
    assert extensions.seconds_to_next() == pytest.approx(20.0, abs=5)
