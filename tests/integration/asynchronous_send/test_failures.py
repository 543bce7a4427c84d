"""Asynchronous sends that fail, and many at once."""

from __future__ import annotations

import threading

import pytest

from jmsql import (
    Connection,
    IllegalStateException,
    InvalidDestinationException,
    MessageProducer,
    Queue,
    Session,
    TextMessage,
)
from jmsql.testing import wait_for
from tests.integration.asynchronous_send.completions import PATIENCE, Completions, Gate, numbers, send_numbers, stored
from tests.integration.asynchronous_send.sending_process import SendingProcess
from tests.integration.client.server import SESSIONS, Server


class TestFailures:
    def test_removed_queue_fails_its_messages_alone(
        self, session: Session, completions: Completions, server: Server, gate: Gate
    ) -> None:
        temporary = session.create_temporary_queue()  # which a send does not make again
        gone, there = session.create_producer(temporary), session.create_producer(Queue("there"))
        there.send(TextMessage("held"), completion_listener=gate)
        assert gate.reached.wait(PATIENCE)
        server.rows("delete from jmsql_internal.queue where name = %s", temporary.name)
        for text in numbers(4):
            (gone if int(text) % 2 else there).send(TextMessage(text), completion_listener=completions)
        gate.open.set()
        there.close()
        assert (completions.sent, completions.failed) == (["0", "2"], ["1", "3"])
        assert all(isinstance(error, InvalidDestinationException) for error in completions.errors)
        assert stored(server) == ["held", "0", "2"]

    def test_connection_that_was_lost_while_idle_is_replaced(
        self, producer: MessageProducer, completions: Completions, server: Server
    ) -> None:
        producer.send(TextMessage("first"), completion_listener=completions)
        wait_for(lambda: completions.told)
        server.terminate(SESSIONS)
        producer.send(TextMessage("second"), completion_listener=completions)
        producer.close()
        assert completions.sent == ["first", "second"]
        assert stored(server) == ["first", "second"]

    def test_each_message_is_told_of_once_however_often_connections_are_lost(
        self, producer: MessageProducer, completions: Completions, server: Server
    ) -> None:
        count = 20_000
        sending = threading.Thread(target=send_numbers, args=(producer, count, completions))
        sending.start()
        while sending.is_alive():
            server.terminate(SESSIONS)
            sending.join(0.1)
        producer.close()
        assert [message.get_body(str) for message, _ in completions.told] == numbers(count)
        in_store = stored(server)
        assert len(set(in_store)) == len(in_store)
        assert set(completions.sent) <= set(in_store)
        unknown = {
            message.get_body(str) for message, error in completions.told if error and error.error_code == "08007"
        }
        assert set(in_store) <= {*completions.sent, *unknown}

    def test_outcomes_told_to_listeners_outlive_their_client(
        self, jmsql_clean_url: str, queue: Queue, server: Server
    ) -> None:
        with SendingProcess(jmsql_clean_url, queue.name) as process:
            complete = process.completed(2000)
            complete += process.kill()
        wait_for(lambda: server.connections("jmsql") == 0)
        in_store = stored(server)
        assert complete == numbers(len(complete))
        assert in_store == numbers(len(in_store))
        assert len(in_store) >= len(complete)

    def test_a_refusal_of_the_server_reaches_the_listener(
        self, producer: MessageProducer, completions: Completions, server: Server
    ) -> None:
        producer.send(TextMessage("first"), completion_listener=completions)
        wait_for(lambda: completions.told)
        server.rows("alter table jmsql_internal.message rename to elsewhere")
        try:
            send_numbers(producer, 3, completions)
            producer.close()
        finally:
            server.rows("alter table jmsql_internal.elsewhere rename to message")
        assert completions.failed == numbers(3)

    def test_closed_session_sends_nothing(
        self, session: Session, producer: MessageProducer, completions: Completions
    ) -> None:
        session.close()
        with pytest.raises(IllegalStateException):
            producer.send(TextMessage("late"), completion_listener=completions)
        assert completions.told == []


def test_many_sessions_send_at_once(connection: Connection, queue: Queue, server: Server) -> None:
    count, sessions = 500, 6
    all_completions = [Completions() for _ in range(sessions)]

    def work(completions: Completions) -> None:
        with connection.create_session() as session:
            send_numbers(session.create_producer(queue), count, completions)

    threads = [threading.Thread(target=work, args=(completions,)) for completions in all_completions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [completions.sent for completions in all_completions] == [numbers(count)] * sessions
    assert server.rows("select count(*) from jmsql_internal.message") == [(count * sessions,)]
