"""Claims that are extended, and the sessions that wait until that has ended."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from jmsql.exceptions import JMSException
from jmsql.store.control.claim_extensions import ClaimExtensions
from jmsql.store.receiving.redelivery import ExtendedClaim
from jmsql.store.rows.message_rows import MessageKey


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
    extensions.add(object(), [ExtendedClaim(MessageKey(1, 5, 1), 7, 0.0)])
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
