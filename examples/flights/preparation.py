"""A fresh start for the demo: it makes its own tables, queue and subscriptions again, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import sqlalchemy
from sqlalchemy import Connection, Engine

import jmsql
from examples.flights.database import APPLICATION_SCHEMA, DemoDatabase, metadata
from examples.flights.routing import FLIGHTS, SUBSCRIPTIONS
from examples.flights.worker import APPLICATION_NAME

_MARK = "Made by `jmsql demo`, which drops it when it runs again."
_LOCK = sqlalchemy.text("select pg_try_advisory_lock(hashtext('jmsql demo')::bigint)")
_COMMENT = sqlalchemy.text(
    "select obj_description(oid, 'pg_namespace'::name) from pg_catalog.pg_namespace where nspname = :name"
)
_WORKERS = sqlalchemy.text(
    "select count(*) from pg_catalog.pg_stat_activity where starts_with(application_name, cast(:prefix as text))"
)
_QUEUES = sqlalchemy.text("select to_regclass(quote_ident(cast(:schema as text)) || '.queues')")
_PATIENCE = 10.0


@contextmanager
def alone(engine: Engine) -> Iterator[None]:
    """Make sure that no other demo runs in the database.

    Raises:
        ResourceAllocationException: One does.
    """
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if not connection.scalar(_LOCK):
            raise jmsql.ResourceAllocationException("Another demo is running in this database; wait for it to end.")
        try:
            _wait_for_workers_of_the_last_demo(connection)
            yield
        finally:
            connection.invalidate()  # which releases the lock


def _wait_for_workers_of_the_last_demo(connection: Connection) -> None:
    """Wait for workers whose demo was killed; they notice it and end."""
    deadline = time.monotonic() + _PATIENCE
    while connection.scalar(_WORKERS, {"prefix": APPLICATION_NAME}):
        if time.monotonic() > deadline:
            raise jmsql.ResourceAllocationException("Workers of a demo before are still there; end them.")
        time.sleep(0.05)


def prepare(engine: Engine, database: DemoDatabase, *, upgrade: bool) -> None:
    """Drop and create the tables and subscriptions, and empty the queue. jmsql's schema is created if it is missing.

    Raises:
        ResourceAllocationException: There is a schema of the name that the demo did not make.
        JMSException: jmsql's schema is of another version.
    """
    with engine.connect() as connection:
        is_there = connection.scalar(_QUEUES, {"schema": database.schema}) is not None
    if upgrade or not is_there:
        jmsql.migrate(database.url, database.schema)
    with engine.begin() as connection:
        comment = connection.execute(_COMMENT, {"name": APPLICATION_SCHEMA}).one_or_none()
        if comment is not None and comment[0] != _MARK:
            raise jmsql.ResourceAllocationException(
                f"The database has a schema {APPLICATION_SCHEMA!r} that the demo did not make. Rename it, or give the "
                "demo another database."
            )
        connection.exec_driver_sql(f"drop schema if exists {APPLICATION_SCHEMA} cascade")
        connection.exec_driver_sql(f"create schema {APPLICATION_SCHEMA}")
        connection.exec_driver_sql(f"comment on schema {APPLICATION_SCHEMA} is '{_MARK}'")
        metadata.create_all(connection)
    with database.administration() as administration:
        if FLIGHTS.name in {summary.queue for summary in administration.queues()}:
            administration.purge(FLIGHTS.name)
        _forget_history(administration)
        administration.create_queue(FLIGHTS.name, history=True)
        former = {(summary.subscription, summary.client_id) for summary in administration.subscriptions()}
        for subscription in SUBSCRIPTIONS:
            if (subscription.name, subscription.client_id) in former:
                administration.unsubscribe(subscription.name, subscription.client_id)
    for subscription in SUBSCRIPTIONS:
        with database.factory().create_connection() as client:
            if subscription.client_id is not None:
                client.client_id = subscription.client_id
            with client.create_session() as session:
                subscription.consume(session).close()


def _forget_history(administration: jmsql.admin.Administration) -> None:
    """Remove what the queue of the last demo has left in the history."""
    if next(administration.history.messages(FLIGHTS, limit=1), None) is not None:
        tomorrow = datetime.now(UTC).date() + timedelta(days=1)
        for _ in administration.history.prune(before=tomorrow, destination=FLIGHTS):
            pass
