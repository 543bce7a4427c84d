"""The server ends the connection that shows that a client lives: what belongs to the client is joined again."""

from __future__ import annotations

from collections.abc import Callable
from typing import LiteralString

import pytest

from jmsql import Connection, IllegalStateException, JMSException, Message, MessageConsumer, Session, Topic
from jmsql.store.destinations.subscriptions import SubscriptionDefinition
from jmsql.testing import receive_all, wait_for
from tests.background import Background
from tests.integration.client.server import CONTROL, SESSIONS, Server
from tests.integration.topics.rows import count, wait_until_empty
from tests.leadership import SUSPEND_MAINTENANCE
from tests.texts import receive_texts, send_texts, texts_of

NAME = "subscription"
JOINED = """
    select count(*) from jmsql_internal.subscriber
    where connection_id > %s and jmsql_internal.is_connected(connection_id)
    """

CONSUMERS: LiteralString = "select consumers from jmsql_internal.subscriber order by queue_id, connection_id"


BOUND: dict[str, LiteralString] = {
    table: f"""
    select count(*), count(*) filter (where jmsql_internal.is_connected(connection_id))
    from jmsql_internal.{table} where connection_id is not null"""
    for table in ("queue", "topic")
}


TAKE_OVER = """
    with q as (insert into jmsql_internal.queue (name) values (null) returning queue_id)
    insert into jmsql_internal.subscription (queue_id, topic_id, client_id, name, durable, shared, no_local)
    select queue_id, topic_id, 'reader', %s, true, false, false from q, jmsql_internal.topic t where t.name = %s"""


class Interruption:
    """Ends the control connections of the fixture `factory`.

    Args:
        server: The server.
    """

    def __init__(self, server: Server) -> None:
        self._server = server

    def __call__(self, *, joined: int) -> None:
        """End the connections, and wait until so many subscriptions are joined again."""
        last = self._server.rows("select max(connection_id) from jmsql_internal.connection")[0][0]
        self._server.terminate(CONTROL)
        wait_for(lambda: self._server.rows(JOINED, last) == [(joined,)])


@pytest.fixture
def interrupt(server: Server) -> Interruption:
    return Interruption(server)


@pytest.fixture
def no_maintenance(server: Server) -> None:
    """No client leads, so that nobody takes a client for gone in the moment between two connections."""
    server.rows(SUSPEND_MAINTENANCE)


def make_all(session: Session, topic: Topic) -> dict[str, MessageConsumer]:
    return {
        "plain": session.create_consumer(topic),
        "durable": session.create_durable_consumer(topic, NAME),
        "shared": session.create_shared_consumer(topic, NAME),
        "shared durable": session.create_shared_durable_consumer(topic, NAME + " shared"),
        "temporary": session.create_consumer(session.create_temporary_topic()),
    }


@pytest.mark.usefixtures("no_maintenance")
def test_all_subscriptions_are_joined_again(
    reader: Connection, others: Session, topic: Topic, interrupt: Interruption
) -> None:
    consumers = make_all(reader.create_session(), topic)
    for text in ("a", "b", "c"):
        for destination in (topic, consumers["temporary"].destination):
            send_texts(others, destination, text)
        if text != "c":
            interrupt(joined=len(consumers))
    received = {kind: receive_texts(consumer, 3) for kind, consumer in consumers.items()}
    assert received == {kind: ["a", "b", "c"] for kind in consumers}
    assert [receive_all(consumer) for consumer in consumers.values()] == [[]] * len(consumers)


def test_durable_subscription_loses_nothing_and_brings_nothing_twice(
    reader: Connection, others: Session, topic: Topic, interrupt: Interruption
) -> None:
    consumer = reader.create_session(transacted=True).create_durable_consumer(topic, NAME)
    texts: list[str] = []
    for round_number in range(3):
        send_texts(others, topic, f"{round_number} before")
        interrupt(joined=1)
        send_texts(others, topic, f"{round_number} after")
        texts += receive_texts(consumer, 1)
    texts += receive_texts(consumer, 3)
    assert texts == [f"{round_number} {when}" for round_number in range(3) for when in ("before", "after")]
    assert receive_all(consumer) == []


