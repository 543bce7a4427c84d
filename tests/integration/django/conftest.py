"""A project of Django's on the tests' database, and workers in the tests' process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import django
import psycopg
import pytest
from django.db import connections
from django.test.utils import setup_test_environment, teardown_test_environment

from jmsql.testing import wait_for
from jmsql.worker import WorkerTimings
from tests.integration.django.environment import environment_of

TIMINGS = WorkerTimings(failure_pause=0.01, check_interval=0.05)


@pytest.fixture(scope="session")
def environment(jmsql_url: str) -> dict[str, str]:
    """What processes of the project find in their environment."""
    return environment_of(jmsql_url)


@pytest.fixture(scope="session")
def project(environment: dict[str, str]) -> Iterator[None]:
    """The project, whose tables are in the tests' database."""
    os.environ.update(environment)
    django.setup()
    from django.core.management import call_command

    setup_test_environment()
    call_command("migrate", verbosity=0)
    connections.close_all()
    yield
    teardown_test_environment()


@pytest.fixture(autouse=True)
def empty_shop(project: None, jmsql_clean_url: str) -> Iterator[None]:
    """Each test begins without messages and articles, and ends without connections of Django's."""
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        connection.execute("truncate shop_article")
    yield
    connections.close_all()


Work = Callable[[Any], AbstractAsyncContextManager[None]]


@pytest.fixture
def working() -> Work:
    """Runs the handlers of an application in this process for as long as a block lasts."""

    @asynccontextmanager
    async def run(app: Any, **options: Any) -> AsyncIterator[None]:
        async with app.running(timings=TIMINGS, drain_timeout=10.0, **options):
            yield

    return run


@pytest.fixture
def handled(working: Work) -> Callable[..., None]:
    """Has an application handle messages until a condition holds."""

    def handle(app: Any, condition: Callable[[], object], **options: Any) -> None:
        async def run() -> None:
            async with working(app, **options):
                await asyncio.to_thread(wait_for, closing(condition), 60.0)

        asyncio.run(run())

    return handle


def closing(condition: Callable[[], object]) -> Callable[[], object]:
    """The condition, in a thread that leaves no connection of Django's behind."""

    def check() -> object:
        try:
            return condition()
        finally:
            connections.close_all()

    return check
