"""The server goes down and comes back while clients of topics are connected."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from jmsql import ConnectionFactory, JMSException, Message, Session, Topic
from jmsql.embedded import start_server
from jmsql.testing import receive_all, wait_for
from tests.prepared_data import prepare_data
from tests.texts import receive, send_texts, texts_of

JOINED = "select count(*) from jmsql_internal.subscriber where jmsql_internal.is_connected(connection_id)"

UNACKNOWLEDGED = "select count(*) from jmsql.messages"


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="jmsql-restart-") as directory:
        Path(directory).chmod(0o711)  # for root: the server's account must pass through
        prepare_data(Path(directory) / "server")
        yield Path(directory) / "server"


def send_again(session: Session, topic: Topic, text: str) -> bool:
    """Send a message; False if the session's connection was lost."""
    try:
        send_texts(session, topic, text)
    except JMSException:
        return False
    return True


def test_durable_subscription_loses_nothing_and_all_go_on(directory: Path, topic: Topic) -> None:
    heard: list[Message] = []
    with ExitStack() as clients:
        with start_server(directory) as server:
            url = server.url
            connection = clients.enter_context(ConnectionFactory(url, client_id="reader").create_connection())
            publishing = clients.enter_context(ConnectionFactory(url).create_connection()).create_session()
            connection.start()
            session = connection.create_session()
            durable = session.create_durable_consumer(topic, "durable")
            connection.create_session().create_consumer(topic).message_listener = heard.append
            replies = session.create_temporary_queue()
            reply_consumer = session.create_consumer(replies)
            send_texts(publishing, topic, "before")
            with psycopg.connect(url, autocommit=True) as administrator:
                # Heard and acknowledged: else it would come again, as it does for the durable subscription.
                wait_for(lambda: administrator.execute(UNACKNOWLEDGED).fetchall() == [(1,)])
            assert texts_of(heard) == ["before"]
        with start_server(directory) as server, psycopg.connect(server.url, autocommit=True) as administrator:
            wait_for(lambda: administrator.execute(JOINED).fetchall() == [(2,)], timeout=60)
            wait_for(lambda: send_again(publishing, topic, "after"))
            received: list[Message] = []
            while len(received) < 2:
                try:
                    received.append(receive(durable))
                except JMSException:  # the session's connection, which the server closed
                    continue
            assert texts_of(received) == ["before", "after"]
            assert receive_all(durable) == []
            wait_for(lambda: texts_of(heard) == ["before", "after"])
            send_texts(publishing, replies, "reply")
            assert texts_of([receive(reply_consumer)]) == ["reply"]
            clients.close()