def test_listener_hears_later_publications(
    reader: Connection, others: Session, topic: Topic, interrupt: Interruption
) -> None:
    heard: list[Message] = []
    reader.create_session().create_consumer(topic).message_listener = heard.append
    interrupt(joined=1)
    send_texts(others, topic, "a")
    wait_for(lambda: texts_of(heard) == ["a"])


def test_consumer_that_waits_is_woken(
    reader: Connection, others: Session, topic: Topic, interrupt: Interruption
) -> None:
    consumer = reader.create_session().create_consumer(topic)
    interrupt(joined=1)
    assert consumer.receive(timeout=0) is None
    send_texts(others, topic, "a")
    assert receive_texts(consumer, 1) == ["a"]


def test_no_local_goes_on(reader: Connection, others: Session, topic: Topic, interrupt: Interruption) -> None:
    session = reader.create_session()
    consumer = session.create_consumer(topic, no_local=True)
    interrupt(joined=1)
    send_texts(session, topic, "own")
    send_texts(others, topic, "theirs")
    assert receive_texts(consumer, 1) == ["theirs"]
    assert receive_all(consumer) == []


@pytest.mark.usefixtures("no_maintenance")
def test_subscription_shared_by_consumers_of_one_connection_ends_with_the_last_of_them(
    reader: Connection, server: Server, topic: Topic, interrupt: Interruption
) -> None:
    consumers = [reader.create_session().create_shared_consumer(topic, NAME) for _ in range(3)]
    interrupt(joined=1)
    wait_for(lambda: server.rows("select consumers from jmsql_internal.subscriber") == [(3,)])
    for consumer in consumers:
        assert count(server, "subscription") == 1
        consumer.close()
    assert count(server, "subscription") == 0


def test_subscription_that_was_removed_meanwhile_is_made_again(
    reader: Connection, others: Session, server: Server, topic: Topic, interrupt: Interruption
) -> None:
    """As maintenance does for a client that is away for long."""
    consumers = make_all(reader.create_session(), topic)
    server.rows(
        "delete from jmsql_internal.subscription; update jmsql_internal.queue set deleted_at = now() where name is null"
    )
    interrupt(joined=len(consumers))
    send_texts(others, topic, "a")
    send_texts(others, consumers["temporary"].destination, "a")
    assert [receive_texts(consumer, 1) for consumer in consumers.values()] == [["a"]] * len(consumers)


def test_subscription_that_another_client_has_taken_over_does_not_hold_up_the_rest(
    reader: Connection, server: Server, topic: Topic, interrupt: Interruption
) -> None:
    problems: list[JMSException] = []
    reader.exception_listener = problems.append
    session = reader.create_session()
    shared = session.create_shared_durable_consumer(topic, NAME)
    plain = session.create_consumer(topic)
    server.rows(
        "delete from jmsql_internal.subscription; update jmsql_internal.queue set deleted_at = now() where name is null"
    )
    server.rows(TAKE_OVER, NAME, topic.name)
    interrupt(joined=1)
    wait_for(lambda: any(isinstance(problem, IllegalStateException) for problem in problems))
    send_texts(session, topic, "a")
    assert receive_texts(plain, 1) == ["a"]
    assert shared.receive(timeout=0) is None


def test_messages_collected_by_another_client_under_the_name_are_not_dropped(
    reader: Connection, server: Server, topic: Topic, interrupt: Interruption
) -> None:
    """The client was away for long; the name is another's, with another selector, and nobody consumes just now."""
    problems: list[JMSException] = []
    reader.exception_listener = problems.append
    session = reader.create_session()
    session.create_shared_durable_consumer(topic, NAME)
    server.rows(
        "delete from jmsql_internal.subscription; update jmsql_internal.queue set deleted_at = now() where name is null"
    )
    server.rows(TAKE_OVER, NAME, topic.name)
    server.rows("update jmsql_internal.subscription set shared = true, selector = 'true'")
    send_texts(session, topic, "a", "b")
    interrupt(joined=0)
    wait_for(lambda: any(isinstance(problem, IllegalStateException) for problem in problems))
    assert count(server, "message") == 2
    assert server.rows("select selector from jmsql_internal.subscription") == [("true",)]


