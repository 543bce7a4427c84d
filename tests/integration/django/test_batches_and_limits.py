"""Batches that are sent in Django's transaction, and limits of handlers with the ORM."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection, transaction

import jmsql
from jmsql.django import Application
from jmsql.worker import Rate

Handled = Callable[..., None]


def count(text: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"select count(*) from {text}")
        return int(cursor.fetchone()[0])


def send_batch(*bodies: str) -> None:
    """Send a batch in the open transaction of Django's connection."""
    with jmsql.batch(jmsql.enlist(connection), "import", on_end="ends") as batch:
        for body in bodies:
            batch.send("parts", body)


@pytest.mark.parametrize("is_nested", [False, True])
def test_a_rollback_of_the_outer_block_leaves_nothing_of_a_batch(project: None, is_nested: bool) -> None:
    with transaction.atomic():
        if is_nested:
            with transaction.atomic():
                send_batch("one")
        else:
            send_batch("one")
        transaction.set_rollback(True)
    assert count("jmsql.messages") == count("jmsql.batches") == count("jmsql_internal.batch_member") == 0


def test_the_callback_of_a_batch_sees_the_rows_of_its_handlers(project: None, handled: Handled) -> None:
    from tests.integration.django.shop.models import Article

    app = Application()
    ends: list[Any] = []

    @app.listener("parts", concurrency=2)
    def handle(body: str) -> None:
        Article.objects.create(name=body, facts={}, changed=datetime(2026, 5, 1, tzinfo=UTC))

    @app.listener("ends")
    def end(body: dict[str, Any]) -> None:
        ends.append((body["total"], body["done"], Article.objects.count()))

    with transaction.atomic():
        send_batch("one", "two", "three")
        with transaction.atomic():
            send_batch("of a savepoint that is rolled back")
            transaction.set_rollback(True)
    handled(app, lambda: ends and count("jmsql.messages") == 0)
    assert ends == [(3, 3, 3)]


def test_a_limit_holds_for_handlers_with_the_orm(project: None, handled: Handled) -> None:
    from tests.integration.django.shop.models import Article

    app = Application()
    running: list[int] = []
    most: list[int] = []

    @app.listener("parts", concurrency=3, rate=Rate(3, per=3600), at_most=1)
    def handle(body: str) -> None:
        running.append(1)
        most.append(len(running))
        Article.objects.create(name=body, facts={}, changed=datetime(2026, 5, 1, tzinfo=UTC))
        running.pop()

    with transaction.atomic():
        send_batch("one", "two", "three", "four")
    handled(app, lambda: count("shop_article") == 3)
    assert most == [1, 1, 1]
    assert count("jmsql.messages") == 1
    assert count("jmsql.limits where is_met and kind = 'rate' and used = 3 and waiting = 1") == 1
