"""Duties of a client that fail each time: messages are delivered all the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from jmsql import AcknowledgeMode, Connection, Queue
from jmsql.store.maintenance.maintenance_task import MaintenanceTask, register_task, request_tasks
from jmsql.store.receiving.progress import ClaimedMessage, Progress
from jmsql.store.receiving.redelivery import ExtendedClaim
from jmsql.store.rows.message_rows import MessageKey
from jmsql.store.statement import Statement, nothing
from jmsql.store.wire._sync.runner import PsycopgRunner, Runner
from jmsql.testing import wait_for
from tests.texts import receive, texts_of

pytestmark = pytest.mark.maintained


@pytest.fixture
def failing_step(jmsql_clean_url: str) -> Iterator[None]:
    """The removal of a deleted queue, which fails."""
    with psycopg.connect(jmsql_clean_url, autocommit=True) as database:
        database.execute(
            "create function refuse() returns trigger language plpgsql as 'begin raise exception ''refused''; end';"
            "create trigger refuse before delete on jmsql_internal.queue for each row execute function refuse();"
            "insert into jmsql_internal.queue (name, deleted_at) values ('gone', now())"
        )
        yield
        database.execute("drop trigger refuse on jmsql_internal.queue; drop function refuse()")


@pytest.mark.usefixtures("failing_step")
def test_delayed_messages_are_delivered_although_a_step_of_the_maintenance_fails(
    connection: Connection, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    session = connection.create_session()
    consumer = session.create_consumer(queue)
    wait_for(lambda: "Maintenance is postponed" in caplog.text)
    producer = session.create_producer(queue)
    producer.delivery_delay = 0.2
    producer.send(session.create_text_message("delayed"))
    assert texts_of([receive(consumer)]) == ["delayed"]


def test_delayed_messages_are_delivered_although_another_duty_fails_in_each_turn(
    connection: Connection, queue: Queue, jmsql_clean_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = session.create_consumer(queue)
    session.create_producer(queue).send(session.create_text_message("claimed"))
    assert texts_of([receive(consumer)]) == ["claimed"]
    extensions = connection._control._duties.claim_extensions
    with closing(psycopg.connect(jmsql_clean_url, autocommit=True)) as database:
        [claim] = database.execute(
            "select queue_id, inverse_priority, sequence, claim_id from jmsql_internal.delivery"
        ).fetchall()
        database.execute(
            "create function refuse() returns trigger language plpgsql as 'begin raise exception ''refused''; end';"
            "create trigger refuse before update on jmsql_internal.delivery for each row execute function refuse()"
        )
        try:
            extensions.add(session, [ExtendedClaim(MessageKey(*claim[:3]), claim[3], 0.001, 0.0)])
            wait_for(lambda: "Extension of claims is postponed" in caplog.text)
            producer = session.create_producer(queue)
            producer.delivery_delay = 0.2
            producer.send(session.create_text_message("delayed"))
            assert texts_of([receive(consumer)]) == ["delayed"]
        finally:
            extensions.remove(session)
            database.execute("drop trigger refuse on jmsql_internal.delivery; drop function refuse()")


def test_the_log_names_a_duty_that_fails(
    connection: Connection, jmsql_clean_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(psycopg.connect(jmsql_clean_url, autocommit=True)) as database:
        database.execute(
            "create function refuse() returns trigger language plpgsql as 'begin raise exception ''refused''; end';"
            "create trigger refuse before insert on jmsql_internal.reported_progress execute function refuse()"
        )
        try:
            message = ClaimedMessage(MessageKey(1, 5, 1), 1)
            connection._control.progress_reports.add(message, Progress(0.5, "half"))
            wait_for(lambda: "The record of the handlers' progress is postponed" in caplog.text)
            assert "Maintenance is postponed" not in caplog.text
            connection._control.progress_reports.drop(message)
        finally:
            database.execute("drop trigger refuse on jmsql_internal.reported_progress; drop function refuse()")


begin = Statement("begin", "begin", "beginning a transaction", nothing).bind()
were_idle: list[bool] = []
"""True for each run of the defective task that has found no transaction open."""


def make_defective_task(schema: str) -> MaintenanceTask:
    """Make a task whose code has a defect, and which leaves a transaction open."""

    def run(runner: Runner) -> bool:
        were_idle.append(runner.is_idle)
        runner.run(begin)
        raise KeyError(f"{schema}: {type(runner).__name__}")

    return MaintenanceTask("defective", run)


def test_client_keeps_its_connection_and_claims_although_a_task_of_the_maintenance_has_a_defect(
    connection: Connection, queue: Queue, jmsql_clean_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = session.create_consumer(queue)
    session.create_producer(queue).send(session.create_text_message("claimed"))
    claimed = receive(consumer)
    register_task("defective", f"{__name__}:{make_defective_task.__name__}")
    with psycopg.connect(jmsql_clean_url, autocommit=True) as database:
        PsycopgRunner(database, "jmsql").run(request_tasks(["defective"]))
        wait_for(lambda: caplog.text.count("The maintenance task 'defective' failed") > 2)
    claimed.acknowledge()
    assert "Control connection failed" not in caplog.text
    assert all(were_idle)
