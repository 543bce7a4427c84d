"""Tests as a team writes them, with Django's own classes; `manage.py test` runs them."""

from __future__ import annotations

from types import NoneType
from typing import Any

from asgiref.sync import sync_to_async
from django.db import IntegrityError, close_old_connections, connection, connections, transaction
from django.test import TestCase, TransactionTestCase

import jmsql
from jmsql.django import Application, app
from jmsql.testing import call, empty, sent
from tests.integration.django.shop import tasks
from tests.integration.django.shop.messages import BILLS, DELIVERIES, deliver
from tests.integration.django.shop.models import Article


def send(queue: jmsql.Queue, *bodies: object) -> None:
    producer = jmsql.enlist(connection).create_producer()
    for body in bodies:
        producer.send(queue, body)


class Deliveries(TestCase):
    @classmethod
    def setUpTestData(cls) -> None:
        Article.objects.create(name="lantern")
        send(DELIVERIES, {"name": "kite of the class"})

    def test_they_are_stored_and_billed(self) -> None:
        send(DELIVERIES, {"name": "kite"})
        handled = app.drain()
        self.assertEqual(len(handled), 2)
        self.assertEqual(Article.objects.filter(amount=1).count(), 2)
        bills = [message.get_body(dict) for message in sent(connection, BILLS)]
        self.assertEqual(bills, [{"name": "kite of the class"}, {"name": "kite"}])

    def test_a_listener_sends_in_the_transaction_of_the_orm(self) -> None:
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            deliver.send(connection, {"name": "rolled back"})
            1 / 0  # noqa: B018
        identifier = deliver.send(connection, {"name": "kite"}, priority=9)
        with self.assertRaisesMessage(jmsql.MessageFormatException, "is a list, not a dict"):
            deliver.send(connection, [5])  # type: ignore[call-overload]
        first, _ = app.drain(only=deliver)
        self.assertEqual(first.message.jms_message_id, identifier)
        self.assertTrue(Article.objects.filter(name="kite", amount=1).exists())

    def test_each_test_begins_again(self) -> None:
        self.assertEqual(len(app.drain()), 1)
        self.assertEqual(Article.objects.count(), 2)

    def test_drain_raises_errors_of_the_handler_and_undoes_its_changes(self) -> None:
        send(DELIVERIES, {"name": "lantern"})
        with self.assertRaises(IntegrityError):
            app.drain()
        self.assertEqual(Article.objects.get(name="lantern").amount, 0)

    def test_one_message(self) -> None:
        call(app, deliver, {"name": "a kite alone"})
        self.assertTrue(Article.objects.filter(name="a kite alone", amount=1).exists())

    def test_the_queries_of_a_handler_can_be_counted(self) -> None:
        with self.assertNumQueries(7):  # an insertion, one in a savepoint that is taken back, an update, and a send
            call(app, deliver, {"name": "a kite alone"})

    def test_each_send_is_a_query(self) -> None:
        names = [{"name": "kite"}, {"name": "lantern"}]
        for _ in range(2):  # also where the process knows the queue and the time
            with self.assertNumQueries(4) as queries:
                deliver.send(connection, names[0])
                deliver.send(connection, names[0], delivery_delay=60)
                deliver.send_many(connection, names)
                jmsql.send(connection, "topic://deliveries", names[0])
            self.assertIn("deliveries", queries[0]["sql"])
        with transaction.atomic(), self.assertNumQueries(1):
            deliver.send_many(connection, names * 30)
        seen: list[str] = []

        def note(execute: Any, sql: str, *rest: Any) -> Any:
            seen.append(sql)
            return execute(sql, *rest)

        with connection.execute_wrapper(note):
            deliver.send(connection, names[0])
            with self.assertRaises(jmsql.InvalidDestinationException):
                jmsql.send(connection, jmsql.TemporaryQueue("gone"), "x")
        self.assertTrue(seen[0].startswith('insert into "jmsql_internal".message'))


