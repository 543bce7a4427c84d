"""Many consumers of one queue, in threads and in processes: every message reaches one of them, and only one."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

import jmsql
from jmsql import AcknowledgeMode, Connection, Queue, Session
from jmsql.selectors import Selector
from jmsql.store.receiving.reader import ScanPosition
from jmsql.testing import receive_all
from tests.background import Background
from tests.gate import Gate, gate_closed
from tests.integration.client.client_process import STOP, Order, client_process
from tests.integration.client.server import Server
from tests.texts import receive, receive_texts, send_texts

MODES = pytest.mark.parametrize("mode", list(AcknowledgeMode))
CONSUMERS = 4


def put(others: Session, queue: Queue, count: int, consumers: int) -> list[str]:
    """Send numbered messages, and at the end one for each consumer that makes it stop; return the numbers."""
    numbers = [str(number) for number in range(count)]
    send_texts(others, queue, *numbers)
    send_texts(others, queue, *[STOP] * consumers, priority=0)
    return numbers


@MODES
def test_threads_share_a_queue(
    connection: Connection, others: Session, server: Server, queue: Queue, mode: AcknowledgeMode
) -> None:
    def consume() -> list[str]:
        texts = []
        with connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode) as session:
            with session.create_consumer(queue) as consumer:
                while (text := str((message := receive(consumer)).get_body(str))) != STOP:
                    texts.append(text)
                    if session.transacted and len(texts) % 3 == 0:
                        session.commit()
                    elif len(texts) % 3 == 0:
                        message.acknowledge()
            if session.transacted:
                session.commit()
            message.acknowledge()
        return texts

    consuming = [Background(consume) for _ in range(CONSUMERS)]
    numbers = put(others, queue, 200, CONSUMERS)
    received = Counter(text for each in consuming for text in each.result())
    assert received == Counter(numbers)
    assert server.rows("select count(*) from jmsql.messages") == [(0,)]


def test_transacted_consumers_of_one_client_share_their_place_in_a_queue(
    connection: Connection, others: Session, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[ScanPosition] = []
    ended: list[ScanPosition] = []
    passed, sent_nothing = ScanPosition.passed, ScanPosition.sent_nothing

    def record_scan(position: ScanPosition, *arguments: Any, **options: Any) -> None:
        moved.append(position)
        passed(position, *arguments, **options)

    def record_end(position: ScanPosition, transaction_id: int) -> None:
        ended.append(position)
        sent_nothing(position, transaction_id)

    monkeypatch.setattr(ScanPosition, "passed", record_scan)
    monkeypatch.setattr(ScanPosition, "sent_nothing", record_end)
    send_texts(others, queue, "1", "2", "3")
    with jmsql.batch(others, "whose end its last message's commit sends", on_end=queue) as batch:
        batch.send(queue, "last")
    with ExitStack() as stack:
        sessions = [stack.enter_context(connection.create_session(True)) for _ in range(4)]
        consumers = [session.create_consumer(queue) for session in sessions]
        assert [receive(consumer).get_body(str) for consumer in consumers] == ["1", "2", "3", "last"]
        for session, consumer in zip(sessions, consumers, strict=True):
            if consumer is consumers[0]:
                session.create_producer(queue).send(session.create_text_message("4"))
            session.commit()
        [position] = set(moved)
        assert ended == [position] * 3  # the first one has sent; the commit of the last one sends the callback
        assert receive(consumers[1]).get_body(str) == "4"
        callback = receive(consumers[1]).get_body(dict)
        assert callback is not None
        assert callback["done"] == 1


@pytest.mark.parametrize("mode", [AcknowledgeMode.TRANSACTED, AcknowledgeMode.CLIENT])
def test_threads_that_roll_back_lose_and_double_nothing(
    connection: Connection, others: Session, server: Server, queue: Queue, mode: AcknowledgeMode
) -> None:
    def consume() -> list[str]:
        kept: list[str] = []
        with connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode) as session:
            consumer = session.create_consumer(queue)
            while (text := str((message := receive(consumer)).get_body(str))) != STOP:
                if not message.jms_redelivered and int(text) % 3 == 0:
                    session.rollback() if session.transacted else session.recover()
                    continue
                kept.append(text)
                session.commit() if session.transacted else message.acknowledge()
            session.commit() if session.transacted else message.acknowledge()
        return kept

    consuming = [Background(consume) for _ in range(CONSUMERS)]
    numbers = put(others, queue, 60, CONSUMERS)
    received = Counter(text for each in consuming for text in each.result())
    left = [body for (body,) in server.rows("select body from jmsql.messages")]
    assert received + Counter(left) == Counter(numbers)


def test_processes_share_a_queue(jmsql_clean_url: str, others: Session, server: Server, queue: Queue) -> None:
    modes = [AcknowledgeMode.TRANSACTED, AcknowledgeMode.CLIENT]
    with ExitStack() as stack:
        clients = [stack.enter_context(client_process(jmsql_clean_url, Order(queue.name, mode.name))) for mode in modes]
        for client in clients:
            client.wait_until_ready()
        # Each output is read at once: a client whose output is full (278 lines) receives no more, also not its STOP.
        reading = [Background(client.texts_until_it_stops) for client in clients]
        numbers = put(others, queue, 300, len(clients))
        received = Counter(text for each in reading for text in each.result(60))
    assert received == Counter(numbers)
    assert server.rows("select count(*) from jmsql.messages") == [(0,)]


def test_a_transaction_keeps_no_lock_on_a_message_that_a_client_session_has_claimed_meanwhile(
    connection: Connection,
    others: Session,
    server: Server,
    queue: Queue,
    monkeypatch: pytest.MonkeyPatch,
    jmsql_clean_url: str,
) -> None:
    monkeypatch.setattr(Selector, "parse", lambda text: None if text is None else Gate())
    transacted = connection.create_session(transacted=True)
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    late, early = transacted.create_consumer(queue, "held up"), session.create_consumer(queue)
    send_texts(others, queue, "1", "2")
    receive_texts(late, 2)
    transacted.commit()  # so that the next transaction asks for two
    send_texts(others, queue, "a", "b")
    with psycopg.connect(jmsql_clean_url, autocommit=True) as keeper:
        with gate_closed(keeper):
            receiving = Background(lambda: receive(late).get_body(str))
            server.wait_until_someone_waits()
            claimed = receive(early)
        assert (claimed.get_body(str), receiving.result(60)) == ("a", "b")
    acknowledging = Background(claimed.acknowledge)
    try:
        acknowledging.result()  # a lock would last until the commit, which the same thread may be about to call
    finally:
        transacted.commit()
    assert receive_all(others.create_consumer(queue)) == []
