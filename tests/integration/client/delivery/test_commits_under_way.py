"""`receive` in an AUTO session sends the commit and does not wait for the answer: what follows, and what others see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import LiteralString

import pytest

from jmsql import Connection, JMSException, Queue, Session
from jmsql.testing import wait_for
from tests.integration.client.server import SESSIONS, Server
from tests.texts import receive, receive_texts, send_texts

QUEUE = Queue("committing")
TEXTS = ["a", "b", "c"]
PATIENCE = 60.0


@pytest.fixture
def session(connection: Connection) -> Session:
    return connection.create_session()


@contextmanager
def at_each_removal(server: Server, action: LiteralString) -> Iterator[None]:
    """Have the server do this as a transaction that has removed a message commits."""
    server.rows(
        f"""create function public.at_removal() returns trigger language plpgsql as
        $$begin {action}; return null; end$$"""
    )
    server.rows(
        """create constraint trigger at_removal after delete on jmsql_internal.message deferrable initially deferred
        for each row execute function public.at_removal()"""
    )
    try:
        yield
    finally:
        server.rows("drop function public.at_removal cascade")


def count(server: Server) -> int:
    """How many messages others see in the queues."""
    messages: int = server.rows("select count(*) from jmsql_internal.message")[0][0]
    return messages


def test_a_message_is_gone_though_the_client_does_nothing_more(session: Session, server: Server) -> None:
    send_texts(session, QUEUE, *TEXTS)
    consumer = session.create_consumer(QUEUE)
    assert receive_texts(consumer, 1) == ["a"]
    wait_for(lambda: count(server) == 2)
    states = "select count(*) from pg_stat_activity where application_name = %s and state <> 'idle'"
    wait_for(lambda: server.rows(states, SESSIONS) == [(0,)])
    assert receive_texts(consumer, 2) == ["b", "c"]


def test_it_is_gone_for_others_when_the_consumer_is_closed(session: Session, server: Server) -> None:
    send_texts(session, QUEUE, *TEXTS)
    for left in (2, 1, 0):
        with session.create_consumer(QUEUE) as consumer:
            receive(consumer)
        assert count(server) == left


def test_it_is_gone_for_others_when_the_session_or_the_connection_is_closed(
    connection: Connection, session: Session, server: Server
) -> None:
    send_texts(session, QUEUE, *TEXTS)
    with connection.create_session() as receiver:
        receive(receiver.create_consumer(QUEUE))
    assert count(server) == 2
    receive(session.create_consumer(QUEUE))
    connection.close()
    assert count(server) == 1


def test_the_session_itself_sees_it_gone(session: Session) -> None:
    send_texts(session, QUEUE, *TEXTS)
    consumer = session.create_consumer(QUEUE)
    for left in (["b", "c"], ["c"], []):
        receive(consumer)
        with session.create_browser(QUEUE) as browser:
            assert [message.get_body(str) for message in browser] == left


def test_a_message_being_committed_is_received_once(connection: Connection, session: Session) -> None:
    names = [str(number) for number in range(40)]
    send_texts(session, QUEUE, *names)
    consumers = [session.create_consumer(QUEUE), connection.create_session().create_consumer(QUEUE)]
    received = [receive(consumers[number % 2]).get_body(str) for number in range(len(names))]
    assert sorted(map(str, received), key=names.index) == names


def test_a_session_sends_and_receives_by_turns(session: Session) -> None:
    consumer = session.create_consumer(QUEUE)
    for text in TEXTS:
        send_texts(session, QUEUE, text)
        assert receive_texts(consumer, 1) == [text]
        assert consumer.receive_no_wait() is None


def test_a_message_whose_commit_fails_comes_again_and_the_log_says_so(
    session: Session, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    send_texts(session, QUEUE, *TEXTS)
    consumer = session.create_consumer(QUEUE)
    with at_each_removal(server, "raise exception 'not today'"):
        assert receive_texts(consumer, 1) == ["a"]
        with session.create_browser(QUEUE) as browser:
            assert len(list(browser)) == len(TEXTS)
    assert "not today" in caplog.text
    assert caplog.text.count("The message was delivered, and may come again: ") == 1
    assert receive_texts(consumer, len(TEXTS)) == TEXTS


@pytest.mark.usefixtures("used_just_now")
def test_a_message_in_whose_commit_the_connection_breaks_may_come_again(
    session: Session, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    send_texts(session, QUEUE, "a")
    consumer = session.create_consumer(QUEUE)
    with at_each_removal(server, "perform pg_terminate_backend(pg_backend_pid())"):
        assert receive_texts(consumer, 1) == ["a"]
        with pytest.raises(JMSException, match="lost"):
            consumer.receive(timeout=PATIENCE)
    assert caplog.text.count("The message was delivered, and may come again: ") == 1
    assert receive_texts(consumer, 1) == ["a"]


def test_closing_bears_with_a_connection_that_breaks_in_the_commit(
    connection: Connection, session: Session, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    send_texts(session, QUEUE, "a")
    end = "perform pg_terminate_backend(pg_backend_pid())"
    with at_each_removal(server, end), connection.create_session() as receiver:
        receive(receiver.create_consumer(QUEUE))
        receiver.close()
    assert caplog.text.count("The message was delivered, and may come again: ") == 1
    assert receive_texts(session.create_consumer(QUEUE), 1) == ["a"]
