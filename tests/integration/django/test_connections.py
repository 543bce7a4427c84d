"""Changes that jmsql and others make to Django's connections: wrappers of statements, and receivers of signals."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections, transaction
from django.db.backends.postgresql.base import DatabaseWrapper
from django.db.backends.signals import connection_created
from psycopg.adapt import Loader
from psycopg.types import TypeInfo

import jmsql
import jmsql.asyncio as jms
from jmsql import Queue
from jmsql.django import Application
from jmsql.worker.loading import RefusalError, load_application

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


class Receiver:
    """A receiver of `connection_created` that does to the connection what Django's documentation proposes."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, connection: Any, **_: Any) -> None:
        self.calls += connection.in_atomic_block  # a handler's
        with connection.cursor() as cursor:
            cursor.execute("set statement_timeout = '31s'")
            cursor.execute("select oid, typarray from pg_type where typname = 'point'")
            [(oid, array_oid)] = cursor.fetchall()
        assert TypeInfo.fetch(connection.connection, "point")
        TypeInfo("point", oid, array_oid).register(connection.connection)
        connection.connection.adapters.register_loader(oid, Point)


class Point(Loader):
    """Loads a type of which psycopg knows nothing, as `django.contrib.postgres` has them."""

    def load(self, data: Any) -> Any:
        return tuple(map(int, bytes(data).strip(b"()").split(b",")))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    connection_created.connect(receiver)
    yield receiver
    connection_created.disconnect(receiver)


class TestCreated:
    def test_it_is_sent_once_for_a_connection_whose_settings_and_types_stay(
        self, app: Application, handled: Handled, receiver: Receiver
    ) -> None:
        found = []

        @app.listener(ORDERS)
        def order(body: int) -> None:
            with connection.cursor() as cursor:
                cursor.execute("select pg_backend_pid(), current_setting('statement_timeout'), '(1,2)'::point")
                found.append((*cursor.fetchone(), receiver.calls))

        send(*range(5))
        handled(app, is_empty)
        first = found[0]
        assert first[1:3] == ("31s", (1, 2))
        assert found == [first] * 5

    def test_the_types_of_postgis_are_registered_too(
        self, app: Application, handled: Handled, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found = []

        def register(self: Any, pg_connection: Any, clear_caches: bool = False) -> None:
            info = TypeInfo.fetch(pg_connection, "point")
            assert info is not None
            info.register(pg_connection)
            pg_connection.adapters.register_loader(info.oid, Point)

        @app.listener(ORDERS)
        def order(body: str) -> None:
            with connection.cursor() as cursor:
                cursor.execute("select '(1,2)'::point")
                found.append(cursor.fetchone())

        monkeypatch.setattr(DatabaseWrapper, "register_geometry_adapters", register, raising=False)
        send("kite")
        handled(app, is_empty)
        assert found == [((1, 2),)]

    def test_it_is_sent_again_where_the_transaction_was_rolled_back(
        self, app: Application, handled: Handled, receiver: Receiver
    ) -> None:
        found = []

        @app.listener(ORDERS, redelivery=jmsql.RedeliveryPolicy(maximum_deliveries=2))
        def order(message: jmsql.Message) -> None:
            with connection.cursor() as cursor:
                cursor.execute("show statement_timeout")
                found.extend(cursor.fetchone())
            if not message.jms_redelivered:
                raise RuntimeError("not yet")

        send("kite")
        handled(app, is_empty)
        assert found == ["31s", "31s"]


def test_modules_with_listeners_that_django_does_not_import_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nothing", SimpleNamespace(app=Application()))
    monkeypatch.delitem(sys.modules, "tests.integration.django.shop.messages", raising=False)
    with pytest.raises(
        RefusalError, match=r"shop\.messages.* may register some, but Django imports the module `messages`"
    ):
        load_application("nothing:app")


class TestAsynchronousViews:
    @pytest.mark.parametrize("is_connected", [False, True])
    async def test_an_error_says_how_to_send_in_one(self, is_connected: bool) -> None:
        from tests.integration.django.shop.tasks import note

        if is_connected:
            await sync_to_async(left)()
        for call in (lambda: jmsql.enlist(connection), Application().drain, note.enqueue):
            with pytest.raises(jmsql.IllegalStateException, match="sync_to_async"):
                call()
        with pytest.raises(TypeError, match="sync_to_async"):
            jms.enlist(connection)
        await sync_to_async(send)("kite")
        assert await sync_to_async(left)() == 1
        await sync_to_async(connections.close_all)()