@pytest.mark.parametrize("interruptions", [1, 2])
def test_subscription_made_again_ends_with_its_consumer(
    reader: Connection, server: Server, topic: Topic, interrupt: Interruption, interruptions: int
) -> None:
    """Also if the consumer has not looked at it yet."""
    consumer = reader.create_session().create_consumer(topic)
    for _ in range(interruptions):
        server.rows(
            "delete from jmsql_internal.subscription; update jmsql_internal.queue set deleted_at = now() where "
            "name is null"
        )
        interrupt(joined=1)
    consumer.close()
    wait_until_empty(server, "subscription", "subscriber", "queue")


def test_temporary_destinations_are_bound_again(
    reader: Connection, others: Session, server: Server, interrupt: Interruption
) -> None:
    """Or else maintenance would take them for those of a connection that is gone."""
    session = reader.create_session()
    queue, news = session.create_temporary_queue(), session.create_temporary_topic()
    consumers = [session.create_consumer(queue), session.create_consumer(news)]
    interrupt(joined=1)
    for table in ("queue", "topic"):
        bound = server.rows(BOUND[table])
        assert bound == [(1, 1)], table
    for destination in (queue, news):
        send_texts(others, destination, "a")
    assert [receive_texts(consumer, 1) for consumer in consumers] == [["a"], ["a"]]
    reader.close()
    wait_until_empty(server, "topic", "subscription", "queue")


