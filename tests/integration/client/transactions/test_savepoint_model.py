"""Transactions with savepoints against a plain model of them, in whatever order their steps come."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import psycopg
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from sqlalchemy import text

from jmsql import Connection, ConnectionFactory, MessageConsumer, Queue, Session
from jmsql.testing import receive_all
from tests.integration.client.server import Server
from tests.texts import texts_of

SESSIONS = 2
numbers = itertools.count()
sessions = st.integers(0, SESSIONS - 1)


@dataclass
class Done:
    """What a transaction has done by some moment."""

    sent: tuple[str, ...] = ()
    received: tuple[str, ...] = ()


@dataclass
class Client:
    """A session with its consumer, and what the model knows of its transaction."""

    session: Session
    consumer: MessageConsumer
    done: Done = field(default_factory=Done)
    savepoints: list[Done] = field(default_factory=list)


class SavepointMachine(RuleBasedStateMachine):
    """Two transacted sessions at one queue, whose transactions set savepoints and roll back to them."""

    connection: Connection

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue(f"savepoints {next(numbers)}")
        self.clients: list[Client] = []
        self.available: dict[str, int] = {}
        """The messages that somebody can have, and how often each was delivered without success."""
        self.acknowledged: set[str] = set()
        self.sent = 0

    @initialize()
    def open_sessions(self) -> None:
        for _ in range(SESSIONS):
            session = self.connection.create_session(transacted=True)
            self.clients.append(Client(session, session.create_consumer(self.queue)))

    @rule(number=sessions, count=st.sampled_from([1, 1, 1, 5]))
    def send(self, number: int, count: int) -> None:
        client = self.clients[number]
        for _ in range(count):
            name = f"message {self.sent}"
            self.sent += 1
            client.session.create_producer(self.queue).send(client.session.create_text_message(name))
            client.done = Done((*client.done.sent, name), client.done.received)

    @rule(number=sessions)
    def receive(self, number: int) -> None:
        client = self.clients[number]
        message = client.consumer.receive(timeout=0)
        if message is None:
            return
        name = str(message.get_body(str))
        assert name in self.available, "it was not sent, or somebody else has it"
        deliveries = self.available[name]
        # The driver tells nobody of a rollback to a savepoint, so that who is fast may get a message before that.
        assert message.jms_redelivered == (message.get_int_property("JMSXDeliveryCount") > 1)
        assert message.get_int_property("JMSXDeliveryCount") <= deliveries + 1
        del self.available[name]
        client.done = Done(client.done.sent, (*client.done.received, name))

    @rule(number=sessions, way=st.sampled_from(["statement", "driver"]))
    def set_savepoint(self, number: int, way: str) -> None:
        client = self.clients[number]
        self._execute(client, way, f"savepoint s{len(client.savepoints)}")
        client.savepoints.append(client.done)

    @precondition(lambda self: any(client.savepoints for client in self.clients))
    @rule(number=sessions, way=st.sampled_from(["statement", "driver"]), data=st.data())
    def roll_back_to_savepoint(self, number: int, way: str, data: st.DataObject) -> None:
        client = self.clients[number]
        if not client.savepoints:
            return
        place = data.draw(st.integers(0, len(client.savepoints) - 1))
        self._execute(client, way, f"rollback to s{place}")
        del client.savepoints[place + 1 :]
        self._release(client, client.savepoints[place])

    @precondition(lambda self: any(client.savepoints for client in self.clients))
    @rule(number=sessions, data=st.data())
    def release_savepoint(self, number: int, data: st.DataObject) -> None:
        client = self.clients[number]
        if not client.savepoints:
            return
        place = data.draw(st.integers(0, len(client.savepoints) - 1))
        self._execute(client, "statement", f"release s{place}")
        del client.savepoints[place:]

    @rule(number=sessions)
    def commit(self, number: int) -> None:
        client = self.clients[number]
        client.session.commit()
        for name in client.done.received:
            assert name not in self.acknowledged
            self.acknowledged.add(name)
        for name in client.done.sent:
            self.available[name] = 0
        client.done, client.savepoints = Done(), []

    @rule(number=sessions)
    def roll_back(self, number: int) -> None:
        client = self.clients[number]
        client.session.rollback()
        self._release(client, Done())
        client.savepoints = []

    def _release(self, client: Client, done: Done) -> None:
        for name in client.done.received[len(done.received) :]:
            self.available[name] = self.sent  # more than it can be
        client.done = done

    @staticmethod
    def _execute(client: Client, way: str, statement: str) -> None:
        database = client.session.database
        if way == "statement":
            database.execute(text(statement))
            return
        driver_connection = database.connection.driver_connection
        assert isinstance(driver_connection, psycopg.Connection)
        driver_connection.execute(statement.encode())

    def teardown(self) -> None:
        for client in self.clients:
            client.session.close()
            self._release(client, Done())
        with self.connection.create_session() as session:
            left = texts_of(receive_all(session.create_consumer(self.queue)))
        assert sorted(left) == sorted(self.available), "lost or doubled"
        assert self.acknowledged.isdisjoint(self.available)


def test_transactions_with_savepoints_behave_as_their_model(jmsql_factory: ConnectionFactory, server: Server) -> None:
    with jmsql_factory.create_connection() as connection:
        connection.start()
        machine: Any = SavepointMachine
        machine.connection = connection
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=60,
                stateful_step_count=30,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    assert server.rows("select count(*) from jmsql.messages") == [(0,)]
