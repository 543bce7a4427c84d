"""A queue and its sessions against a plain model of them, in whatever order their methods are called."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from jmsql import AcknowledgeMode, Connection, ConnectionFactory, Message, MessageConsumer, Queue, Session
from jmsql.client.receiving import fetching
from jmsql.testing import receive_all, wait_for
from tests.integration.client.server import Server
from tests.texts import texts_of

MODES = list(AcknowledgeMode)
SESSIONS = 2
ACKNOWLEDGEMENT_DELAY = 600.0
"""Seconds that no run takes."""
numbers = itertools.count()
sessions = st.integers(0, SESSIONS - 1)


@dataclass
class Sent:
    """A message in the model's queue."""

    text: str
    priority: int
    place: int
    deliveries: int = 0

    @property
    def order(self) -> tuple[int, int]:
        """Its place among all messages in the order of delivery."""
        return -self.priority, self.place


@dataclass
class Client:
    """A session with its consumer, and what the model knows of it."""

    session: Session
    mode: AcknowledgeMode
    consumer: MessageConsumer
    last: Message | None = None
    held: list[Sent] = field(default_factory=list)
    unsent: list[Sent] = field(default_factory=list)


class QueueMachine(RuleBasedStateMachine):
    """Two sessions at one queue.

    Messages are fetched one by one here, so that the order of delivery is exactly that of the queue.
    """

    connection: Connection

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue(f"model {next(numbers)}")
        self.clients: list[Client] = []
        self.available: dict[str, Sent] = {}
        self.acknowledged: set[str] = set()
        self.sent = 0

    @initialize(modes=st.lists(st.sampled_from(MODES), min_size=SESSIONS, max_size=SESSIONS))
    def open_sessions(self, modes: list[AcknowledgeMode]) -> None:
        self.clients = [self._open(mode) for mode in modes]

    def _open(self, mode: AcknowledgeMode) -> Client:
        session = self.connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode)
        return Client(session, mode, session.create_consumer(self.queue))

    # What sessions do

    @rule(number=sessions, priority=st.sampled_from([4, 4, 4, 0, 9]))
    def send(self, number: int, priority: int) -> None:
        client = self.clients[number]
        message = Sent(f"message {self.sent}", priority, self.sent)
        self.sent += 1
        client.session.create_producer(self.queue).send(
            client.session.create_text_message(message.text), priority=priority
        )
        if client.mode is AcknowledgeMode.TRANSACTED:
            client.unsent.append(message)
        else:
            self._put(message)

    @rule(number=sessions)
    def receive(self, number: int) -> None:
        client = self.clients[number]
        # What another session has just released arrives with a notification.
        message = client.consumer.receive(timeout=60 if self.available else 0)
        if not self.available:
            assert message is None
            if client.mode is AcknowledgeMode.DUPS_OK:
                self._settle(client)
            return
        assert message is not None, f"{list(self.available)} could be had"
        found = self.available.pop(str(message.get_body(str)))
        assert message.jms_priority == found.priority
        assert message.jms_redelivered == (found.deliveries > 0)
        assert message.get_int_property("JMSXDeliveryCount") == found.deliveries + 1
        assert not [
            other.text for other in self.available.values() if other.order < found.order and other.deliveries == 0
        ], "a message that was never released was overtaken"
        client.last = message
        client.held.append(found)
        if client.mode is AcknowledgeMode.AUTO:
            self._settle(client)

    @precondition(lambda self: any(client.last for client in self.clients))
    @rule(number=sessions)
    def acknowledge(self, number: int) -> None:
        client = self.clients[number]
        if client.last is not None:
            client.last.acknowledge()
        if client.mode is AcknowledgeMode.CLIENT:
            self._settle(client)

    @rule(number=sessions)
    def commit(self, number: int) -> None:
        client = self.clients[number]
        if client.mode is not AcknowledgeMode.TRANSACTED:
            return
        client.session.commit()
        self._settle(client)
        for message in client.unsent:
            self._put(message)
        client.unsent.clear()

    @rule(number=sessions)
    def roll_back_or_recover(self, number: int) -> None:
        client = self.clients[number]
        if client.mode is AcknowledgeMode.TRANSACTED:
            client.session.rollback()
        else:
            client.session.recover()
        self._release(client)

    @rule(number=sessions)
    def close_consumer(self, number: int) -> None:
        client = self.clients[number]
        client.consumer.close()
        if client.mode is AcknowledgeMode.DUPS_OK:  # no other delivery comes, with which it could acknowledge
            self._settle(client)
        client.consumer = client.session.create_consumer(self.queue)

    @rule(number=sessions, mode=st.sampled_from(MODES))
    def close_session(self, number: int, mode: AcknowledgeMode) -> None:
        client = self.clients[number]
        client.session.close()
        if client.mode is AcknowledgeMode.DUPS_OK:
            self._settle(client)
        self._release(client)
        self.clients[number] = self._open(mode)

    # What the model makes of it

    def _put(self, message: Sent) -> None:
        message.place = self.sent
        self.sent += 1
        self.available[message.text] = message

    def _settle(self, client: Client) -> None:
        self.acknowledged |= {message.text for message in client.held}
        client.held.clear()

    def _release(self, client: Client) -> None:
        for message in client.held:
            message.deliveries += 1
            self.available[message.text] = message
        client.held.clear()
        client.unsent.clear()

    @invariant()
    def browser_shows_what_can_be_had(self) -> None:
        if not self.clients or any(client.mode is AcknowledgeMode.TRANSACTED for client in self.clients):
            return  # what a transaction has received is still shown to others
        expected = [message.text for message in sorted(self.available.values(), key=lambda each: each.order)]
        # What the other session has just received is shown until its commit is done.
        wait_for(lambda: texts_of(self.clients[0].session.create_browser(self.queue)) == expected)

    def teardown(self) -> None:
        for client in self.clients:
            client.session.close()
            if client.mode is AcknowledgeMode.DUPS_OK:
                self._settle(client)
            self._release(client)
        with self.connection.create_session() as session:
            left = receive_all(session.create_consumer(self.queue))
        assert sorted(texts_of(left)) == sorted(self.available)
        assert self.acknowledged.isdisjoint(self.available)