@pytest.mark.usefixtures("no_maintenance")
def test_consumer_that_closes_while_it_is_joined_again_leaves_nothing(
    reader: Connection, server: Server, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = reader.create_session().create_consumer(topic)
    server.rows("delete from jmsql_internal.subscription")  # as maintenance does with a client that it takes for gone
    destinations = reader._destinations
    join = destinations.join
    closing: list[Background[None]] = []

    def join_while_it_closes(definition: SubscriptionDefinition) -> int:
        queue_id = join(definition)
        closing.append(Background(consumer.close))
        closing[0].wait_until_it_waits()
        return queue_id

    monkeypatch.setattr(destinations, "join", join_while_it_closes)
    reader._join_again([])
    closing[0].result()
    assert count(server, "subscriber") == 0
    assert count(server, "subscription") == 0


def test_consumer_that_is_opened_before_the_others_are_joined_again_is_not_joined_twice(
    reader: Connection, server: Server, topic: Topic
) -> None:
    consumer = reader.create_session().create_durable_consumer(topic, NAME)
    reader._join_again([])
    assert server.rows("select consumers from jmsql_internal.subscriber") == [(1,)]
    consumer.close()
    assert count(server, "subscriber") == 0


def test_closed_connection_joins_nothing_again(reader: Connection, server: Server, topic: Topic) -> None:
    reader.create_session().create_consumer(topic)
    reader.close()
    with pytest.raises(IllegalStateException, match="closed"):
        reader._join_again([reader._control.connection_id])
    wait_for(lambda: server.connections(SESSIONS) == 0)


class ReturningMoment:
    """Does something when the client has its new number, before its subscriptions have it."""

    def __init__(self, reader: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        self._connect = reader._control._connect
        self._actions: list[Callable[[], object]] = []
        self.outcomes: list[object] = []
        monkeypatch.setattr(reader._control, "_connect", self._connect_and_act)

    def _connect_and_act(self) -> None:
        self._connect()
        while self._actions:
            try:
                self.outcomes.append(self._actions.pop()())
            except JMSException as error:
                self.outcomes.append(error)

    def act(self, action: Callable[[], object]) -> None:
        """Do it at the next such moment."""
        self._actions.append(action)


@pytest.fixture
def returning(reader: Connection, monkeypatch: pytest.MonkeyPatch) -> ReturningMoment:
    return ReturningMoment(reader, monkeypatch)


@pytest.mark.usefixtures("no_maintenance")
def test_a_subscription_can_be_joined_before_the_others_are_joined_again(
    reader: Connection,
    others: Session,
    server: Server,
    topic: Topic,
    interrupt: Interruption,
    returning: ReturningMoment,
) -> None:
    session, joining = reader.create_session(), reader.create_session()
    consumer = session.create_shared_consumer(topic, NAME)
    returning.act(lambda: joining.create_shared_consumer(topic, NAME))
    interrupt(joined=1)
    [other] = returning.outcomes
    assert isinstance(other, MessageConsumer)
    wait_for(lambda: server.rows(CONSUMERS) == [(2,)])
    send_texts(others, topic, "a")
    wait_for(lambda: receive_all(consumer) or receive_all(other))
    consumer.close()
    assert server.rows(CONSUMERS) == [(1,)]
    other.close()
    assert server.rows(CONSUMERS) == []
    assert count(server, "subscription") == 0


@pytest.mark.usefixtures("no_maintenance")
def test_a_subscription_can_be_left_before_it_is_joined_again(
    reader: Connection, server: Server, topic: Topic, interrupt: Interruption, returning: ReturningMoment
) -> None:
    session = reader.create_session()
    alone, *both = [session.create_consumer(topic), *(session.create_shared_consumer(topic, NAME) for _ in range(2))]
    for consumer in (alone, both[0]):
        returning.act(consumer.close)
    interrupt(joined=1)
    wait_for(lambda: server.rows(CONSUMERS) == [(1,)])
    both[1].close()
    assert server.rows(CONSUMERS) == []
    assert count(server, "subscription") == 0


@pytest.mark.usefixtures("no_maintenance")
def test_a_subscription_that_is_not_shared_is_not_joined_twice_before_it_is_joined_again(
    reader: Connection, server: Server, topic: Topic, interrupt: Interruption, returning: ReturningMoment
) -> None:
    session, joining = reader.create_session(), reader.create_session()
    session.create_durable_consumer(topic, NAME)
    returning.act(lambda: joining.create_durable_consumer(topic, NAME))
    interrupt(joined=1)
    [error] = returning.outcomes
    assert isinstance(error, IllegalStateException)
    assert "active consumer" in str(error)
    assert server.rows(CONSUMERS) == [(1,)]


@pytest.mark.usefixtures("no_maintenance")
def test_consumers_under_several_former_numbers_are_joined_again(
    reader: Connection, server: Server, topic: Topic, interrupt: Interruption
) -> None:
    # The answer to a statement that joined them again may have been lost.
    consumer = reader.create_session().create_shared_consumer(topic, NAME)
    former = [reader._control.connection_id]
    for _ in range(2):
        interrupt(joined=1)
        former.append(reader._control.connection_id)
    for number in former[:2]:
        server.rows(
            "insert into jmsql_internal.subscriber select queue_id, %s, 1 from jmsql_internal.subscription", number
        )
    for _ in range(2):
        reader._join_again(former)
        assert server.rows(CONSUMERS) == [(3,)]
    consumer.close()
    assert server.rows(CONSUMERS) == [(2,)]


@pytest.mark.usefixtures("no_maintenance")
def test_a_subscription_that_is_ended_while_it_is_joined_again_is_made_again(
    reader: Connection, server: Server, topic: Topic, interrupt: Interruption
) -> None:
    reader.create_session().create_durable_consumer(topic, NAME)
    former = reader._control.connection_id
    interrupt(joined=1)
    server.rows("update jmsql_internal.subscriber set connection_id = %s", former)
    with server.transaction():
        server.rows("select from jmsql_internal.subscription for update")
        joining = Background(lambda: reader._join_again([former]))
        server.wait_until_a_session_waits()
        server.rows("update jmsql_internal.subscription set ended = true")
    joining.result()
    assert server.rows(CONSUMERS) == [(1,)]
