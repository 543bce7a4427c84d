"""Messages in Django's transactions: they share the fate of the rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress

import django
import psycopg
import pytest
import sqlalchemy
from django import db
from django.apps import apps
from django.db import transaction
from django.db.backends.postgresql.base import DatabaseWrapper
from django.db.utils import ConnectionHandler

import jmsql
from tests.clocks import DELIVERY_DELAY, TIME_TO_LIVE, WRONG, require_servers_time, set_clock
from tests.integration.django.environment import environment_of
from tests.integration.enlistment.callers import ORDERS

Numbers = Callable[[], list[int]]


class Cancelled(Exception):
    """The backend changes its mind."""


@pytest.fixture
def django_connection(
    engine: sqlalchemy.Engine, sqlalchemy_url: str, jmsql_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DatabaseWrapper]:
    if not apps.ready:
        # A process has one project: the one whose own tests it may run later.
        os.environ.update(environment_of(jmsql_url))
        django.setup()
    url = engine.url
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": url.query.get("host", url.host),
        "PORT": url.query.get("port", url.port),
        "NAME": url.database,
        "USER": url.username,
        "PASSWORD": url.password,
    }
    handler = ConnectionHandler({"default": database})
    monkeypatch.setattr(transaction, "connections", handler)
    monkeypatch.setattr(db, "connections", handler)
    connection = handler["default"]
    yield connection
    connection.close()


def place(connection: DatabaseWrapper, number: int) -> None:
    """Store an order and announce it, as a backend does."""
    with connection.cursor() as cursor:
        cursor.execute("insert into orders (number) values (%s)", [number])
    jmsql.enlist(connection).create_producer().send(ORDERS, {"number": number})


def test_atomic_block_commits_or_rolls_back_both(
    django_connection: DatabaseWrapper, orders_stored: Numbers, orders_announced: Numbers
) -> None:
    with transaction.atomic():
        place(django_connection, 1)
    with suppress(Cancelled), transaction.atomic():
        place(django_connection, 2)
        raise Cancelled
    assert orders_stored() == orders_announced() == [1]


def test_nested_atomic_block_takes_back_only_its_own(
    django_connection: DatabaseWrapper, orders_stored: Numbers, orders_announced: Numbers
) -> None:
    with transaction.atomic():
        place(django_connection, 1)
        with suppress(Cancelled), transaction.atomic():
            place(django_connection, 2)
            raise Cancelled
        place(django_connection, 3)
    assert orders_stored() == orders_announced() == [1, 3]


def test_connection_that_was_not_used_yet_is_opened(
    django_connection: DatabaseWrapper, orders_announced: Numbers
) -> None:
    assert django_connection.connection is None
    jmsql.enlist(django_connection).create_producer().send(ORDERS, {"number": 1})
    assert orders_announced() == [1]


def test_a_request_leaves_a_connection_closed_that_was_enlisted(
    django_connection: DatabaseWrapper, connection: jmsql.Connection
) -> None:
    place(django_connection, 1)
    django_connection.close()
    connection.start()
    requestor = connection.requestor(jmsql.Queue("nobody answers"))
    with pytest.raises(TimeoutError):
        requestor.request("a", timeout=0.1)
    assert django_connection.connection is None


def test_receiving_is_part_of_the_transaction(
    django_connection: DatabaseWrapper, orders_stored: Numbers, orders_announced: Numbers
) -> None:
    place(django_connection, 1)
    with transaction.atomic():
        received = jmsql.enlist(django_connection).create_consumer(ORDERS).receive(timeout=0)
        assert received is not None
        transaction.set_rollback(True)
    assert orders_announced() == [1]


@WRONG
def test_messages_go_by_the_servers_clock(
    django_connection: DatabaseWrapper, jmsql_clean_url: str, monkeypatch: pytest.MonkeyPatch, wrong_by: float
) -> None:
    set_clock(monkeypatch, wrong_by)
    messages = [jmsql.TextMessage("now"), jmsql.TextMessage("later")]
    with transaction.atomic():
        for message, delay in zip(messages, (0.0, DELIVERY_DELAY), strict=True):
            context = jmsql.enlist(django_connection)
            context.create_producer(time_to_live=TIME_TO_LIVE, delivery_delay=delay).send(ORDERS, message)
    require_servers_time(jmsql_clean_url, *messages)


def cut(connection: DatabaseWrapper, url: str) -> None:
    """End a connection at its server."""
    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        [pid] = cursor.fetchone()
    with psycopg.connect(url, autocommit=True) as administrator:
        administrator.execute("select pg_terminate_backend(%s, 5000)", [pid])


def test_a_connection_that_a_send_has_found_broken_is_closed_at_the_end_of_the_request(
    django_connection: DatabaseWrapper, jmsql_clean_url: str, orders_announced: Numbers
) -> None:
    django_connection.settings_dict["CONN_MAX_AGE"] = None
    cut(django_connection, jmsql_clean_url)
    with pytest.raises(jmsql.JMSException):
        jmsql.send(django_connection, ORDERS, {"number": 1})
    django_connection.close_if_unusable_or_obsolete()
    jmsql.send(django_connection, ORDERS, {"number": 2})
    assert orders_announced() == [2]


def test_a_kept_connection_is_checked_before_the_first_send_of_a_request(
    django_connection: DatabaseWrapper, jmsql_clean_url: str, orders_announced: Numbers
) -> None:
    django_connection.settings_dict.update(CONN_MAX_AGE=None, CONN_HEALTH_CHECKS=True)
    cut(django_connection, jmsql_clean_url)
    django_connection.close_if_unusable_or_obsolete()
    jmsql.send(django_connection, ORDERS, {"number": 1})
    assert orders_announced() == [1]


def test_hooks_of_a_commit_are_not_called_if_a_send_has_failed(
    django_connection: DatabaseWrapper, orders_stored: Numbers
) -> None:
    called: list[int] = []
    with transaction.atomic():
        place(django_connection, 1)
        transaction.on_commit(lambda: called.append(1))
        with pytest.raises(jmsql.JMSException):
            jmsql.send(django_connection, ORDERS, {"number": 2}, schema="missing")
        with pytest.raises(transaction.TransactionManagementError):
            place(django_connection, 3)
    assert called == orders_stored() == []


def test_a_failed_send_costs_no_more_than_the_inner_atomic_block(
    django_connection: DatabaseWrapper, orders_stored: Numbers, orders_announced: Numbers
) -> None:
    with transaction.atomic():
        place(django_connection, 1)
        with pytest.raises(jmsql.JMSException), transaction.atomic():
            jmsql.send(django_connection, ORDERS, {"number": 2}, schema="missing")
        place(django_connection, 3)
    assert orders_stored() == orders_announced() == [1, 3]


def test_a_context_does_not_follow_a_connection_that_django_has_returned_to_its_pool(
    django_connection: DatabaseWrapper, orders_announced: Numbers
) -> None:
    django_connection.settings_dict.update(OPTIONS={"pool": {"min_size": 1, "max_size": 1}})
    django_connection.close_pool()  # one of the same alias that another test may have left
    another = DatabaseWrapper(django_connection.settings_dict, "default")  # of another request
    context = jmsql.enlist(django_connection)
    lent = django_connection.connection
    django_connection.close()
    another.set_autocommit(False)
    try:
        assert another.connection is lent
        with pytest.raises(jmsql.IllegalStateException, match="enlist django"):
            context.create_producer().send(ORDERS, {"number": 1})
        another.commit()
    finally:
        another.close()
        another.close_pool()
    assert orders_announced() == []


def test_errors_of_connecting_are_those_of_jms(django_connection: DatabaseWrapper) -> None:
    django_connection.settings_dict["NAME"] = "missing"
    with pytest.raises(jmsql.ResourceAllocationException, match="does not exist") as caught:
        jmsql.enlist(django_connection)
    assert isinstance(caught.value.linked_exception, psycopg.OperationalError)


def test_a_pool_without_a_free_connection_is_said_to_have_none(django_connection: DatabaseWrapper) -> None:
    django_connection.settings_dict.update(OPTIONS={"pool": {"min_size": 1, "max_size": 1, "timeout": 0.1}})
    django_connection.close_pool()
    another = DatabaseWrapper(django_connection.settings_dict, "default")
    another.pool.open(wait=True, timeout=60.0)
    another.ensure_connection()
    try:
        with pytest.raises(jmsql.ResourceAllocationException, match="no connection of the pool"):
            jmsql.enlist(django_connection)
    finally:
        another.close()
        another.close_pool()
