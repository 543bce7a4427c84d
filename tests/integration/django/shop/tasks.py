"""The tasks of the app, and what they have been called with."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.db import connection, transaction

from jmsql.django.tasks import framework
from tests.integration.django.shop.models import Article

task: Any = framework.task
calls: list[Any] = []


@task
def note(*args: Any, **kwargs: Any) -> str:
    calls.append((args, kwargs))
    return "dropped"


@task(queue_name="mail", priority=100)
def store(name: str) -> None:
    Article.objects.create(name=name)


@task
async def store_later(name: str) -> None:
    await Article.objects.acreate(name=name)
    calls.append(connection.in_atomic_block)


@task(takes_context=True)
def fail_twice(context: Any, name: str) -> None:
    Article.objects.create(name=name)
    calls.append((context.attempt, context.task_result.id))
    if context.attempt < 3:
        raise LookupError("not yet")


@task(backend="apart")
def outside(name: str) -> None:
    Article.objects.create(name=name)
    calls.append(connection.in_atomic_block)


@task
def fail(how: str) -> None:
    Article.objects.create(name="undone")
    match how:
        case "ValueError":
            raise ValueError("the true error")
        case "IntegrityError":
            Article.objects.create(name="undone")
        case "TransactionManagementError":
            transaction.set_rollback(True)


not_a_task = import_module
