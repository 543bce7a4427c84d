"""A send with a key sends nothing while a message of the key waits, which is handled after the sender's commit."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

import jmsql
from jmsql import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    IllegalStateException,
    InvalidDestinationException,
    MessageFormatException,
    RedeliveryPolicy,
    Session,
)
from jmsql.admin import Administration
from jmsql.store.rows.message_rows import MessageKey
from jmsql.store.sending.conditional import forget_keys
from jmsql.store.sending.notification import Notification
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.testing import receive_all, wait_for
from tests.integration.client.server import Server
from tests.texts import texts_of

KEY = "customer 5"


def send(target: Any, text: str, **options: Any) -> str:
    return jmsql.send(target, "customers", text, coalesce=KEY, **options)


def texts(connection: Connection, queue: str = "customers") -> list[str]:
    """Receive all there is."""
    with connection.create_session() as session:
        return texts_of(receive_all(session.create_consumer(queue)))


@pytest.fixture
def sender(connection: Connection) -> Session:
    """A transacted session of the connection."""
    return connection.create_session(transacted=True)


def test_nothing_is_sent_while_a_message_of_the_key_waits(connection: Connection) -> None:
    first = send(connection, "one")
    assert send(connection, "two", priority=9) == first
    assert jmsql.send(connection, "customers", "three", coalesce="customer 6") != first
    assert jmsql.send(connection, "others", "four", coalesce=KEY) != first
    assert texts(connection) == ["one", "three"]
    assert send(connection, "five") != first
    assert texts(connection) == ["five"]


def test_the_waiting_message_is_handled_after_the_senders_commit(
    connection: Connection, sender: Session, others: Session
) -> None:
    consumer = others.create_consumer("customers")
    send(connection, "one")
    jmsql.send(connection, "customers", "another")
    send(sender, "two")
    assert texts_of(receive_all(consumer)) == ["another"], "the other one is passed over"
    sender.commit()
    message = consumer.receive(timeout=60)
    assert message is not None
    assert texts_of([message, *receive_all(consumer)]) == ["one"]


@pytest.mark.parametrize("mode", AcknowledgeMode)
def test_a_message_that_is_handled_does_not_stand_for_another(
    connection: Connection, other_connection: Connection, mode: AcknowledgeMode
) -> None:
    session = other_connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode)
    consumer = session.create_consumer("customers")
    first = send(connection, "one")
    assert consumer.receive(timeout=60) is not None
    assert send(connection, "two") != first


def test_a_handler_that_sends_with_its_own_key_is_called_again(sender: Session, connection: Connection) -> None:
    connection.start()
    send(connection, "one")
    consumer = sender.create_consumer("customers")
    assert consumer.receive(timeout=60) is not None
    send(sender, "two")
    send(sender, "three")
    sender.commit()
    assert texts(connection) == ["two"]


def test_a_message_that_comes_back_waits_again(connection: Connection, sender: Session) -> None:
    first = send(connection, "one")
    consumer = sender.create_consumer("customers")
    assert consumer.receive(timeout=60) is not None
    sender.rollback()
    assert send(connection, "two") == first


@pytest.mark.usefixtures("maintenance_suspended")
def test_a_message_on_its_way_to_a_dead_letter_queue_does_not_wait(connection: Connection, server: Server) -> None:
    first = send(connection, "one")
    server.rows(
        "insert into jmsql_internal.delivery (queue_id, inverse_priority, sequence, dead_letter_queue_id) "
        "select queue_id, inverse_priority, sequence, 0 from jmsql_internal.message"
    )
    assert send(connection, "two") != first


def test_a_message_that_backs_off_waits(connection: Connection, server: Server) -> None:
    first = send(connection, "one")
    server.rows(
        "insert into jmsql_internal.delivery (queue_id, inverse_priority, sequence, next_attempt, delivery_count) "
        "select queue_id, inverse_priority, sequence, clock_timestamp() + interval '1 h', 1 from jmsql_internal.message"
    )
    assert send(connection, "two") == first


def test_a_message_sent_again_takes_no_key(connection: Connection, jmsql_factory: ConnectionFactory) -> None:
    first = send(connection, "one")
    with Administration(jmsql_factory.url) as administration:
        administration.create_queue("aside")
        administration.move("customers", "aside")
        second = send(connection, "two")
        assert second != first
        administration.move("aside", "customers")
    assert send(connection, "three") == second
    assert sorted(texts(connection)) == ["one", "two"]


def test_the_latest_body_takes_the_place_of_the_one_that_waits(connection: Connection) -> None:
    first = send(connection, "one", priority=7)
    jmsql.send(connection, "customers", "another", priority=7)
    second = send(connection, "two", coalesce_body="latest", properties={"colour": "blue"})
    assert second != first
    assert send(connection, "three") == second
    with connection.create_session() as session:
        message, *rest = receive_all(session.create_consumer("customers"))
    assert (message.get_body(str), message.jms_priority, message.properties["colour"]) == ("two", 7, "blue")
    assert message.jms_message_id == second
    assert texts_of(rest) == ["another"]


def test_the_latest_body_replaces_a_message_fetched_ahead(connection: Connection, sender: Session) -> None:
    jmsql.send(connection, "customers", "before")
    send(connection, "one")
    consumer = sender.create_consumer("customers")
    assert consumer.receive(timeout=60) is not None
    send(sender, "two", coalesce_body="latest")
    sender.commit()
    assert texts(connection) == ["two"]


def test_one_of_each_key_is_sent_of_a_batch(connection: Connection, sender: Session) -> None:
    producer = sender.create_producer("customers")
    for number in range(130):
        message = sender.create_text_message(str(number))
        if number % 13:
            message.properties["JMS_jmsql_Coalesce"] = f"customer {number % 13}"
            message.properties["JMS_jmsql_CoalesceBody"] = "latest" if number % 2 else "first"
        producer.send(message)
    sender.commit()
    latest = [
        max(number for number in range(130) if number % 13 == key and (number % 2 or number == key))
        for key in range(1, 13)
    ]
    assert texts(connection) == [*map(str, [0, *latest]), *(str(number) for number in range(13, 130, 13))]


def test_a_duplicate_of_a_batch_does_not_stand_for_others(connection: Connection, sender: Session) -> None:
    jmsql.send(connection, "customers", "zero", deduplication_id="a")
    producer = sender.create_producer("customers")
    for text, identifier in (("one", "a"), ("two", "b")):
        message = sender.create_text_message(text)
        message.properties.update({"JMS_jmsql_DeduplicationID": identifier, "JMS_jmsql_Coalesce": KEY})
        producer.send(message)
    sender.commit()
    assert texts(connection) == ["zero", "two"]


def test_an_id_of_a_coalesced_message_stands_for_the_one_that_waits(connection: Connection, server: Server) -> None:
    first = send(connection, "one")
    assert send(connection, "two", deduplication_id="a") == first
    assert jmsql.send(connection, "customers", "three", deduplication_id="a") == first
    by_sql = "select jmsql.send('customers', 'four', jsonb_build_object('JMS_jmsql_DeduplicationID', %s::text) || %s)"
    for key in ({"JMS_jmsql_Coalesce": KEY}, {}):
        assert server.rows(by_sql, "b", Jsonb(key)) == [(first,)]
    assert texts(connection) == ["one"]
    assert send(connection, "five", deduplication_id="a") == first, "it was handled"


@pytest.mark.parametrize("ids", ["abc", "aba", "-bc", "a-c"])
@pytest.mark.parametrize("waits", [False, True], ids=["none waits", "one waits"])
def test_ids_of_a_batch_stand_for_messages_that_are_sent(
    connection: Connection, sender: Session, server: Server, waits: bool, ids: str
) -> None:
    cases = {
        f"customers-{place}": bodies for place, bodies in enumerate(itertools.product(["first", "latest"], repeat=3))
    }
    known = {queue: [jmsql.send(connection, queue, "before", coalesce=KEY)] if waits else [] for queue in cases}
    producer = sender.create_producer(None)
    for queue, bodies in cases.items():
        for identifier, body in zip(ids, bodies, strict=True):
            message = sender.create_text_message(body)
            message.properties.update({"JMS_jmsql_Coalesce": KEY, "JMS_jmsql_CoalesceBody": body})
            if identifier != "-":
                message.properties["JMS_jmsql_DeduplicationID"] = identifier
            producer.send(message, destination=jmsql.Queue(queue))
    sender.commit()
    for queue, bodies in cases.items():
        with sender.create_browser(sender.create_queue(queue)) as browser:
            (waiting,) = browser
        for identifier in set(ids) - {"-"}:
            found = jmsql.send(connection, queue, "again", deduplication_id=identifier)
            assert found in [waiting.jms_message_id, *known[queue]], (bodies, identifier)


@pytest.mark.usefixtures("maintenance_suspended")
def test_a_delayed_message_waits_and_keeps_its_key(
    connection: Connection, server: Server, jmsql_clean_url: str, moved: Callable[[], int]
) -> None:
    first = send(connection, "one", delivery_delay=50)
    assert send(connection, "two", delivery_delay=60) == first
    second = send(connection, "three", delivery_delay=40)
    assert second != first, "it is due earlier"
    third = send(connection, "four", delivery_delay=70, coalesce_body="latest")
    assert send(connection, "five", delivery_delay=70) == third
    server.rows("update jmsql_internal.coalescing set jms_delivery_time = jms_delivery_time - 60000")
    server.rows("update jmsql_internal.delayed_message set jms_delivery_time = jms_delivery_time - 60000")
    assert moved() == 2
    assert send(connection, "six") == third
    assert texts(connection) == ["four", "one"]


@pytest.fixture
def moved(jmsql_clean_url: str) -> Callable[[], int]:
    """Moves what is due, and returns how many messages there are."""
    from jmsql.store.maintenance.due_messages import move_due

    def move() -> int:
        with psycopg.connect(jmsql_clean_url, autocommit=True) as database:
            return sum(PsycopgRunner(database, "jmsql").run(move_due.bind(limit=10)).values())

    return move


def test_a_message_that_can_expire_does_not_stand_for_one_that_cannot(connection: Connection) -> None:
    first = send(connection, "one", time_to_live=60)
    assert send(connection, "two", time_to_live=90) == first
    third = send(connection, "three")
    assert third != first
    assert send(connection, "four", time_to_live=90) == third


def test_a_topic_takes_no_key(connection: Connection, server: Server) -> None:
    with pytest.raises(InvalidDestinationException, match="cannot coalesce"):
        jmsql.send(connection, "topic://prices", "one", coalesce=KEY)
    with pytest.raises(psycopg.DatabaseError, match="cannot coalesce"):
        server.rows("""select jmsql.send('topic://prices', 'x', '{"JMS_jmsql_Coalesce": "a"}')""")


@pytest.mark.parametrize("level", [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE])
def test_a_transaction_blind_to_other_receivers_is_refused(
    connection: Connection, jmsql_clean_url: str, level: psycopg.IsolationLevel
) -> None:
    send(connection, "one")
    with psycopg.connect(jmsql_clean_url) as database:
        database.set_isolation_level(level)
        with pytest.raises(IllegalStateException, match="READ COMMITTED"):
            send(database, "two")


def test_another_body_than_the_first_or_the_latest_is_refused(connection: Connection) -> None:
    with pytest.raises(MessageFormatException, match="'first' or 'latest'"):
        send(connection, "one", coalesce_body="newest")


def test_a_role_that_may_only_send_coalesces(url_of: Any, connection: Connection) -> None:
    with psycopg.connect(url_of("sender"), autocommit=True) as database:
        first = jmsql.send(database, "orders", "one", coalesce=KEY)
        assert jmsql.send(database, "orders", "two", coalesce=KEY) == first
        assert jmsql.send(database, "orders", "three", coalesce=KEY, coalesce_body="latest") != first
    assert texts(connection, "orders") == ["three"]


def test_sql_coalesces(server: Server, connection: Connection) -> None:
    properties = """'{"JMS_jmsql_Coalesce": "customer 5"}'"""
    [(first,)] = server.rows(f"select jmsql.send('customers', 'one', {properties})")
    [(second,)] = server.rows(f"select jmsql.send('customers', 'two', {properties})")
    assert first == second == send(connection, "three")
    assert texts(connection) == ["one"]


def test_a_savepoint_that_is_rolled_back_has_sent_nothing(connection: Connection, jmsql_clean_url: str) -> None:
    with psycopg.connect(jmsql_clean_url) as database:
        database.execute("savepoint before")
        send(database, "one")
        database.execute("rollback to savepoint before")
        send(database, "two")
        database.commit()
    assert texts(connection) == ["two"]


@pytest.mark.usefixtures("maintenance_suspended")
def test_maintenance_forgets_keys_of_messages_that_are_gone(
    connection: Connection, server: Server, jmsql_clean_url: str
) -> None:
    send(connection, "one")
    send(connection, "two", delivery_delay=60)
    jmsql.send(connection, "customers", "three", coalesce="customer 6")
    jmsql.send(connection, "customers", "four", delivery_delay=60, coalesce="customer 7")
    server.rows("delete from jmsql_internal.message where text_body = 'one'")
    with psycopg.connect(jmsql_clean_url, autocommit=True) as database:
        assert PsycopgRunner(database, "jmsql").run(forget_keys.bind(limit=10)) == 1
    assert server.rows("select coalesce_key from jmsql_internal.coalescing order by 1") == [
        ("customer 6",),
        ("customer 7",),
    ]


def test_a_consumer_that_waits_hears_of_the_commit(connection: Connection, sender: Session, others: Session) -> None:
    consumer = others.create_consumer("customers")
    send(connection, "one")
    send(sender, "two")
    received: list[Any] = []
    consumer.message_listener = received.append
    sender.commit()
    wait_for(lambda: received)


def test_consumers_that_have_passed_the_place_of_a_replaced_message_are_told_of_it(
    connection: Connection, server: Server, jmsql_clean_url: str
) -> None:
    send(connection, "one")
    [place] = server.rows("select queue_id, inverse_priority, sequence from jmsql_internal.message")
    with psycopg.connect(jmsql_clean_url, autocommit=True) as listener, psycopg.connect(jmsql_clean_url) as database:
        listener.execute("listen jmsql")
        send(database, "two", coalesce_body="latest")
        database.commit()
        expected = Notification(place[0], MessageKey(*place)).payload()
        assert any(event.payload == expected for event in listener.notifies(timeout=60))
    assert server.rows("select queue_id, inverse_priority, sequence from jmsql_internal.message") == [place]
    assert texts(connection) == ["two"]


def test_a_message_that_replaces_another_has_none_of_its_deliveries(
    connection: Connection, sender: Session, server: Server
) -> None:
    consumer = sender.create_consumer("customers")
    send(connection, "one", coalesce_body="latest")
    for _ in range(2):
        assert consumer.receive(60) is not None
        sender.rollback(ValueError("It is broken."))
    send(connection, "two", coalesce_body="latest")
    assert (
        server.rows("select (select count(*) from jmsql_internal.delivery_outcome) from jmsql_internal.delivery") == []
    )
    consumer.redelivery_policy = RedeliveryPolicy(maximum_deliveries=1, dead_letter_queue="DLQ")
    message = consumer.receive(60)
    assert message is not None
    assert (message.get_body(str), message.jms_redelivered, message.delivery_count) == ("two", False, 1)
    sender.commit()


@pytest.mark.parametrize("is_delayed", [False, True])
def test_a_sender_moves_no_message_of_another_into_the_place_of_its_own(
    connection: Connection, server: Server, jmsql_clean_url: str, is_delayed: bool
) -> None:
    """Every sender may say where the messages are that it has sent with a key."""
    replaced = send(connection, "one", delivery_delay=600 if is_delayed else 0)
    victim = jmsql.send(connection, "customers", "another's", delivery_delay=1200 if is_delayed else 0)
    victim = victim.removeprefix("ID:")
    table = "delayed_message" if is_delayed else "message"
    place = (
        f"select inverse_priority, sequence, jms_delivery_time from jmsql_internal.{table} where jms_message_id = %s"
    )
    with psycopg.connect(jmsql_clean_url) as sender:
        before = sender.execute(place.encode(), [victim]).fetchall()
        [(priority, _, time)] = before
        parameters = {"id": [victim], "key": [KEY], "time": [time], "priority": [priority]}
        sender.execute(
            "insert into jmsql_internal.admission (topic, queues, message_ids, deduplication_ids, coalesce_keys, "
            "replacing, expiring, delivery_times) values (null, '{customers}', %(id)s::text[]::uuid[], '{null}', "
            "%(key)s, '{true}', '{false}', %(time)s::bigint[])",
            parameters,
        )
        assert sender.execute(place.encode(), [replaced.removeprefix("ID:")]).fetchall() == []
        sender.execute(
            "insert into jmsql_internal.admission (queues, message_ids, coalesce_keys, delivery_times, "
            "inverse_priorities, first_sequence) values ('{customers}', %(id)s::text[]::uuid[], %(key)s, "
            "%(time)s::bigint[], %(priority)s::smallint[], 0)",
            parameters,
        )
    assert server.rows(place, victim) == before
