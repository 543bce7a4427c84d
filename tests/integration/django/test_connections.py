"""What jmsql and others do to Django's connections: wrappers of statements, and receivers of signals."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections, transaction

import jmsql
from jmsql import Queue
from jmsql.django import Application

Handled = Callable[..., None]
ORDERS = Queue("orders")
ONCE = jmsql.RedeliveryPolicy(maximum_deliveries=1)


@pytest.fixture
def app() -> Application:
    return Application()


def send(*bodies: object) -> None:
    with transaction.atomic():
        producer = jmsql.enlist(connection).create_producer()
        for body in bodies:
            producer.send(ORDERS, body)


def left(queue: str = "orders") -> int:
    with connection.cursor() as cursor:
        cursor.execute("select count(*) from jmsql.messages where queue = %s", [queue])
        return int(cursor.fetchone()[0])


def is_empty() -> bool:
    return left() == 0


class Counted:
    """A wrapper of statements that counts them, as middlewares have one for each request."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, execute: Callable[..., Any], *arguments: Any) -> Any:
        self.calls += 1
        return execute(*arguments)


def query() -> None:
    with connection.cursor() as cursor:
        cursor.execute("select 1")


def counted() -> list[int]:
    """Run a statement in a wrapper's block, which may open the connection, and one after it."""
    wrapper = Counted()
    with connection.execute_wrapper(wrapper):
        query()
    inside = wrapper.calls
    query()
    return [inside, wrapper.calls]


class TestWrappers:
    def test_those_of_others_end_with_their_block(self) -> None:
        def requests() -> list[Any]:
            found = []
            for _ in range(3):
                found.append(counted())
                connections.close_all()  # as at the end of each request
            return [*found, len(connection.execute_wrappers)]

        with ThreadPoolExecutor(1) as threads:  # a thread that has never had a connection
            assert threads.submit(requests).result() == [[1, 1], [1, 1], [1, 1], 1]

    def test_so_do_those_of_a_handler(self, app: Application, handled: Handled) -> None:
        counts = []

        @app.listener(ORDERS)
        def order(body: str) -> None:
            counts.append(counted())

        send("kite", "lantern")
        handled(app, is_empty)
        assert counts == [[1, 1], [1, 1]]

    def test_a_connection_that_opens_inside_of_one_refuses_coroutine_functions_all_the_same(
        self, app: Application, handled: Handled, caplog: pytest.LogCaptureFixture
    ) -> None:
        wrapper = Counted()

        def store() -> None:
            try:
                with connection.execute_wrapper(wrapper):
                    connection.ensure_connection()
                query()
            finally:
                connections.close_all()

        @app.listener(ORDERS, redelivery=ONCE)
        async def order(body: str) -> None:
            await sync_to_async(store)()

        send("kite")
        handled(app, is_empty)
        assert left("DLQ") == 1
        assert "has no asynchronous connection" in caplog.text
        assert wrapper.calls == 0
