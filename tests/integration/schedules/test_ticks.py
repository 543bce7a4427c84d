"""Ticks: which messages schedules send, and when."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from jmsql import Connection, ConnectionFactory, JMSException, Missed, Topic
from jmsql.admin import Administration
from jmsql.testing import wait_for

SetDue = Callable[[str, str], None]


def bodies(sql: psycopg.Connection, queue: str = "reports") -> list[tuple[str, dict[str, Any]]]:
    """Return the bodies and properties of the messages in a queue, in their order."""
    return sql.execute(
        "select body, properties from jmsql.messages where queue = %s order by sequence", (queue,)
    ).fetchall()


def fail(sql: psycopg.Connection, name: str = "report") -> None:
    """Have it look as if its last tick had failed, for a cause that is gone."""
    sql.execute(
        "update jmsql_internal.schedule set last_error = 'gone', failed_at = clock_timestamp() where name = %s", (name,)
    )


def missed_ticks(sql: psycopg.Connection, name: str = "report") -> int:
    (missed,) = sql.execute("select missed_ticks from jmsql.schedules where schedule = %s", (name,)).fetchone() or (0,)
    return int(missed)


@pytest.mark.usefixtures("receiver")
def test_a_tick_sends_its_message_with_its_time(
    administration: Administration, sql: psycopg.Connection, set_due: SetDue
) -> None:
    administration.set_schedule("report", "0 3 1 1 *", "reports", "go", properties={"color": "blue"}, priority=7)
    before = administration.schedule("report")
    set_due("report", "0")
    wait_for(lambda: administration.schedule("report").sent == 1)
    after = administration.schedule("report")
    [(body, properties)] = bodies(sql)
    assert body == "go"
    assert after.last_at is not None
    assert properties == {
        "color": "blue",
        "JMS_jmsql_Schedule": "report",
        "JMS_jmsql_ScheduledTime": after.last_at.timestamp() * 1000,
        "JMS_jmsql_MissedTicks": 0,
    }
    assert after.next_at == before.next_at  # the next 1st of January


def test_a_receiver_gets_the_message_of_a_tick_at_once(
    administration: Administration, set_due: SetDue, jmsql_factory: ConnectionFactory
) -> None:
    with jmsql_factory.create_connection() as connection:
        consumer = connection.create_session().create_consumer("reports")
        connection.start()
        administration.set_schedule("report", timedelta(days=1), "reports", {"kind": "daily"})
        set_due("report", "0")
        message = consumer.receive(60.0)
        assert message is not None
        assert message.get_body(dict) == {"kind": "daily"}
        assert message.get_string_property("JMS_jmsql_Schedule") == "report"
        scheduled = datetime.fromtimestamp(message.get_long_property("JMS_jmsql_ScheduledTime") / 1000, UTC)
        assert administration.schedule("report").next_at == scheduled + timedelta(days=1)


@pytest.mark.usefixtures("receiver")
@pytest.mark.parametrize(
    ("missed", "sent", "left_out"), [(Missed.ONCE, 1, 168), (Missed.SKIP, 0, 169), (Missed.ALL, 169, 0)]
)
def test_ticks_of_a_week_without_clients_are_sent_as_the_schedule_says(
    administration: Administration, sql: psycopg.Connection, set_due: SetDue, missed: Missed, sent: int, left_out: int
) -> None:
    # The last one is from half an hour ago, the first from a week before.
    minute = (datetime.now(UTC) - timedelta(minutes=30)).minute
    administration.set_schedule("report", f"{minute} * * * *", "reports", missed=missed)
    fail(sql)
    set_due("report", "7 days 30 minutes")
    wait_for(
        lambda: (administration.schedule("report").next_at or datetime.min.replace(tzinfo=UTC)) > datetime.now(UTC),
        timeout=60,
    )
    assert administration.schedule("report").last_error is None, "also if the tick is left out"
    found = bodies(sql)
    assert (len(found), missed_ticks(sql)) in ((sent, left_out), (sent, left_out + 1), (sent + 1, left_out))
    if missed is Missed.ONCE:
        [(_, properties)] = found
        assert properties["JMS_jmsql_MissedTicks"] == missed_ticks(sql)
        passed = datetime.now(UTC) - datetime.fromtimestamp(properties["JMS_jmsql_ScheduledTime"] / 1000, UTC)
        assert timedelta(minutes=29) <= passed < timedelta(hours=1)


def test_many_missed_ticks_are_sent_up_to_a_limit(
    administration: Administration, sql: psycopg.Connection, set_due: SetDue, receiver: Connection
) -> None:
    administration.set_schedule("report", timedelta(seconds=30), "reports", missed="all")
    set_due("report", "400 days")
    wait_for(lambda: administration.schedule("report").sent > 0)
    receiver.close()
    first = bodies(sql)[0][1]
    assert first["JMS_jmsql_MissedTicks"] == 1000  # and more, which are not counted
    earliest = datetime.fromtimestamp(first["JMS_jmsql_ScheduledTime"] / 1000, UTC)
    assert timedelta(seconds=0) <= datetime.now(UTC) - earliest - timedelta(seconds=29_970) < timedelta(minutes=5)


@pytest.mark.usefixtures("receiver")
def test_without_overlap_a_tick_waits_for_the_end_of_the_last_message(
    administration: Administration, sql: psycopg.Connection, set_due: SetDue, jmsql_factory: ConnectionFactory
) -> None:
    administration.set_schedule("report", "0 3 * * *", "reports", "go", overlap=False)

    def left_out(expected: int) -> None:
        set_due("report", "0")
        query = "select overlapped_ticks, sent from jmsql.schedules"
        wait_for(lambda: sql.execute(query).fetchone() == (expected, 1))

    set_due("report", "0")
    wait_for(lambda: len(bodies(sql)) == 1)
    fail(sql)
    left_out(1)  # it waits
    assert administration.schedule("report").last_error is None
    with jmsql_factory.create_connection() as connection:
        connection.start()
        session = connection.create_session(transacted=True)
        message = session.create_consumer("reports").receive(60.0)
        assert message is not None
        left_out(2)  # it is being handled
        administration.send_scheduled("report")
        sql.execute(
            "delete from jmsql_internal.message m using jmsql_internal.schedule s where sequence > last_sequence"
        )
        set_due("report", "0")  # it is still the one to wait for
        wait_for(lambda: administration.schedule("report").overlapped_ticks == 3)
        session.commit()
    set_due("report", "0")
    wait_for(lambda: administration.schedule("report").sent == 3)
    assert len(bodies(sql)) == 1


def test_a_schedule_publishes_to_subscriptions_with_selectors(
    administration: Administration, set_due: SetDue, jmsql_factory: ConnectionFactory
) -> None:
    with jmsql_factory.create_connection() as connection:
        session = connection.create_session()
        wanted, other = (session.create_consumer(Topic("news"), f"color = '{color}'") for color in ("blue", "red"))
        connection.start()
        administration.set_schedule("news", "@yearly", "topic://news", "go", properties={"color": "blue"})
        set_due("news", "0")
        message = wanted.receive(60.0)
        assert message is not None
        assert message.get_string_property("JMS_jmsql_Schedule") == "news"
        assert message.jms_message_id == administration.schedule("news").last_message_id
        administration.send_scheduled("news")
        assert wanted.receive(60.0) is not None
        assert other.receive(0.05) is None


@pytest.mark.usefixtures("receiver")
def test_a_failing_schedule_says_why_and_holds_up_no_other(
    administration: Administration, sql: psycopg.Connection, set_due: SetDue
) -> None:
    administration.set_schedule("bad", "0 3 * * *", "gone")
    administration.set_schedule("good", "0 3 * * *", "reports", "go")
    administration.delete("gone")
    administration.set_automatic_creation(enabled=False)
    try:
        set_due("bad", "1 minute")
        set_due("good", "0")
        wait_for(lambda: administration.schedule("good").sent == 1)
        wait_for(lambda: administration.schedule("bad").last_error is not None)
        assert "gone" in str(administration.schedule("bad").last_error)
        assert administration.schedule("bad").sent == 0
    finally:
        administration.set_automatic_creation(enabled=True)
    sql.execute("update jmsql_internal.schedule set time_zone = 'Europe/Nowhere' where name = 'good'")
    set_due("good", "0")
    wait_for(lambda: "Europe/Nowhere" in str(administration.schedule("good").last_error))


@pytest.mark.usefixtures("receiver")
def test_a_paused_schedule_has_no_ticks_and_goes_on_after_now(
    administration: Administration, sql: psycopg.Connection, set_due: SetDue
) -> None:
    administration.set_schedule("report", "0 3 * * *", "reports", "go")
    fail(sql)
    administration.pause_schedule("report")
    assert administration.schedule("report").next_at is None
    assert administration.schedule("report").last_error is None
    administration.set_schedule("report", "0 4 * * *", "reports", "changed")  # it stays paused
    set_due("report", "0")
    administration.set_schedule("other", "0 4 * * *", "others", "go")
    set_due("other", "0")
    wait_for(lambda: administration.schedule("other").sent == 1)
    assert administration.schedule("report").sent == 0
    sent = administration.send_scheduled("report")
    assert [body for body, _ in bodies(sql)] == ["changed"]
    assert administration.schedule("report").last_message_id == sent
    administration.resume_schedule("report")
    next_at = administration.schedule("report").next_at
    assert next_at is not None
    assert next_at > datetime.now(UTC) - timedelta(minutes=1)
    administration.delete_schedule("report")
    for change in (
        administration.pause_schedule,
        administration.resume_schedule,
        administration.delete_schedule,
        administration.send_scheduled,
        administration.schedule,
    ):
        with pytest.raises(JMSException, match="There is no schedule 'report'"):
            change("report")


def test_an_edit_keeps_the_next_tick_unless_its_times_change(administration: Administration, set_due: SetDue) -> None:
    administration.set_schedule("report", timedelta(hours=5), "reports", "go")
    first = administration.schedule("report").next_at
    administration.set_schedule("report", timedelta(hours=5), "reports", "changed", missed="skip")
    assert administration.schedule("report").next_at == first
    administration.set_schedule("report", "@yearly", "reports", "changed")
    assert administration.schedule("report").next_at != first
    set_due("report", "1 hour")
    due = administration.schedule("report").next_at
    administration.set_schedule("report", "0 3 * * *", "reports", "changed")  # which loses no tick
    assert administration.schedule("report").next_at == due


@pytest.mark.parametrize(
    ("when", "options", "reason"),
    [
        ("0 25 * * *", {}, "Cannot read"),
        ("* * *", {}, "Cannot read"),
        ("1#2/3 * * * 1#2/3", {}, "Cannot read"),
        ("9" * 5000, {}, "at most 1000"),
        ("0 0 30 2 *", {}, "Cannot read|has no tick"),
        (timedelta(milliseconds=999), {}, "from 1 second"),
        ("@daily", {"time_zone": "Europe/Nowhere"}, "no time zone"),
        ("@daily", {"time_zone": "../etc/passwd"}, "no time zone"),
        ("@daily", {"missed": "never"}, "never"),
        ("@daily", {"priority": 10}, "priority"),
        ("@daily", {"destination": "topic://news", "overlap": False}, "needs a queue"),
        ("@daily", {"name": ""}, "name of a schedule"),
        ("@daily", {"name": "a\0b"}, "name of a schedule"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(
    administration: Administration, when: Any, options: dict[str, Any], reason: str
) -> None:
    arguments = {"name": "report", "destination": "reports"} | options
    with pytest.raises(ValueError, match=reason):
        administration.set_schedule(when=when, **arguments)
    assert administration.schedules() == []
