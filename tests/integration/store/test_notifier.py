"""Notifications that wait for the control connection."""

from __future__ import annotations

import math

import pytest

from jmsql import JMSException
from jmsql.store.control.announcing import Announcing
from jmsql.store.control.handlers import QueueHandlers
from jmsql.store.control.notifier import Notifier
from jmsql.store.rows.message_rows import MessageKey
from jmsql.testing import FAST_TIMINGS, wait_for
from tests.integration.store.conftest import OpenClient


def test_they_outlast_a_connection_that_is_lost(open_client: OpenClient) -> None:
    announcing = Announcing(QueueHandlers(on_first=lambda: None), lambda: None, FAST_TIMINGS)
    notifier = Notifier(announcing, lambda: None, FAST_TIMINGS)
    notifier.returned([MessageKey(1, 5, 7)])
    lost, other = open_client(), open_client()
    other.connection.execute("select pg_terminate_backend(%s, 10000)", [lost.connection.info.backend_pid])
    with pytest.raises(JMSException):
        notifier.run(lost.runner)
    heard: list[str] = []
    other.connection.add_notify_handler(lambda received: heard.append(received.payload))
    other.connection.execute("listen jmsql")
    notifier.end(other.runner)
    other.connection.execute("select 1")
    assert len(heard) == 1


def test_a_burst_of_sends_wakes_the_control_thread_once(open_client: OpenClient) -> None:
    wakes: list[None] = []
    announcing = Announcing(QueueHandlers(on_first=lambda: None), lambda: None, FAST_TIMINGS)
    notifier = Notifier(announcing, lambda: wakes.append(None), FAST_TIMINGS)
    client = open_client()

    def look() -> None:
        """Do as the control thread does once the next notification is due."""
        wait_for(lambda: notifier.seconds_to_next() <= 0)
        notifier.run(client.runner)

    for _ in range(3):
        notifier.sent([1])
        notifier.sent([1])
        look()
    assert len(wakes) == 1
    look()
    assert notifier.seconds_to_next() == math.inf  # nothing is collected: the thread sleeps again
    notifier.sent([1])
    assert len(wakes) == 2
