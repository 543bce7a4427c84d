"""The primary is killed under load, and its synchronous standby promoted: the clients' URL names both.

``python -m tests.faults --fault failover --hours H --seed N`` does the same for longer, with clients of all kinds.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest
import sqlalchemy

import jmsql
import jmsql.asyncio
from jmsql import AcknowledgeMode, ConnectionFactory, JMSException, MessageConsumer, Queue, ResourceAllocationException
from jmsql.testing import receive_all, wait_for
from tests.faults.replicated_servers import ReplicatedServers, replicated_servers

QUEUE = Queue("orders")
ROW = sqlalchemy.text("insert into shipment values (:number)")
PATIENCE = 60.0

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def servers() -> Iterator[ReplicatedServers]:
    with replicated_servers() as servers, psycopg.connect(servers.url) as administrator:
        administrator.execute("create table shipment (number int)")
        administrator.commit()
        yield servers


def shipped(servers: ReplicatedServers) -> list[int]:
    with psycopg.connect(servers.url) as administrator:
        return [number for (number,) in administrator.execute("select number from shipment order by number")]


def receive_text(consumer: MessageConsumer) -> str:
    """Receive, also on a connection that turns out to be lost, and acknowledge if that is the session's to do."""
    for _ in range(2):
        try:
            message = consumer.receive(timeout=PATIENCE)
        except JMSException as error:
            assert error.error_code == "08006"  # noqa: PT017 - the first call may say so
        else:
            assert message is not None
            text = message.get_body(str)
            assert text is not None
            return text
    raise AssertionError("the connection is still lost")


class Shipping:
    """Sends with a business row, in transactions of their own, until it is stopped."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stopped = threading.Event()
        self.committed = 0
        """How many transactions were committed, as the client knows."""
        self.kinds: set[type[Exception]] = set()
        self._threads = [threading.Thread(target=target) for target in (self._run, lambda: asyncio.run(self._await()))]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        with ConnectionFactory(self._url).create_connection() as connection:
            session = connection.create_session(transacted=True)
            producer = session.create_producer()
            number = 0
            while not self._stopped.is_set():
                number += 1
                try:
                    session.database.execute(ROW, {"number": number})
                    producer.send(session.create_text_message(str(number)), QUEUE)
                    session.commit()
                    self.committed += 1
                except (JMSException, sqlalchemy.exc.OperationalError) as error:
                    self.kinds.add(type(error))
                    session.rollback()
                    time.sleep(0.01)

    async def _await(self) -> None:
        async with jmsql.asyncio.ConnectionFactory(self._url).create_connection() as connection:
            session = connection.create_session(transacted=True)
            producer = await session.create_producer()
            number = 1_000_000
            while not self._stopped.is_set():
                number += 1
                try:
                    database = await session.get_database()
                    await database.execute(ROW, {"number": number})
                    await producer.send(session.create_text_message(str(number)), QUEUE)
                    await session.commit()
                    self.committed += 1
                except (JMSException, sqlalchemy.exc.OperationalError) as error:
                    self.kinds.add(type(error))
                    await session.rollback()
                    await asyncio.sleep(0.01)


def test_nothing_is_lost_or_doubled_when_the_primary_is_killed_under_load(servers: ReplicatedServers) -> None:
    shipping = Shipping(servers.url)
    try:
        for _ in range(2):
            before = shipping.committed
            wait_for(lambda before=before: shipping.committed > before + 20, PATIENCE)  # type: ignore[misc]
            servers.kill_primary()
            servers.promote()
            before = shipping.committed
            wait_for(lambda before=before: shipping.committed > before + 20, PATIENCE)  # type: ignore[misc]
            servers.add_standby()
    finally:
        shipping.stop()
    assert shipping.kinds, "the failover was noticed"
    with ConnectionFactory(servers.url).create_connection() as connection:
        connection.start()
        numbers = [
            int(str(message.get_body(str)))
            for message in receive_all(connection.create_session().create_consumer(QUEUE))
        ]
    assert sorted(numbers) == shipped(servers)
    assert len(set(numbers)) == len(numbers) >= shipping.committed


def test_waiting_consumers_and_their_held_messages_outlive_the_primary(servers: ReplicatedServers) -> None:
    lost = threading.Event()
    with ConnectionFactory(servers.url).create_connection() as connection:
        connection.exception_listener = lambda _: lost.set()
        connection.start()
        claiming = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        claimed, waiting = claiming.create_consumer(QUEUE), connection.create_session().create_consumer(Queue("others"))
        session = connection.create_session()
        session.create_producer(QUEUE).send(session.create_text_message("claimed before"))
        assert receive_text(claimed) == "claimed before"
        servers.kill_primary()
        with pytest.raises(ResourceAllocationException, match="no server of the URL takes writes"):
            ConnectionFactory(servers.url).create_connection()
        assert lost.wait(PATIENCE)
        servers.promote()
        wait_for(lambda: connection._control.is_certain, PATIENCE)
        with ConnectionFactory(servers.url).create_context() as context:
            context.create_producer().send(Queue("others"), "sent after")
        assert receive_text(waiting) == "sent after"
        assert receive_text(claimed) == "claimed before", "it was not acknowledged"
