"""The activity: each action of an administrator leaves a line in its own transaction, by whatever program."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import psycopg.sql
import pytest
import sqlalchemy

from jmsql import Connection, ConnectionFactory, JMSSecurityException, Queue, Session
from jmsql.admin import Administration
from jmsql.store.administration import emptying
from jmsql.testing import receive_all, wait_for
from tests.integration.access.role_kinds import PASSWORD, roles_of_each_kind
from tests.texts import receive, send_texts

OTHER = Queue("other")


@pytest.fixture(autouse=True)
def queue(administration: Administration, queue: Queue) -> Queue:
    administration.create_queue(OTHER.name)
    return administration.create_queue(queue.name)


@pytest.fixture
def sql(jmsql_clean_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        yield connection


def shown(administration: Administration, *names: str) -> list[tuple[Any, ...]]:
    """The values of all actions, the first one first."""
    return [tuple(getattr(each, name) for name in names) for each in reversed(administration.activity())]


def send(session: Session, queue: Queue, *texts: str, **properties: str) -> list[str]:
    sent = []
    for text in texts:
        message = session.create_text_message(text)
        message.properties.update(properties)
        session.create_producer(queue).send(message)
        sent.append(message.jms_message_id or "")
    return sent


def test_changes_of_messages_by_python_record_the_role_and_the_messages(
    jmsql_factory: ConnectionFactory, session: Session, queue: Queue
) -> None:
    red = send(session, queue, "a", "b", color="red")
    blue = send(session, queue, "c", "d", "e", "f", color="blue")
    with Administration(jmsql_factory, actor="alice") as administration:
        assert administration.purge(queue, "color = 'red'") == 2
        places = [each.delivery.place for each in administration.browse(queue)]
        assert administration.move(queue, OTHER, places=places[:1]) == 1
        assert administration.move(queue, OTHER, "color = 'blue'", limit=1) == 1
        assert administration.purge(queue, places=places) == 2
        assert administration.purge(queue) == 0
        assert administration.cancel(blue[0]) == "removed"
        assert administration.cancel(blue[0]) == "gone"
        found = list(reversed(administration.activity()))
    assert [(each.action, each.messages, each.selector, each.target, each.outcome) for each in found] == [
        ("purge", 2, "color = 'red'", None, "done"),
        ("move", 1, None, "queue://other", "done"),
        ("move", 1, "color = 'blue'", "queue://other", "done"),
        ("purge", 2, None, None, "done"),
        ("cancel", 1, None, None, "removed"),
    ]
    assert [each.message_ids for each in found] == [red, blue[:1], blue[1:2], blue[2:], blue[:1]]
    assert {each.actor for each in found} == {"alice"}
    assert {each.destination for each in found} == {queue.uri, OTHER.uri}
    assert {each.user_name for each in found} == {"postgres"}


def test_an_action_in_steps_is_one_line(
    administration: Administration, session: Session, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emptying, "_AT_ONCE", 3)
    send_texts(session, queue, *"abcdefgh")
    assert administration.purge(queue) == 8
    [line] = administration.activity()
    assert (line.action, line.messages, len(line.message_ids)) == ("purge", 8, 3)
    assert line.ended_at > line.at


def test_sql_functions_leave_a_line_in_the_transaction_of_their_caller(
    administration: Administration, connection: Connection, session: Session, queue: Queue, jmsql_clean_url: str
) -> None:
    administration.alter(queue, maximum_deliveries=1)
    send_texts(session, queue, "a")
    transacted = connection.create_session(transacted=True)
    receive(transacted.create_consumer(queue))
    transacted.rollback()
    wait_for(lambda: administration.depth("DLQ").number == 1)
    send_texts(session, queue, *"bcd")
    with session.create_producer(queue) as producer:
        producer.delivery_delay = timedelta(hours=1)
        producer.send(session.create_text_message("e"))
    before = len(administration.activity())
    with psycopg.connect(jmsql_clean_url, application_name="cron of ops") as sql:
        for call in (
            "retry('DLQ')",
            "deliver('orders')",
            "move('orders', 'other', max_messages => 2)",
            "purge('orders')",
        ):
            sql.execute(f"select jmsql.{call}".replace("'orders'", f"'{queue.name}'"))
        sql.rollback()
        assert len(administration.activity()) == before
        sql.execute("select set_config('jmsql.actor', 'the nightly job', true)")
        for call in (
            "retry('DLQ')",
            "deliver('orders')",
            "move('orders', 'other', max_messages => 2)",
            "purge('orders')",
        ):
            sql.execute(f"select jmsql.{call}".replace("'orders'", f"'{queue.name}'"))
        sql.execute("select jmsql.pause(%s), jmsql.resume(%s)", [queue.name, queue.name])
        sql.commit()
    found = shown(administration, "action", "messages", "destination", "actor", "application")[before:]
    assert found == [
        (action, number, destination, "the nightly job", "cron of ops")
        for action, number, destination in [
            ("retry", 1, "queue://DLQ"),
            ("deliver", 1, queue.uri),
            ("move", 2, queue.uri),
            ("purge", 3, queue.uri),
            ("pause", None, queue.uri),
            ("resume", None, queue.uri),
        ]
    ]


def test_settings_deletions_schedules_access_and_names_are_noted(
    administration: Administration, queue: Queue, sql: psycopg.Connection[Any], jmsql_factory: ConnectionFactory
) -> None:
    administration.create_topic("prices")
    administration.alter(queue, maximum_deliveries=5)
    administration.alter(queue, maximum_deliveries=5)
    administration.alter(queue, maximum_deliveries=9, dead_letter_queue=OTHER)
    administration.reset(queue, "maximum_deliveries")
    administration.pause("topic://prices")
    administration.subscribe("prices", "audit", shared=True)
    administration.unsubscribe("audit")
    administration.set_schedule("nightly", "0 3 * * *", queue, "go")
    administration.pause_schedule("nightly")
    administration.resume_schedule("nightly")
    sent = administration.send_scheduled("nightly")
    administration.delete_schedule("nightly")
    administration.bind("jms/orders", queue)
    administration.unbind("jms/orders")
    administration.set_automatic_creation(enabled=False)
    administration.set_automatic_creation(enabled=True)
    administration.delete("topic://prices")
    administration.delete(queue, force=True)
    sql.execute("update jmsql_internal.queue set paused = true where name = 'other'")
    assert shown(administration, "action", "destination", "details") == [
        ("set", queue.uri, "maximum_deliveries: default → 5"),
        ("set", queue.uri, "dead_letter_queue: default → other"),
        ("set", queue.uri, "maximum_deliveries: 5 → 9"),
        ("set", queue.uri, "maximum_deliveries: 9 → default"),
        ("pause", "topic://prices", None),
        ("unsubscribe", "topic://prices", None),
        ("set schedule", queue.uri, "nightly"),
        ("pause schedule", queue.uri, "nightly"),
        ("resume schedule", queue.uri, "nightly"),
        ("send schedule", queue.uri, "nightly"),
        ("delete schedule", queue.uri, "nightly"),
        ("bind", None, "jms/orders"),
        ("unbind", None, "jms/orders"),
        ("set", None, "automatic_creation: true → false"),
        ("set", None, "automatic_creation: false → true"),
        ("delete", "topic://prices", None),
        ("delete", queue.uri, None),
        ("pause", "queue://other", None),
    ]
    assert [each.message_ids for each in administration.activity("send schedule")] == [[sent]]
    assert [each.subscription for each in administration.activity("unsubscribe")] == ["audit"]


def test_use_by_applications_is_no_activity(
    administration: Administration, connection: Connection, session: Session, jmsql_factory: ConnectionFactory
) -> None:
    send_texts(session, Queue("made by its use"), "a")
    assert len(receive_all(session.create_consumer(Queue("made by its use")))) == 1
    temporary = session.create_temporary_queue()
    send_texts(session, temporary, "a")
    temporary.delete()
    assert administration.activity() == []


def test_searching_and_going_on(administration: Administration, session: Session, queue: Queue) -> None:
    [sent] = send(session, queue, "a")
    administration.purge(queue)
    for _ in range(3):
        administration.pause(OTHER)
        administration.resume(OTHER)
    assert [each.action for each in administration.activity("PAUSE")] == ["pause"] * 3
    assert [each.action for each in administration.activity(sent)] == ["purge"]
    assert administration.activity("%") == []
    first = administration.activity(limit=4)
    rest = administration.activity(limit=4, before=first[-1].number)
    assert [each.action for each in first + rest] == ["resume", "pause"] * 3 + ["purge"]
    assert administration.activity(before=0) == []
    with pytest.raises(ValueError, match="limit"):
        administration.activity(limit=-1)
    with pytest.raises(TypeError, match="text"):
        administration.activity(7)  # type: ignore[arg-type]


def test_hostile_texts_are_kept_as_they_are(jmsql_factory: ConnectionFactory, queue: Queue) -> None:
    hostile = "<script>'; drop table x; --\0\ud800%s {} \n"
    with Administration(jmsql_factory, actor=hostile + "x" * 1000) as administration:
        administration.pause(queue)
        [line] = administration.activity()
    assert line.actor is not None
    assert line.actor.startswith(hostile)
    assert len(line.actor) <= 200


def as_role(url: str, role: str) -> str:
    return sqlalchemy.make_url(url).set(username=role, password=PASSWORD).render_as_string(hide_password=False)


@contextmanager
def connected(url: str, role: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url, user=role, password=PASSWORD, autocommit=True) as connection:
        yield connection


def test_a_role_neither_changes_nor_removes_lines_and_sees_lines_of_destinations_that_it_may_browse(
    administration: Administration, session: Session, queue: Queue, jmsql_clean_url: str, sql: psycopg.Connection[Any]
) -> None:
    administration.pause(OTHER)
    with roles_of_each_kind(sql) as roles:
        administration.pause("orders")
        administrator, browser, stranger = roles["administrator"], roles["browser"], roles["stranger"]
        url = jmsql_clean_url
        with connected(url, administrator) as connection:
            assert connection.execute("select jmsql.resume('other')").fetchone() is not None
            [line] = administration.activity("resume")
            assert (line.user_name, line.role_name) == (administrator, None)
            for statement in (
                "delete from jmsql_internal.administrative_action",
                "update jmsql_internal.administrative_action set user_name = 'postgres'",
                "insert into jmsql_internal.administrative_action (action) values ('x')",
                "truncate jmsql_internal.administrative_action",
                "update jmsql_internal.configuration set activity_days = 0",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement)
            connection.execute("select jmsql_internal.forget_activity(1000)")
            connection.execute("select set_config('jmsql.action_id', %s, false)", [str(uuid.uuid4())])
            connection.execute("select jmsql.pause('other')")
            with Administration(as_role(url, administrator)) as other, pytest.raises(JMSSecurityException):
                other.set_activity_days(0)
        sql.execute(psycopg.sql.SQL("set role {}").format(psycopg.sql.Identifier(administrator)))
        sql.execute("select jmsql.resume('other')")
        sql.execute("reset role")
        [_, assumed] = reversed(administration.activity("resume"))
        assert (assumed.user_name, assumed.role_name) == ("postgres", administrator)
        with connected(url, browser) as connection:
            seen = connection.execute(
                "select action, destination from jmsql.activity where action <> 'grant'"
            ).fetchall()
            assert seen == [("pause", "queue://orders")]
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("select jmsql_internal.note_activity('purge', 1, 1)")
        with connected(url, stranger) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("select from jmsql.activity")
        kept = len(administration.activity())
        assert kept >= 4


def test_no_administrator_adds_to_the_line_of_another_role(
    administration: Administration, session: Session, queue: Queue, jmsql_clean_url: str, sql: psycopg.Connection[Any]
) -> None:
    send(session, queue, "a", "b", "c", "d")
    sql.execute("select jmsql.move('orders', 'other', max_messages => 1)")
    before = administration.activity("move")
    ids = "select action_id::text from jmsql_internal.administrative_action where action = 'move'"
    with roles_of_each_kind(sql) as roles, connected(jmsql_clean_url, roles["administrator"]) as connection:
        [(known,)] = connection.execute(ids).fetchall()
        connection.execute("select set_config('jmsql.action_id', %s, false)", [known])
        for _ in range(3):
            connection.execute("select jmsql.move('orders', 'other', max_messages => 1)")
        added, *others = administration.activity("move")
    assert others == before
    assert added.messages == 3


def test_lines_are_kept_for_some_days(
    administration: Administration, queue: Queue, sql: psycopg.Connection[Any]
) -> None:
    assert administration.activity_days() == 30
    administration.pause(queue)
    administration.resume(queue)
    sql.execute("update jmsql_internal.administrative_action set at = at - interval '31 days' where action = 'pause'")
    sql.execute("select jmsql_internal.forget_activity(1000)")
    assert shown(administration, "action") == [("resume",)]
    administration.set_activity_days(90)
    assert administration.activity("activity_days")[0].details == "activity_days: 30 → 90"
    administration.set_activity_days(0)
    administration.pause(queue)
    administration.set_activity_days(30)
    assert administration.activity("pause") == []
    for wrong in (-1, 40_000):
        with pytest.raises(ValueError, match="days"):
            administration.set_activity_days(wrong)