class PrefetchingQueueMachine(QueueMachine):
    """The same with messages fetched in batches.

    What a consumer has fetched others cannot receive, and comes before more urgent messages that were sent later.
    """

    @rule(number=sessions)
    def receive(self, number: int) -> None:
        client = self.clients[number]
        message = client.consumer.receive(timeout=0)
        if message is None:
            if client.mode is AcknowledgeMode.DUPS_OK:
                self._settle(client)
            return
        found = self.available.pop(str(message.get_body(str)))
        assert message.jms_redelivered == (found.deliveries > 0)
        assert message.get_int_property("JMSXDeliveryCount") == found.deliveries + 1
        client.last = message
        client.held.append(found)
        if client.mode is AcknowledgeMode.AUTO:
            self._settle(client)

    @invariant()
    def browser_shows_what_can_be_had(self) -> None:
        """Nothing can be said: what was fetched is not shown."""


@pytest.mark.parametrize("prefetches", [False, True])
def test_sessions_behave_as_their_model(
    jmsql_factory: ConnectionFactory, server: Server, monkeypatch: pytest.MonkeyPatch, prefetches: bool
) -> None:
    if not prefetches:
        monkeypatch.setattr(fetching, "_MOST_MESSAGES", 1)
    # What a DUPS_OK session acknowledges by itself, the model knows, but not that time has passed.
    timings = dataclasses.replace(jmsql_factory.timings, acknowledgement_delay=ACKNOWLEDGEMENT_DELAY)
    with dataclasses.replace(jmsql_factory, timings=timings).create_connection() as connection:
        connection.start()
        machine: Any = PrefetchingQueueMachine if prefetches else QueueMachine
        machine.connection = connection
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=40,
                stateful_step_count=30,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    assert server.rows("select count(*) from jmsql.messages") == [(0,)]
