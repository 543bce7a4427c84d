"""One Connection for many threads, each with sessions of its own (JMS 1.1 chapter 2.8)."""

from __future__ import annotations

import random
import threading

import pytest

from jmsql import AcknowledgeMode, Connection, IllegalStateException, Queue
from jmsql.testing import wait_for
from tests.background import Background
from tests.integration.client.server import CONTROL, SESSIONS, Server
from tests.texts import receive_texts, send_texts, texts_of

THREADS = 6
ROUNDS = 5


def test_threads_make_use_and_close_sessions_at_once(connection: Connection, server: Server) -> None:
    all_there = threading.Barrier(THREADS)

    def work(number: int) -> int:
        modes = random.Random(number)
        all_there.wait(60)
        for round_number in range(ROUNDS):
            mode = modes.choice(list(AcknowledgeMode))
            # The same names at once: the first client makes the queue.
            queue = Queue(f"round {round_number}")
            with connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode) as session:
                own = Queue(f"{number} {round_number}")
                session.create_producer(queue).send(session.create_message())
                send_texts(session, own, "a", "b")
                consumer = session.create_consumer(own)
                assert receive_texts(consumer, 2) == ["a", "b"]
                assert texts_of(session.create_browser(own)) == []
                if session.transacted:
                    session.commit()
                else:
                    session.recover()
        return number

    working = [Background(lambda number=number: work(number)) for number in range(THREADS)]  # type: ignore[misc]
    assert [each.result() for each in working] == list(range(THREADS))
    counts = server.rows("select queue, ready from jmsql.queues where queue like 'round %%' order by queue")
    assert counts == [(f"round {number}", THREADS) for number in range(ROUNDS)]


def test_starting_and_stopping_at_once_loses_nothing(connection: Connection, queue: Queue) -> None:
    texts = [str(number) for number in range(100)]
    heard: list[str] = []
    listening = connection.create_session()
    listening.create_consumer(queue).message_listener = lambda message: heard.append(str(message.get_body(str)))

    def start_and_stop() -> None:
        for _ in range(20):
            connection.stop()
            connection.start()

    switching = [Background(start_and_stop) for _ in range(3)]
    send_texts(connection.create_session(), queue, *texts)
    for each in switching:
        each.result()
    connection.start()
    wait_for(lambda: len(heard) >= len(texts))
    assert heard == texts


def test_connection_closes_once_for_many_threads(connection: Connection, queue: Queue) -> None:
    sessions = [connection.create_session(transacted=True) for _ in range(3)]
    for session in sessions:
        send_texts(session, queue, "a")
        receive_texts(session.create_consumer(queue), 1)
    waiting = [
        Background(lambda: connection.create_session().create_consumer(Queue("empty")).receive(timeout=30))
        for _ in range(3)
    ]
    for receiving in waiting:
        receiving.wait_until_it_waits()
    for closing in [Background(connection.close) for _ in range(4)]:
        closing.result()
    assert [receiving.result() for receiving in waiting] == [None] * 3


def test_session_that_is_being_made_while_the_connection_closes_is_not_left_open(
    connection: Connection, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The thread that ends with the connection counts them under the lock that is held here.
    owner = connection._control._owner
    assert owner is not None
    monkeypatch.setattr(owner.reporting, "_consumers", dict)
    with connection._sessions._lock:
        making = Background(connection.create_session)
        making.wait_until_it_waits()
        connection.close()
    with pytest.raises(IllegalStateException, match="closed"):
        making.result()
    wait_for(lambda: server.connections(CONTROL) + server.connections(SESSIONS) == 0)


@pytest.mark.parametrize("mode", list(AcknowledgeMode))
def test_session_may_be_closed_from_another_thread(connection: Connection, queue: Queue, mode: AcknowledgeMode) -> None:
    session = connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode)
    consumer = session.create_consumer(queue)
    send_texts(session, queue, "a", "b")
    received: list[str] = []
    receiving = Background(lambda: received.extend(text for message in consumer for text in texts_of([message])))
    wait_for(lambda: received == ["a", "b"])
    receiving.wait_until_it_waits()
    Background(session.close).result()
    receiving.result()
    assert received == ["a", "b"]
