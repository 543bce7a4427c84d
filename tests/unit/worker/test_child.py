"""The main thread of a worker's process waits while nothing happens."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable

import pytest

from jmsql.worker.child import Child
from jmsql.worker.settings import Settings
from tests.descriptors import large_socketpair

CreatePair = Callable[[], tuple[socket.socket, socket.socket]]


@pytest.mark.parametrize("create_pair", [socket.socketpair, large_socketpair])
@pytest.mark.parametrize("most", [None, 100])
def test_the_signals_of_a_process_are_silent_until_something_happens(most: int | None, create_pair: CreatePair) -> None:
    """It would not wait for them else, and take turns with its handlers all the time."""
    (channel, supervisor), (stop_signal, system) = create_pair(), create_pair()
    with channel, supervisor, stop_signal, system:
        child = Child("worker 1", channel, stop_signal, Settings(application="shop:app", max_messages=most))
        with child._limit_signal, child._limit_reached:
            assert select.select([child._limit_signal], [], [], 0) == ([], [], [])
            assert not child._is_told_to_stop()
            system.send(b"\0")
            assert child._is_told_to_stop()
