"""Messages in Django's transactions: they share the fate of the rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress

import django
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
