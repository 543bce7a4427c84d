"""Conversations under asyncio, whose sockets one epoll object of the event loop watches, or the loop itself."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import weakref
from collections.abc import Generator, Iterator

import psycopg
import pytest
from psycopg.waiting import Ready, Wait

from jmsql.concurrency.tasks.cancellation import run_to_completion
from jmsql.store.wire import waiting
from jmsql.store.wire.waiting import wait_for_server, wait_in_task

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture(params=[True, False], ids=["epoll", "event loop"], autouse=True)
def watcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Watch sockets in each of the two ways."""
    monkeypatch.setattr(waiting, "HAS_EPOLL", waiting.HAS_EPOLL and request.param)


@pytest.fixture
def ends() -> Iterator[Ends]:
    """The two ends of a connection: the client's and the server's."""
    client, server = socket.socketpair()
    with client, server:
        client.setblocking(False)
        yield client, server


def pieces(client: socket.socket, count: int) -> Generator[Wait, Ready, bytes]:
    """Read so many bytes, one after the other."""
    read = b""
    while len(read) < count:
        if (yield Wait.R) == Ready.R:
            read += client.recv(1)
    return read


async def refuse(_: object) -> bytes:
    """Stand for psycopg's own wait, which has nothing to do."""
    raise AssertionError


@pytest.mark.parametrize("is_driven", [True, False])
async def test_a_conversation_goes_on_with_each_piece(ends: Ends, is_driven: bool) -> None:
    client, server = ends
    for _ in range(2):
        asyncio.get_running_loop().call_later(0.01, server.send, b"ab")
        asyncio.get_running_loop().call_later(0.05, server.send, b"c")
        work = pieces(client, 3)
        number = client.fileno()
        read = await (
            run_to_completion(wait_for_server(work, number)) if is_driven else wait_in_task(work, number, refuse)
        )
        assert read == b"abc"


async def test_a_number_that_is_used_again_belongs_to_the_new_socket() -> None:
    numbers = set()
    for text in (b"1", b"2"):
        client, server = socket.socketpair()
        client.setblocking(False)
        numbers.add(client.fileno())
        server.send(text)
        assert await wait_in_task(pieces(client, 1), client.fileno(), refuse) == text
        client.close()
        server.close()
    assert len(numbers) == 1


async def test_an_event_of_another_socket_with_the_number_does_no_harm(ends: Ends) -> None:
    client, server = ends
    stale, stale_server = socket.socketpair()
    abandoned = asyncio.create_task(wait_in_task(pieces(stale, 1), stale.fileno(), refuse))
    await asyncio.sleep(0)
    abandoned.cancel()
    await asyncio.wait([abandoned])
    copy = os.dup(stale.fileno())  # as in a forked process, which keeps the connection open
    number = stale.fileno()
    stale.close()
    os.dup2(client.fileno(), number)
    try:
        asyncio.get_running_loop().call_later(0.01, stale_server.send, b"!")
        asyncio.get_running_loop().call_later(0.05, server.send, b"x")

        def work() -> Generator[Wait, Ready, bytes]:
            while True:
                ready = yield Wait.R
                try:
                    return os.read(number, 1) if ready == Ready.R else b""
                except BlockingIOError:
                    continue

        assert await wait_in_task(work(), number, refuse) == b"x"
    finally:
        os.close(number)
        os.close(copy)
        stale_server.close()


async def test_a_waiting_conversation_is_checked_now_and_then(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_INTERVAL", 0.01)

    def work() -> Generator[Wait, Ready, Ready]:
        return (yield Wait.R)

    for _ in range(2):
        assert await run_to_completion(wait_for_server(work(), ends[0].fileno())) == Ready.NONE


async def test_a_closed_socket_is_an_operational_error(ends: Ends) -> None:
    number = ends[0].fileno()
    ends[0].close()
    with pytest.raises(psycopg.OperationalError, match="was closed"):
        await wait_in_task(pieces(ends[0], 1), number, refuse)
    with pytest.raises(psycopg.OperationalError, match="was closed"):
        await run_to_completion(wait_for_server(pieces(ends[0], 1), number))


def test_a_loop_that_ends_early_keeps_no_conversation(ends: Ends) -> None:
    class Kept:
        """Stands for a connection."""

    def work(_: object) -> Generator[Wait, Ready, None]:
        yield Wait.R

    loop = asyncio.new_event_loop()
    heard: list[str] = []
    loop.set_exception_handler(lambda _, context: heard.append(context["message"]))
    kept = Kept()
    task = loop.create_task(wait_in_task(work(kept), ends[0].fileno(), refuse))
    reference = weakref.ref(kept)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    del kept, task, loop
    gc.collect()
    assert reference() is None
    assert heard == ["Task was destroyed but it is pending!"]
