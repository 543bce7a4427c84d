"""Handlers with Django's ORM: what they write is in the transaction of their message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.db import IntegrityError, OperationalError, close_old_connections, connection, connections, transaction
from django.test.utils import override_settings

import jmsql
from jmsql import Queue
from jmsql.django import Application
from jmsql.django.configuration import connection_factory
from jmsql.worker import HandlerCall
from tests.integration.django.databases import changed_database, database_settings

Handled = Callable[..., None]
ORDERS = Queue("orders")
AGAIN = jmsql.RedeliveryPolicy(maximum_deliveries=3)


@pytest.fixture
def app() -> Application:
    return Application()


@pytest.fixture
def article() -> Any:
    from tests.integration.django.shop.models import Article

    return Article


@pytest.fixture
def send(project: None) -> Callable[..., None]:
    def send(*bodies: object) -> None:
        with transaction.atomic():
            producer = jmsql.enlist(connection).create_producer()
            for body in bodies:
                producer.send(ORDERS, body)

    return send


def left(queue: str = "orders") -> int:
    with connection.cursor() as cursor:
        cursor.execute("select count(*) from jmsql.messages where queue = %s", [queue])
        return int(cursor.fetchone()[0])


def is_empty() -> bool:
    return left() == 0


class TestTransaction:
    def test_the_orms_rows_are_committed_with_the_message(
        self, app: Application, handled: Handled, send: Any, article: Any
    ) -> None:
        processes = []

        @app.listener(ORDERS)
        def order(body: dict[str, Any], database: Any) -> None:
            article.objects.create(
                name=body["name"], facts={"colors": ["red"]}, changed=datetime(2026, 5, 1, tzinfo=UTC)
            )
            with connection.cursor() as cursor:
                cursor.execute("select pg_backend_pid()")
                processes.append(cursor.fetchone()[0])
            processes.append(database.exec_driver_sql("select pg_backend_pid()").scalar())

        send({"name": "kite"})
        handled(app, is_empty)
        stored = article.objects.get()
        assert (stored.name, stored.facts, stored.changed) == (
            "kite",
            {"colors": ["red"]},
            datetime(2026, 5, 1, tzinfo=UTC),
        )
        assert processes[0] == processes[1]

    def test_a_failing_handlers_rows_are_rolled_back(
        self, app: Application, handled: Handled, send: Any, article: Any
    ) -> None:
        counts = []

        @app.listener(ORDERS, redelivery=AGAIN)
        def order(body: str) -> None:
            counts.append(article.objects.count())
            article.objects.create(name=body)
            if len(counts) < 3:
                raise RuntimeError("not yet")

        send("kite")
        handled(app, is_empty)
        assert counts == [0, 0, 0]
        assert article.objects.count() == 1

    def test_a_chunk_is_created_in_bulk_and_halved_where_it_fails(
        self, app: Application, handled: Handled, send: Any, article: Any
    ) -> None:
        article.objects.create(name="kite 3")

        @app.listener(ORDERS, chunk=10, redelivery=jmsql.RedeliveryPolicy(maximum_deliveries=2))
        def order(bodies: list[str]) -> None:
            article.objects.bulk_create([article(name=body) for body in bodies])  # the name is the primary key

        send(*(f"kite {number}" for number in range(6)))
        handled(app, is_empty)
        assert sorted(article.objects.values_list("name", flat=True)) == [f"kite {number}" for number in range(6)]
        assert left("DLQ") == 1

    def test_messages_sent_by_enlisting_djangos_connection_are_part_of_it(
        self, app: Application, handled: Handled, send: Any, article: Any
    ) -> None:
        @app.listener(ORDERS, redelivery=AGAIN)
        def order(message: jmsql.Message) -> None:
            jmsql.enlist(connection).create_producer().send(Queue("bills"), message.get_body(str))
            if not message.jms_redelivered:
                raise RuntimeError("not yet")

        send("kite")
        handled(app, is_empty)
        assert left("bills") == 1

    def test_an_error_inside_of_atomic_costs_a_savepoint(
        self, app: Application, handled: Handled, send: Any, article: Any
    ) -> None:
        caught = []

        @app.listener(ORDERS)
        def order(body: str, context: jmsql.JMSContext) -> None:
            article.objects.create(name=body)
            context.create_producer().send(Queue("bills"), body)
            try:
                with transaction.atomic():
                    context.create_producer().send(Queue("bills"), "taken back")
                    article.objects.create(name=body)
            except IntegrityError:
                caught.append(body)
            article.objects.create(name=f"{body} 2")

        send("kite")
        handled(app, is_empty)
        assert caught == ["kite"]
        assert sorted(article.objects.values_list("name", flat=True)) == ["kite", "kite 2"]
        assert left("bills") == 1

    def test_an_error_outside_of_atomic_fails_the_message(
        self, app: Application, handled: Handled, send: Any, article: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        @app.listener(ORDERS, redelivery=jmsql.RedeliveryPolicy(maximum_deliveries=1))
        def order(body: str) -> None:
            article.objects.create(name=body)
            with pytest.raises(IntegrityError):
                article.objects.create(name=body)

        send("kite")
        handled(app, is_empty)
        assert article.objects.count() == 0
        assert left("DLQ") == 1
        assert "marked for a rollback" in caplog.text

    def test_a_rollback_that_is_asked_for_fails_the_message(
        self, app: Application, handled: Handled, send: Any, article: Any
    ) -> None:
        @app.listener(ORDERS, redelivery=jmsql.RedeliveryPolicy(maximum_deliveries=1))
        def order(body: str) -> None:
            article.objects.create(name=body)
            transaction.set_rollback(True)

        send("kite")
        handled(app, is_empty)
        assert article.objects.count() == 0
        assert left("DLQ") == 1

    def test_durable_blocks_and_transaction_commands_are_refused(
        self, app: Application, handled: Handled, send: Any, article: Any
    ) -> None:
        refused = []

        @app.listener(ORDERS)
        def order(body: str) -> None:
            with pytest.raises(RuntimeError, match="durable"), transaction.atomic(durable=True):
                pass
            for command in (transaction.commit, transaction.rollback, lambda: transaction.set_autocommit(True)):
                with pytest.raises(transaction.TransactionManagementError):
                    command()
                refused.append(command)
            article.objects.create(name=body)

        send("kite")
        handled(app, is_empty)
        assert len(refused) == 3
        assert article.objects.count() == 1

    def test_rows_can_be_locked_and_read_in_chunks(
        self, app: Application, handled: Handled, send: Any, article: Any
    ) -> None:
        found: list[str] = []

        @app.listener(ORDERS)
        def order(body: str) -> None:
            locked = article.objects.select_for_update().get(name=body)
            locked.amount += 1
            locked.save()
            found.extend(each.name for each in article.objects.order_by("name").iterator(chunk_size=1))

        for name in ("kite", "lantern"):
            article.objects.create(name=name)
        send("kite")
        handled(app, is_empty)
        assert found == ["kite", "lantern"]
        assert article.objects.get(name="kite").amount == 1

    def test_a_statement_of_the_orm_is_interrupted_when_its_handler_has_taken_too_long(
        self, app: Application, handled: Handled, send: Any, article: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        ended = []

        @app.listener(ORDERS, timeout=2.0, redelivery=jmsql.RedeliveryPolicy(maximum_deliveries=1))
        def order(body: str) -> None:
            article.objects.create(name=body)
            try:
                with connection.cursor() as cursor:
                    cursor.execute("select pg_sleep(60)")
            except OperationalError:
                ended.append(body)
                raise

        send("kite")
        handled(app, is_empty)
        assert ended == ["kite"]
        assert article.objects.count() == 0
        assert left("DLQ") == 1

    def test_a_handler_that_leaves_the_orm_alone_takes_no_connection_for_it(
        self, app: Application, handled: Handled, send: Any
    ) -> None:
        taken = []

        @app.listener(ORDERS)
        def order(body: str) -> None:
            taken.append(connection.connection)

        send("kite")
        handled(app, is_empty)
        assert taken == [None]

    def test_handlers_that_are_not_transacted_have_djangos_own_connection(
        self, app: Application, handled: Handled, send: Any, article: Any
    ) -> None:
        hooks = []

        @app.listener(ORDERS, transacted=False)
        def order(body: str) -> None:
            with transaction.atomic(durable=True):
                article.objects.create(name=body)
                transaction.on_commit(lambda: hooks.append(body))

        send("kite")
        handled(app, is_empty)
        assert hooks == ["kite"]
        assert article.objects.count() == 1


class TestOnCommit:
    def test_hooks_run_after_the_commit_on_djangos_own_connection(
        self, app: Application, handled: Handled, send: Any, article: Any
    ) -> None:
        seen, caught = [], []

        def tell(process: int) -> None:
            with connection.cursor() as cursor:
                cursor.execute("select pg_backend_pid()")
                [(other,)] = cursor.fetchall()
            seen.append((left(), article.objects.count(), other == process, connection.in_atomic_block))

        @app.listener(ORDERS)
        def order(body: str) -> None:
            article.objects.create(name=body)
            process = connection.connection.info.backend_pid
            transaction.on_commit(lambda: tell(process))
            try:
                with transaction.atomic():
                    transaction.on_commit(lambda: tell(0))
                    article.objects.create(name=body)
            except IntegrityError:
                caught.append(body)

        send("kite")
        handled(app, lambda: seen)
        assert caught == ["kite"]
        assert seen == [(0, 1, False, False)]

    def test_hooks_of_a_handler_that_fails_are_forgotten(
        self, app: Application, handled: Handled, send: Any, article: Any
    ) -> None:
        called = []

        @app.listener(ORDERS, redelivery=AGAIN)
        def order(message: jmsql.Message) -> None:
            count = message.get_int_property("JMSXDeliveryCount")
            article.objects.count()
            transaction.on_commit(lambda: called.append(count))
            if count == 1:
                raise RuntimeError("not yet")

        send("kite")
        handled(app, lambda: called)
        assert called == [2]

    def test_a_hook_that_fails_is_logged_and_the_message_stays_handled(
        self, app: Application, handled: Handled, send: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        called = []

        def fail() -> None:
            raise SystemExit(5)

        @app.listener(ORDERS)
        def order(body: str) -> None:
            transaction.on_commit(fail, robust=True)
            transaction.on_commit(lambda: called.append("second"))
            transaction.on_commit(fail)
            transaction.on_commit(lambda: called.append("never"))

        send("kite")
        handled(app, lambda: called and is_empty())
        assert called == ["second"]
        assert caplog.text.count("given to on_commit failed") == 2
        assert "(1 more not called)" in caplog.text


class TestConnections:
    def test_closing_leaves_the_messages_connection_alone_and_ends_others(
        self, app: Application, handled: Handled, send: Any, article: Any
    ) -> None:
        states = []

        @app.listener(ORDERS)
        def order(body: str) -> None:
            article.objects.using("other").count()
            article.objects.create(name=body)
            close_old_connections()
            connection.close()
            states.append((connection.connection.closed, connections["other"].connection))
            article.objects.update(amount=1)

        send("kite")
        handled(app, is_empty)
        assert states == [(False, None)]
        assert article.objects.get().amount == 1

    def test_the_connection_of_the_thread_is_djangos_own_again(
        self, app: Application, handled: Handled, send: Any, article: Any
    ) -> None:
        kinds = []

        @app.listener(ORDERS)
        def order(body: str) -> None:
            kinds.append(type(connections["default"]))
            transaction.on_commit(lambda: kinds.append(type(connections["default"])))

        send("kite", "lantern")
        handled(app, lambda: len(kinds) == 4)
        assert kinds[0] is kinds[2] is not kinds[1]
        assert kinds[1] is kinds[3] is type(connections["default"])

    @pytest.mark.parametrize("zone", [None, "America/New_York"])
    def test_times_are_those_of_djangos_own_connection(
        self, zone: str | None, app: Application, handled: Handled, send: Any, article: Any
    ) -> None:
        days = []

        def day() -> Any:
            with connection.cursor() as cursor:
                cursor.execute("show timezone")
                [(name,)] = cursor.fetchall()
            # A date as the server has it depends on the time zone of the connection.
            on_the_day = article.objects.filter(changed__date=date(2026, 5, 1)).count()
            return name, on_the_day, article.objects.get().changed

        @app.listener(ORDERS)
        def order(body: str) -> None:
            days.append(day())

        with changed_database(TIME_ZONE=zone):
            article.objects.create(name="kite", changed=datetime(2026, 5, 1, 22, 30, tzinfo=UTC))
            expected = day()
            send("kite")
            handled(app, is_empty)
        assert days == [expected]
        assert expected[0] == (zone or "UTC")

    def test_the_log_of_queries_does_not_grow(
        self, app: Application, handled: Handled, send: Any, article: Any
    ) -> None:
        lengths = []

        @app.listener(ORDERS)
        def order(body: str) -> None:
            article.objects.create(name=body)
            article.objects.count()
            lengths.append(len(connection.queries))

        send(*map(str, range(4)))
        with override_settings(DEBUG=True):
            handled(app, is_empty)
        assert lengths == [lengths[0]] * 4

    @pytest.mark.parametrize("options", [{"server_side_binding": True}, {"prepare_threshold": 1}, {"pool": True}])
    def test_options_of_the_connection(
        self, options: dict[str, Any], app: Application, handled: Handled, send: Any, article: Any
    ) -> None:
        @app.listener(ORDERS)
        def order(body: str) -> None:
            article.objects.create(name=body, facts={"a": [1, None]}, changed=datetime(2026, 5, 1, tzinfo=UTC))
            assert article.objects.get(name=body).facts == {"a": [1, None]}
            assert len(list(article.objects.iterator(chunk_size=1))) > 0

        with changed_database(OPTIONS=connections.settings["default"]["OPTIONS"] | options):
            send(*map(str, range(8)))
            handled(app, is_empty)
            connection.close()  # first: it would make another pool
            connection.close_pool()
        assert article.objects.count() == 8

    @pytest.mark.parametrize("fixture", ["pooler", "current_pooler"])
    def test_a_pooler_on_the_way(
        self,
        fixture: str,
        jmsql_clean_url: str,
        request: pytest.FixtureRequest,
        app: Application,
        handled: Handled,
        send: Any,
        article: Any,
    ) -> None:
        pooler = request.getfixturevalue(fixture)
        zones = []

        @app.listener(ORDERS)
        def order(body: str) -> None:
            article.objects.create(name=body)
            with connection.cursor() as cursor:
                cursor.execute("show timezone")
                zones.extend(cursor.fetchone())
            assert len(list(article.objects.iterator(chunk_size=1))) > 0
            if body == "0":
                transaction.set_rollback(True)

        with changed_database(**database_settings(pooler.url(jmsql_clean_url)), DISABLE_SERVER_SIDE_CURSORS=True):
            send(*map(str, range(8)))
            handled(app, lambda: article.objects.count() == 7)
        pooler.forget(jmsql_clean_url)
        assert set(zones) == {"UTC"}


class TestCoroutineFunctions:
    def test_the_orm_is_refused_with_the_reason(
        self, app: Application, handled: Handled, send: Any, article: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        @app.listener(ORDERS, redelivery=jmsql.RedeliveryPolicy(maximum_deliveries=1))
        async def order(body: str) -> None:
            try:
                await article.objects.acreate(name=body)
            finally:
                await sync_to_async(connections.close_all)()

        send("kite")
        handled(app, is_empty)
        assert article.objects.count() == 0
        assert left("DLQ") == 1
        assert "has no asynchronous connection" in caplog.text

    def test_without_the_orm_they_are_called_and_other_threads_may_use_it(
        self, app: Application, handled: Handled, send: Any, article: Any
    ) -> None:
        bodies = []

        @app.listener(ORDERS)
        async def order(body: str) -> None:
            bodies.append(body)

        send("kite")
        handled(app, is_empty)
        assert bodies == ["kite"]
        assert article.objects.count() == 0

    def test_without_a_transaction_they_have_the_orm(
        self, app: Application, handled: Handled, send: Any, article: Any
    ) -> None:
        @app.listener(ORDERS, transacted=False)
        async def order(body: str) -> None:
            await article.objects.acreate(name=body)
            await sync_to_async(connections.close_all)()

        send("kite")
        handled(app, is_empty)
        assert article.objects.count() == 1


class Shelf:
    """Has an article for each call."""

    def __init__(self, call: HandlerCall) -> None:
        from tests.integration.django.shop.models import Article

        name = f"{call.message.get_body(str)}, delivery {call.delivery_count}"
        self.article: Any = Article.objects.create(name=name)


@contextmanager
def around(call: HandlerCall) -> Iterator[None]:
    call.provide(Shelf, Shelf(call))
    yield


class TestAround:
    @override_settings(JMSQL_AROUND=f"{__name__}.around")
    def test_the_orm_works_in_it_in_the_transaction_of_the_message(
        self, app: Application, handled: Handled, send: Any, article: Any
    ) -> None:
        @app.listener(ORDERS, redelivery=jmsql.RedeliveryPolicy(maximum_deliveries=3))
        def order(body: str, shelf: Shelf) -> None:
            shelf.article.facts = {"colors": ["red"]}
            shelf.article.save()
            if shelf.article.name.endswith("delivery 1"):
                raise RuntimeError("not yet")

        send("kite")
        handled(app, is_empty)
        assert [(each.name, each.facts) for each in article.objects.all()] == [
            ("kite, delivery 2", {"colors": ["red"]})
        ]

    @override_settings(JMSQL_AROUND=f"{__name__}.around")
    def test_in_a_test_it_is_the_same(self, app: Application, send: Any, article: Any) -> None:
        @app.listener(ORDERS)
        def order(body: str, shelf: Shelf) -> None:
            assert shelf.article.name == "kite, delivery 1"

        with transaction.atomic():
            jmsql.enlist(connection).create_producer().send(ORDERS, "kite")
            assert len(app.drain()) == 1
            assert article.objects.count() == 1
            transaction.set_rollback(True)
        assert article.objects.count() == 0

    @override_settings(JMSQL_AROUND="shop.nothing")
    def test_a_path_that_leads_nowhere_is_named(self, app: Application) -> None:
        with pytest.raises(ImproperlyConfigured, match=r"The setting JMSQL_AROUND is 'shop\.nothing'"):
            app.listener(ORDERS)(print)


def note_dead_letter(message: jmsql.Message, error: BaseException) -> None:
    from tests.integration.django.shop.models import Article

    Article.objects.create(name=f"{message.get_body(str)}: {error}")


class TestDeadLetters:
    @override_settings(JMSQL_ON_DEAD_LETTER=f"{__name__}.note_dead_letter")
    def test_the_orm_works_in_the_function_of_the_settings(
        self, app: Application, handled: Handled, send: Any, article: Any
    ) -> None:
        @app.listener(ORDERS, no_retry_for=RuntimeError)
        def order(body: str) -> None:
            raise RuntimeError("torn")

        send("kite")
        handled(app, lambda: article.objects.count() == 1)
        assert article.objects.get().name == "kite: torn"

    @override_settings(JMSQL_ON_DEAD_LETTER=f"{__name__}.note_dead_letter")
    def test_in_a_test_it_is_the_same(self, app: Application, send: Any, article: Any) -> None:
        @app.listener(ORDERS, no_retry_for=RuntimeError)
        def order(body: str) -> None:
            raise RuntimeError("torn")

        with transaction.atomic():
            jmsql.enlist(connection).create_producer().send(ORDERS, "kite")
            app.drain(raise_failures=False)
            assert article.objects.get().name == "kite: torn"
            transaction.set_rollback(True)


def test_a_request_inside_of_atomic_is_refused(project: None) -> None:
    with connection_factory().create_connection() as client:
        client.start()
        requestor = client.requestor("nobody answers")
        with (
            transaction.atomic(),
            pytest.raises(jmsql.IllegalStateException, match=r"inside of atomic\(\) of Django's"),
        ):
            requestor.request("a")
        with pytest.raises(TimeoutError):
            requestor.request("a", timeout=0.1)