class Handlers(TestCase):
    """What a handler may do is what it may do in a worker."""

    def handle(self, handler: Any, **options: Any) -> None:
        own = Application()
        own.listener("orders", **options)(handler)
        send(jmsql.Queue("orders"), "kite")
        self.assertEqual(len(own.drain()), 1)

    def test_hooks_run_after_the_handler(self) -> None:
        called: list[Any] = []

        def order(body: str) -> None:
            Article.objects.create(name=body)
            transaction.on_commit(lambda: called.append(Article.objects.count()))
            self.assertEqual(called, [])

        self.handle(order)
        self.handle(lambda message: transaction.on_commit(lambda: called.append("message")))
        self.assertEqual(called, [1, "message"])
        self.assertEqual(connection.run_on_commit, [])

    def test_hooks_of_handlers_that_are_not_transacted(self) -> None:
        called: list[str] = []

        def order(body: str) -> None:
            with transaction.atomic():
                transaction.on_commit(lambda: called.append(body))

        self.handle(order, transacted=False)
        self.assertEqual(called, ["kite"])

    def test_durable_blocks_are_refused(self) -> None:
        def order(body: str) -> None:
            with self.assertRaises(RuntimeError), transaction.atomic(durable=True):
                pass

        self.handle(order)

    def test_an_error_that_is_caught_too_late_fails_the_message(self) -> None:
        def order(body: str) -> None:
            Article.objects.create(name=body)
            with self.assertRaises(IntegrityError):
                Article.objects.create(name=body)

        with self.assertRaisesRegex(transaction.TransactionManagementError, "marked for a rollback"):
            self.handle(order)
        self.assertEqual(Article.objects.count(), 0)

    def test_sqlalchemy_is_in_the_same_transaction(self) -> None:
        counts: list[Any] = []

        def order(body: str, database: Any, context: jmsql.JMSContext) -> None:
            Article.objects.create(name=body)
            counts.append(database.exec_driver_sql("select count(*) from shop_article").scalar())
            context.create_producer().send(BILLS, body)

        self.handle(order)
        self.assertEqual(counts, [1])
        self.assertEqual(len(sent(connection, BILLS)), 1)

    def test_closing_connections_closes_none_of_the_transaction(self) -> None:
        def order(body: str) -> None:
            Article.objects.update_or_create(name=body)
            close_old_connections()
            connections.close_all()

        self.handle(order)
        self.handle(order, transacted=False)
        self.assertEqual(Article.objects.count(), 1)

    def test_selects_for_update_and_iterators(self) -> None:
        def order(body: str) -> None:
            Article.objects.create(name=body)
            Article.objects.select_for_update().get(name=body)
            self.assertEqual(len(list(Article.objects.iterator(chunk_size=1))), 1)

        self.handle(order)


class Tasks(TestCase):
    def setUp(self) -> None:
        tasks.calls.clear()

    def test_they_run_in_the_transaction_of_the_test(self) -> None:
        tasks.store.enqueue("kite")
        tasks.store_later.enqueue("lantern")
        tasks.outside.enqueue("a kite outside")
        self.assertEqual(len(sent(connection, "tasks.mail")), 1)
        app.drain()
        self.assertEqual(Article.objects.count(), 3)

    async def test_they_run_in_a_test_that_is_a_coroutine_function(self) -> None:
        await tasks.store.aenqueue("kite")
        await sync_to_async(app.drain)()
        self.assertEqual(await Article.objects.acount(), 1)

    def test_their_errors_are_raised(self) -> None:
        tasks.fail_twice.enqueue("kite")
        with self.assertRaises(LookupError):
            app.drain()
        self.assertEqual(Article.objects.count(), 0)


class Committed(TransactionTestCase):
    """Without a transaction of the test, what is sent is committed at once, and each handler has a transaction."""

    def setUp(self) -> None:
        empty(connection)

    def test_a_block_of_atomic_is_drained_inside_of_it(self) -> None:
        send(DELIVERIES, {"name": "lantern"})
        with transaction.atomic():
            send(DELIVERIES, {"name": "kite"})
            self.assertEqual(len(app.drain()), 1)
            transaction.set_rollback(True)
        self.assertEqual(Article.objects.count(), 0)

    def test_messages_that_are_committed_are_drained(self) -> None:
        send(DELIVERIES, {"name": "kite"})
        self.assertEqual(len(sent(connection, DELIVERIES)), 1)
        self.assertEqual(len(app.drain()), 1)
        self.assertEqual(Article.objects.get().amount, 1)
        self.assertEqual(len(sent(connection, BILLS)), 1)

    def test_no_message_is_left_of_another_test(self) -> None:
        self.assertEqual(sent(connection, BILLS), [])
        self.assertEqual(app.drain(), [])

    def test_hooks_run_after_the_commit_of_the_handler(self) -> None:
        own, called = Application(), list[Any]()

        @own.listener("orders")
        def order(body: str) -> None:
            Article.objects.create(name=body)
            transaction.on_commit(lambda: called.append((connection.in_atomic_block, Article.objects.count())))

        producer = jmsql.enlist(connection).create_producer()
        producer.delivery_delay = 60
        producer.send(jmsql.Queue("orders"), "kite")
        own.drain()
        self.assertEqual(called, [(False, 1)])
        call(own, order, "lantern")
        self.assertEqual(called, [(False, 1), (False, 2)])

    def test_the_failure_of_a_handler_undoes_its_work_alone(self) -> None:
        send(DELIVERIES, {"name": "kite"}, {"name": "kite"}, {"name": "lantern"})
        handled = app.drain(raise_failures=False)
        self.assertEqual([type(each.error) for each in handled], [NoneType, IntegrityError, NoneType])
        self.assertEqual(Article.objects.count(), 2)
        self.assertEqual(len(sent(connection, DELIVERIES)), 1)
