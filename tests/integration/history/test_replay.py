"""What has left a destination goes to a queue again."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest

import jmsql
from jmsql.testing import receive_all
from tests.integration.history.conftest import SetClock, dequeue, send

NOON = datetime(2030, 3, 10, 12, tzinfo=UTC)
AGAIN = jmsql.Queue("again")


@pytest.fixture
def hours(
    jmsql_factory: jmsql.ConnectionFactory,
    orders: jmsql.Queue,
    administration: jmsql.admin.Administration,
    set_clock: SetClock,
) -> jmsql.Queue:
    """A queue from which a message left at 11:00, 12:00 and so on, until 12:00 on the next day."""
    with jmsql_factory.create_connection() as connection:
        connection.start()
        session = connection.create_session()
        producer, consumer = session.create_producer(orders), session.create_consumer(orders)
        for hour in range(-1, 25):
            set_clock(NOON + timedelta(hours=hour))
            producer.send(session.create_text_message(str(12 + hour)))
            assert consumer.receive(timeout=60) is not None
    administration.create_queue(AGAIN.name)
    return orders


def _received(factory: jmsql.ConnectionFactory) -> list[jmsql.Message]:
    with factory.create_connection() as connection:
        connection.start()
        return list(receive_all(connection.create_session().create_consumer(AGAIN)))


def _texts(messages: list[jmsql.Message]) -> list[str | None]:
    return [message.get_body(str) for message in messages]


def test_a_range_of_time_goes_to_a_queue_in_order(
    hours: jmsql.Queue, administration: jmsql.admin.Administration, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    reports: list[tuple[int, int]] = []
    since, until = NOON + timedelta(hours=10), NOON + timedelta(hours=14)

    sent = administration.history.replay(
        hours, AGAIN, since=since, until=until, progress=lambda *report: reports.append(report)
    )

    assert (sent, reports) == (4, [(4, 4)])
    assert _texts(_received(jmsql_factory)) == ["22", "23", "24", "25"]
    assert administration.history.count(hours) == 26, "it stays in the history"


def test_a_selector_chooses_and_repeating_sends_again(
    hours: jmsql.Queue, administration: jmsql.admin.Administration, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    for _ in range(2):
        assert administration.history.replay(hours, AGAIN, since=NOON, selector="JMSPriority = 4") == 25
    assert administration.history.replay(hours, AGAIN, since=NOON, selector="JMSPriority = 5") == 0
    assert len(_received(jmsql_factory)) == 50


def test_a_replayed_message_names_its_origin(
    jmsql_factory: jmsql.ConnectionFactory, orders: jmsql.Queue, administration: jmsql.admin.Administration
) -> None:
    since = datetime.now(UTC) - timedelta(minutes=1)
    with jmsql_factory.create_connection() as connection:
        session = connection.create_session()
        original = session.create_map_message()
        original["weight"] = 2.5
        original.set_short_property("size", 3)
        original.jms_correlation_id = "c-1"
        session.create_producer(orders).send(original, priority=8, time_to_live=3600)
    dequeue(jmsql_factory, orders)
    administration.create_queue(AGAIN.name)
    administration.history.replay(orders, AGAIN, since=since)
    administration.history.replay(orders, "again", since=since, keep_ids=True)

    fresh, kept = _received(jmsql_factory)

    for message in (fresh, kept):
        assert isinstance(message, jmsql.MapMessage)
        assert (message["weight"], message.get_short_property("size")) == (2.5, 3)
        assert (message.jms_correlation_id, message.jms_priority) == ("c-1", 8)
        assert message.jms_expiration == 0, "else it would be gone at once"
        assert message.get_string_property("JMS_jmsql_ReplayedFrom") == "queue://orders"
        assert message.get_string_property("JMS_jmsql_ReplayedMessageID") == original.jms_message_id
        assert (message.jms_redelivered, message.get_int_property("JMSXDeliveryCount")) == (False, 1)
    assert fresh.jms_message_id != original.jms_message_id
    assert fresh.jms_timestamp >= original.jms_timestamp
    assert (kept.jms_message_id, kept.jms_timestamp) == (original.jms_message_id, original.jms_timestamp)


def test_a_message_of_a_topic_is_sent_once_whatever_subscriptions_had_it(
    jmsql_factory: jmsql.ConnectionFactory,
    administration: jmsql.admin.Administration,
    database: psycopg.Connection[Any],
) -> None:
    prices = administration.create_topic("prices", history=True)
    administration.create_queue(AGAIN.name)
    large = "17.5" + " " * 10_000
    with jmsql_factory.create_connection() as connection:
        connection.client_id = "exchange"
        session = connection.create_session()
        connection.start()
        consumers = [session.create_durable_consumer(prices, name) for name in ("audit\0", "work")]
        session.create_producer(prices).send(session.create_text_message(large))
        session.create_producer(prices).send(session.create_text_message("18.0"))
        for consumer in consumers:
            assert len(list(receive_all(consumer))) == 2
    since = datetime.now(UTC) - timedelta(minutes=1)

    assert administration.history.replay(prices, AGAIN, since=since) == 2
    assert administration.history.replay(prices, AGAIN, since=since, subscription="audit\0") == 2
    assert administration.history.replay(prices, AGAIN, since=since, subscription="other") == 0
    assert administration.history.replay("prices", AGAIN, since=since) == 0, "that would be a queue"
    # What was replayed needs the history's body no longer.
    database.execute("delete from jmsql_internal.message_history; delete from jmsql_internal.body")
    assert _texts(_received(jmsql_factory)) == [large, "18.0"] * 2


def test_only_acknowledged_messages_go_unless_others_are_named(
    jmsql_factory: jmsql.ConnectionFactory, orders: jmsql.Queue, administration: jmsql.admin.Administration
) -> None:
    administration.create_queue(AGAIN.name)
    send(jmsql_factory, "purged", destination=orders)
    administration.purge(orders)
    send(jmsql_factory, "handled", destination=orders)
    dequeue(jmsql_factory, orders)
    since = datetime.now(UTC) - timedelta(minutes=1)

    administration.history.replay(orders, AGAIN, since=since)
    assert _texts(_received(jmsql_factory)) == ["handled"]
    administration.history.replay(orders, AGAIN, since=since, outcomes=["purged"])
    assert _texts(_received(jmsql_factory)) == ["purged"]
    with pytest.raises(ValueError, match="is not an outcome"):
        administration.history.replay(orders, AGAIN, since=since, outcomes=["lost"])


def test_nothing_goes_to_a_queue_that_is_not_there(
    orders: jmsql.Queue, administration: jmsql.admin.Administration, database: psycopg.Connection[Any]
) -> None:
    with pytest.raises(jmsql.InvalidDestinationException, match="nowhere"):
        administration.history.replay(orders, "nowhere", since=NOON)
    with pytest.raises(psycopg.Error, match="nowhere"):
        database.execute("select jmsql.replay('orders', 'nowhere', now())")


def test_a_replay_that_fails_half_way_has_sent_nothing(
    hours: jmsql.Queue, administration: jmsql.admin.Administration, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    def interrupt(sent: int, total: int) -> None:
        raise RuntimeError(f"{sent} of {total}")

    with pytest.raises(RuntimeError, match="26 of 26"):
        administration.history.replay(hours, AGAIN, since=NOON - timedelta(days=1), progress=interrupt)

    assert _received(jmsql_factory) == []


def test_thousands_go_in_steps(
    jmsql_factory: jmsql.ConnectionFactory,
    orders: jmsql.Queue,
    administration: jmsql.admin.Administration,
    database: psycopg.Connection[Any],
) -> None:
    administration.create_queue(AGAIN.name)
    send(jmsql_factory, *map(str, range(12_000)), destination=orders)
    assert administration.purge(orders) == 12_000
    reports: list[tuple[int, int]] = []

    administration.history.replay(
        orders,
        AGAIN,
        since=datetime.now(UTC) - timedelta(hours=1),
        outcomes=["purged"],
        progress=lambda *report: reports.append(report),
    )

    assert reports == [(5_000, 12_000), (10_000, 12_000), (12_000, 12_000)]
    bodies = database.execute("select text_body from jmsql_internal.message order by sequence").fetchall()
    assert [body for (body,) in bodies] == list(map(str, range(12_000)))


def test_sql_sends_a_range_again(
    hours: jmsql.Queue,
    database: psycopg.Connection[Any],
    jmsql_factory: jmsql.ConnectionFactory,
) -> None:
    statement = "select jmsql.replay('queue://orders', 'again', %s, %s)"
    assert database.execute(statement, (NOON, NOON + timedelta(hours=2))).fetchone() == (2,)
    assert _texts(_received(jmsql_factory)) == ["12", "13"]
    assert database.execute("select jmsql.replay('orders', 'again', %s)", (NOON,)).fetchone() == (25,)


def test_replays_and_removals_leave_lines_in_the_activity(
    hours: jmsql.Queue, jmsql_factory: jmsql.ConnectionFactory, set_clock: SetClock
) -> None:
    with jmsql.admin.Administration(jmsql_factory, actor="alice") as administration:
        history = administration.history
        assert (
            history.replay(hours, AGAIN, since=NOON, selector="JMSPriority = 4", until=NOON + timedelta(hours=2)) == 2
        )
        assert history.replay(hours, AGAIN, since=NOON + timedelta(days=9)) == 0
        set_clock(NOON + timedelta(days=30))
        removed = list(history.prune(before=date(2030, 3, 11), destination=hours))
        dropped = list(history.prune(before=date(2030, 3, 12)))
        assert (sum(each.messages for each in removed), len(dropped)) == (13, 2)
        found = [each for each in administration.activity() if each.action in {"replay", "prune"}]
    days, some, replay = found
    assert {each.actor for each in found} == {"alice"}
    assert (replay.messages, replay.selector, replay.destination, replay.target) == (
        *(2, "JMSPriority = 4", "queue://orders", "queue://again"),
    )
    assert (some.action, some.messages, some.destination, some.details) == (
        *("prune", 13, "queue://orders", "history of 2030-03-10"),
    )
    assert (days.action, days.destination, days.details) == (
        *("prune", None, "history of 2030-03-10, with about so many messages"),
    )
    assert {each.outcome for each in found} == {"done"}


@pytest.mark.parametrize("zone", [None, UTC, timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))], ids=str)
def test_the_first_and_the_last_time_of_python_are_no_bounds(
    hours: jmsql.Queue, administration: jmsql.admin.Administration, zone: timezone | None
) -> None:
    since, until = datetime.min.replace(tzinfo=zone), datetime.max.replace(tzinfo=zone)
    assert len(list(administration.history.messages(hours, since=since, until=until))) == 26
