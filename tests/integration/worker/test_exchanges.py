"""How often a worker talks with PostgreSQL for a message: counted at the wire, beside what the handler asks itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection

import jmsql.asyncio
from jmsql import ConnectionFactory, Message
from jmsql.admin import Administration
from jmsql.client._async.session.transactions import handler as handler_in_tasks
from jmsql.client._sync.session.transactions import handler as handler_in_threads
from jmsql.testing import wait_for
from jmsql.timings import InternalTimings
from jmsql.worker import Application
from jmsql.worker.handlers.handler_groups import HandlerGroup, HandlersInEventLoop, HandlersInThreads
from jmsql.worker.settings import HandlerSettings
from tests.faults.proxy import CuttingProxy
from tests.integration.worker.conftest import PATIENCE, WorkerDatabase
from tests.integration.worker.test_handlers import send

MESSAGES = 200
FIRST = 60
"""After so many messages the connections are open, and it is known how quick the handlers are."""
INSERTION = sqlalchemy.text("insert into handled (text) values ('x')")


@pytest.fixture
def proxy(jmsql_clean_url: str) -> Iterator[CuttingProxy]:
    with CuttingProxy(jmsql_clean_url) as proxy:
        yield proxy


class Count:
    """How many exchanges there were from a message on, until all that come after it were handled and deleted."""

    def __init__(self, proxy: CuttingProxy) -> None:
        self._proxy = proxy
        self._lock = threading.Lock()
        self._handled = 0
        self._first = 0
        self.ended = threading.Event()

    def handled(self) -> None:
        """Note that a message was handled."""
        with self._lock:
            self._handled += 1
            if self._handled == FIRST:
                self._first = self._proxy.requests
            if self._handled == MESSAGES:
                self.ended.set()

    def for_each(self) -> float:
        """Return how many there were for each message, now that the last transactions have ended."""
        return (self._proxy.requests - self._first) / (MESSAGES - FIRST)


def handlers(count: Count) -> dict[str, Callable[..., object]]:
    """The handlers, by what they are: those that insert have one exchange of their own."""

    def inserting(message: Message, database: sqlalchemy.Connection) -> None:
        database.execute(INSERTION)
        count.handled()

    async def inserting_coroutine(message: Message, database: AsyncConnection) -> None:
        await database.execute(INSERTION)
        count.handled()

    def plain(message: Message) -> None:
        count.handled()

    async def plain_coroutine(message: Message) -> None:
        count.handled()

    return {
        "def, inserting": inserting,
        "async def, inserting": inserting_coroutine,
        "def": plain,
        "async def": plain_coroutine,
    }


@pytest.mark.parametrize("concurrency", [1, 10])
@pytest.mark.parametrize(
    ("kind", "most"), [("def, inserting", 1 + 1.5), ("async def, inserting", 1 + 1.5), ("def", 1.5), ("async def", 1.5)]
)
@pytest.mark.usefixtures("database")
def test_a_message_takes_few_exchanges_beside_its_handlers_own(
    jmsql_factory: ConnectionFactory,
    jmsql_clean_url: str,
    proxy: CuttingProxy,
    kind: str,
    most: float,
    concurrency: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On a slow machine, none would be claimed ahead: one takes as long there as the time for which others are claimed.
    for module in (handler_in_threads, handler_in_tasks):
        monkeypatch.setattr(module, "_AHEAD", 60.0)
        monkeypatch.setattr(module, "_LONGEST", 120.0)
    timings = InternalTimings(prefetch_duration=60.0)
    send(jmsql_factory, "orders", *("x" for _ in range(MESSAGES)))
    count = Count(proxy)
    app = Application()
    app.listener("orders")(handlers(count)[kind])
    settings = HandlerSettings(concurrency=concurrency)
    group: HandlerGroup
    if kind.startswith("async"):
        asynchronous = jmsql.asyncio.ConnectionFactory(proxy.url, control_url=jmsql_clean_url, timings=timings)
        group = HandlersInEventLoop.open(asynchronous, app.listeners, settings)
    else:
        factory = ConnectionFactory(proxy.url, control_url=jmsql_clean_url, timings=timings)
        group = HandlersInThreads.open(factory, app.listeners, settings)
    group.start()
    try:
        assert count.ended.wait(PATIENCE)
        with Administration(jmsql_factory) as administration:
            wait_for(lambda: administration.count("orders") == 0, PATIENCE)
        for_each = count.for_each()
    finally:
        group.end(PATIENCE).result()
    assert 1 < for_each <= most


def test_the_count_of_exchanges_grows_with_a_clients_work(proxy: CuttingProxy, database: WorkerDatabase) -> None:
    """A message sent and received takes an exchange each, so that the bound above means something."""
    with (
        ConnectionFactory(proxy.url).create_connection() as connection,
        connection.create_session(transacted=True) as session,
    ):
        connection.start()
        before = proxy.requests
        session.database.execute(INSERTION)
        session.commit()
        assert proxy.requests - before >= 2
