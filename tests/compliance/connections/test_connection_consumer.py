"""ConnectionConsumer: what an application server receives messages with."""

from __future__ import annotations

import pytest

from jmsql import Connection, Message, Queue, Session
from jmsql.connection_consumers import ServerSession
from jmsql.testing import wait_for
from tests.compliance.apis import Api
from tests.texts import send_texts, texts_of


@pytest.mark.requirement("asf.connectionconsumer")
@pytest.mark.case("connection-consumer-01")
def test_connection_consumer_gives_the_pool_the_messages_that_its_selector_chooses(
    api: Api, connection: Connection, session: Session, queue: Queue
) -> None:
    heard: list[Message] = []
    with (
        api.server_session_pool(connection, 2, lambda session: heard.append) as pool,
        connection.create_connection_consumer(queue, "JMSPriority > 4", pool, max_messages=3) as connection_consumer,
    ):
        assert connection_consumer.server_session_pool is pool
        send_texts(session, queue, "unwanted", priority=3)
        send_texts(session, queue, "a", "b", "c", "d", priority=7)
        wait_for(lambda: len(heard) == 4)
    assert sorted(texts_of(heard)) == ["a", "b", "c", "d"]


@pytest.mark.requirement("asf.connectionconsumer")
def test_session_is_loaded_with_no_more_than_the_most_messages(
    api: Api, connection: Connection, session: Session, queue: Queue
) -> None:
    connection.stop()
    send_texts(session, queue, *"abcde")
    loads: list[int] = []

    class CountingPool:
        """Counts the messages of each load: those between two server sessions that it hands out."""

        def get_server_session(self) -> ServerSession:
            server_session = pool.get_server_session()
            loads.append(0)
            return server_session

    def hear(message: Message) -> None:
        loads[-1] += 1

    with (
        api.server_session_pool(connection, 1, lambda session: hear) as pool,
        connection.create_connection_consumer(queue, None, CountingPool(), max_messages=2),
    ):
        connection.start()
        wait_for(lambda: sum(loads) == 5)
    assert max(loads) <= 2
