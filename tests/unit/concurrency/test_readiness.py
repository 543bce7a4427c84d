"""Waits for sockets."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator

import pytest

from jmsql.concurrency.readiness import wait_until_ready
from tests.descriptors import large_socketpair

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture(params=["poll", "large descriptors", "select"])
def pair(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    if request.param == "select":
        monkeypatch.delattr(select, "poll")
    create: Callable[[], Pair] = large_socketpair if request.param == "large descriptors" else socket.socketpair
    one, other = create()
    with one, other:
        yield one, other


def test_a_source_can_be_read_once_its_other_end_has_written(pair: Pair) -> None:
    one, other = pair
    assert wait_until_ready([one, other.fileno()], 0) == []
    assert wait_until_ready([one], 0.001) == []
    one.send(b"a")
    assert wait_until_ready([one, other.fileno()], None) == [other.fileno()]


def test_a_source_whose_other_end_is_closed_can_be_read(pair: Pair) -> None:
    one, other = pair
    other.close()
    assert wait_until_ready([one], None) == [one]
    assert wait_until_ready([one], None, writable=[one]) == [one]


def test_a_wait_ends_when_a_source_can_be_written(pair: Pair) -> None:
    one, other = pair
    assert wait_until_ready([one, other], None, writable=[one]) == []
