"""A project of Django's on the tests' database, and workers in the tests' process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import django
import psycopg
import pytest
from django.conf import settings
from django.db import connections

from jmsql.testing import wait_for
from jmsql.worker import WorkerTimings

TIMINGS = WorkerTimings(failure_pause=0.01, check_interval=0.05)


def database_settings(url: str, **more: Any) -> dict[str, Any]:
    """What `DATABASES` says of a URL."""
    parameters = psycopg.conninfo.conninfo_to_dict(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parameters.pop("dbname"),
        "USER": parameters.pop("user", ""),
        "PASSWORD": parameters.pop("password", ""),
        "HOST": parameters.pop("host", ""),
        "PORT": parameters.pop("port", ""),
        "OPTIONS": parameters,
    } | more


@pytest.fixture(scope="session")
def project(jmsql_url: str) -> None:
    """The project, whose tables are in the tests' database."""
    database = database_settings(jmsql_url)
    settings.configure(
        DATABASES={"default": database, "other": {**database, "TEST": {"MIRROR": "default"}}},
        INSTALLED_APPS=["jmsql.django", "tests.integration.django.shop"],
        USE_TZ=True,
        TIME_ZONE="Europe/Berlin",
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        SECRET_KEY="tests",
    )
    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    connections.close_all()


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
                await asyncio.to_thread(wait_for, closing(condition), 30.0)

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
