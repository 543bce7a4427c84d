"""A client's clock that is wrong, and messages that go by the server's."""

from __future__ import annotations

import time
from types import SimpleNamespace

import psycopg
import pytest

import jmsql

HOUR = 3600.0
WRONG = pytest.mark.parametrize("wrong_by", [-HOUR, HOUR], ids=["slow", "fast"])
"""By how many seconds a client's clock is wrong."""

TIME_TO_LIVE = 60.0
DELIVERY_DELAY = 20.0
_TOLERANCE = HOUR * 1000 / 2
"""Milliseconds by which a time may differ from the test's: less than a wrong clock, and more than a test takes."""

_SENT = """
    select jms_timestamp, jms_expiration, null from jmsql_internal.message
    union all select jms_timestamp, jms_expiration, jms_delivery_time from jmsql_internal.delayed_message
    """


def set_clock(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let the clock of this process be wrong by so many seconds, for all that jmsql stores with messages."""

    def wrong_time() -> int:
        return time.time_ns() + round(seconds * 1e9)

    clock = SimpleNamespace(time_ns=wrong_time)
    monkeypatch.setattr("jmsql.store.control.server.time", clock)


def require_servers_time(url: str, *messages: jmsql.Message, count: int = 2) -> None:
    """Make sure that all messages of the store were sent just now by the server's clock.

    Args:
        url: The database.
        messages: As their senders have them; some were sent with `DELIVERY_DELAY`.
        count: How many messages there are; all have a `TIME_TO_LIVE`.
    """
    now = time.time() * 1000  # the server runs beside the tests
    with psycopg.connect(url) as connection:
        stored = connection.execute(_SENT).fetchall()
    assert len(stored) == count
    for timestamp, expiration, delivery_time in stored:
        assert abs(timestamp - now) < _TOLERANCE
        assert expiration == timestamp + TIME_TO_LIVE * 1000
        assert delivery_time in (None, timestamp + DELIVERY_DELAY * 1000)
    for message in messages:
        assert abs(message.jms_timestamp - now) < _TOLERANCE
        assert message.jms_expiration == message.jms_timestamp + TIME_TO_LIVE * 1000
        assert message.jms_delivery_time - message.jms_timestamp in (0, DELIVERY_DELAY * 1000)
