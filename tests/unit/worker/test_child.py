"""The main thread of a worker's process waits while nothing happens."""

from __future__ import annotations

import select
import socket

import pytest

from jmsql.worker.child import Child
from jmsql.worker.settings import Settings


@pytest.mark.parametrize("most", [None, 100])
def test_the_signals_of_a_process_are_silent_until_something_happens(most: int | None) -> None:
    """It would not wait for them else, and take turns with its handlers all the time."""
    (channel, supervisor), (stop_signal, system) = socket.socketpair(), socket.socketpair()
    with channel, supervisor, stop_signal, system:
        child = Child("worker 1", channel, stop_signal, Settings(application="shop:app", max_messages=most))
        with child._limit_signal, child._limit_reached:
            assert select.select([child._limit_signal], [], [], 0) == ([], [], [])
