"""What surrounds each call of a handler: it sees the call and its end, provides values, and may fail the message."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from typing import Any, Protocol

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection

import jmsql
from jmsql import ConnectionFactory, Queue
from jmsql.testing import wait_for
from jmsql.worker import Application, HandlerCall, Reject
from tests.integration.worker.conftest import PATIENCE, WorkerDatabase
from tests.integration.worker.test_handlers import send, texts_in

ORDERS = Queue("orders")
NEVER_AGAIN = jmsql.RedeliveryPolicy(maximum_deliveries=2, delay=600.0)
FAILED = "select last_error from jmsql.messages where queue = 'orders' and last_error <> ''"
KINDS = {"a thread": (False, True), "a thread, not transacted": (False, False), "a task": (True, True)}
KINDS["a task, not transacted"] = (True, False)
kinds = pytest.mark.parametrize(("is_async", "transacted"), KINDS.values(), ids=KINDS)

tenant = contextvars.ContextVar("tenant", default="nobody")


class Client:
    """What a handler needs, and no message has."""

    def __init__(self, name: str) -> None:
        self.name = name


class Clock(Protocol):
    """What a handler needs, as a protocol."""

    def time(self) -> float: ...


class StoppedClock:
    """It is always midnight."""

    def time(self) -> float:
        return 0.0


class Around:
    """Surrounds calls, and remembers what it has seen; as an asynchronous context manager for coroutine functions."""

    def __init__(
        self,
        before: Callable[[HandlerCall], object] = lambda _: None,
        after: Callable[[HandlerCall], object] = lambda _: None,
        swallowed: type[BaseException] = GeneratorExit,
    ) -> None:
        self.before, self.after, self.swallowed = before, after, swallowed
        self.seen: list[tuple[object, ...]] = []

    @contextmanager
    def _blocking(self, call: HandlerCall) -> Iterator[None]:
        with suppress(self.swallowed):
            self.before(call)
            try:
                yield
            except BaseException as error:
                self.seen.append((call.listener.destination, call.message.get_body(str), call.delivery_count, error))
                raise
            self.seen.append((call.listener.destination, call.message.get_body(str), call.delivery_count, call.result))
            self.after(call)

    @asynccontextmanager
    async def _awaited(self, call: HandlerCall) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        with self._blocking(call):
            yield
        await asyncio.sleep(0)

    def __call__(self, call: HandlerCall) -> AbstractContextManager[None] | AbstractAsyncContextManager[None]:
        return self._awaited(call) if call.listener.is_async else self._blocking(call)


def application(
    factory: ConnectionFactory, around: Around, handle: Callable[[str], object], *, is_async: bool, **options: Any
) -> Application:
    """Return an application with one handler, which is called with the text of its message."""
    found = Application(factory, around=around)

    async def awaited(text: str) -> object:
        await asyncio.sleep(0)
        result = handle(text)
        return await result if asyncio.iscoroutine(result) else result

    def blocking(text: str) -> object:
        return handle(text)

    found.listener(ORDERS, redelivery=NEVER_AGAIN, **options)(awaited if is_async else blocking)
    return found


async def run_until(application: Application, condition: Callable[[], object]) -> None:
    async with application.running():
        await asyncio.to_thread(wait_for, condition, PATIENCE)


def is_handled(database: WorkerDatabase) -> bool:
    return database.rows("select 1 from jmsql.messages where queue = 'orders'") == []


@kinds
async def test_it_sees_the_call_and_the_handlers_result(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, is_async: bool, transacted: bool
) -> None:
    committed: list[bool] = []

    def after(call: HandlerCall) -> None:
        call.after_commit(lambda: 1 / 0)  # which is logged
        call.after_commit(lambda: committed.append(is_handled(database)))
        assert not is_handled(database) or not transacted

    around = Around(after=after)
    app = application(jmsql_factory, around, str.upper, is_async=is_async, transacted=transacted, reply_to="answers")
    send(jmsql_factory, "orders", "kite")
    await run_until(app, lambda: committed)
    assert around.seen == [(ORDERS, "kite", 1, "KITE")]
    assert committed == [True]
    assert texts_in(jmsql_factory, "answers") == ["KITE"]


@kinds
@pytest.mark.parametrize("error", [LookupError("no such article"), Reject("no such article")], ids=["error", "Reject"])
async def test_it_sees_the_handlers_error(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, is_async: bool, transacted: bool, error: Exception
) -> None:
    def fail(_: str) -> None:
        raise error

    around = Around()
    app = application(jmsql_factory, around, fail, is_async=is_async, transacted=transacted)
    send(jmsql_factory, "orders", "kite")
    dead = "select reason from jmsql.dead_letters"
    await run_until(app, lambda: database.rows(dead) if isinstance(error, Reject) else database.rows(FAILED))
    assert around.seen == [(ORDERS, "kite", 1, error)]
    assert database.rows(dead) == ([("rejected",)] if isinstance(error, Reject) else [])


@kinds
@pytest.mark.parametrize("place", ["before", "after"])
async def test_its_own_error_fails_the_message(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, is_async: bool, transacted: bool, place: str
) -> None:
    called: list[str] = []

    def fail(_: HandlerCall) -> None:
        raise RuntimeError(f"it fails {place} the call")

    around = Around(before=fail) if place == "before" else Around(after=fail)
    app = application(jmsql_factory, around, called.append, is_async=is_async, transacted=transacted)
    send(jmsql_factory, "orders", "kite")
    await run_until(app, lambda: database.rows(FAILED))
    [(last_error,)] = database.rows(FAILED)
    assert last_error.endswith(f"RuntimeError: it fails {place} the call\n")
    assert called == ([] if place == "before" else ["kite"])


@kinds
async def test_an_error_that_it_swallows_did_not_happen(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, is_async: bool, transacted: bool
) -> None:
    def fail(_: str) -> None:
        raise LookupError("no such article")

    around = Around(swallowed=LookupError)
    app = application(jmsql_factory, around, fail, is_async=is_async, transacted=transacted, reply_to="answers")
    send(jmsql_factory, "orders", "kite")
    await run_until(app, lambda: is_handled(database))
    assert len(around.seen) == 1
    assert database.rows("select 1 from jmsql.dead_letters") == []
    assert texts_in(jmsql_factory, "answers") == []


@kinds
@pytest.mark.parametrize("fallback", [None, "another kite"])
async def test_an_error_that_it_swallows_ends_the_chain_unless_it_sets_a_result(
    jmsql_factory: ConnectionFactory,
    database: WorkerDatabase,
    is_async: bool,
    transacted: bool,
    fallback: str | None,
) -> None:
    class Fallback(Around):
        @contextmanager
        def _blocking(self, call: HandlerCall) -> Iterator[None]:
            with super()._blocking(call):
                yield
            call.result = fallback

    def fail(_: str) -> None:
        raise LookupError("no such article")

    app = application(jmsql_factory, Fallback(swallowed=LookupError), fail, is_async=is_async, transacted=transacted)
    with jmsql_factory.create_context() as context:
        jmsql.send(context, "orders", "kite", then=["next"])
    await run_until(app, lambda: is_handled(database))
    assert texts_in(jmsql_factory, "next") == ([] if fallback is None else [fallback])


async def test_an_error_of_the_database_that_it_swallows_fails_the_message_all_the_same(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    app = Application(jmsql_factory, around=Around(swallowed=sqlalchemy.exc.DBAPIError))

    @app.listener(ORDERS, redelivery=NEVER_AGAIN)
    def handle(text: str, database: sqlalchemy.Connection) -> None:
        database.execute(sqlalchemy.text("select 1 / 0"))

    waiting = "select delivery_count from jmsql.messages where queue = 'orders' and state = 'waiting'"
    send(jmsql_factory, "orders", "kite")
    await run_until(app, lambda: database.rows(waiting) == [(1,)])


@kinds
@pytest.mark.parametrize("swallowed", [GeneratorExit, Exception], ids=["seen", "swallowed"])
async def test_a_time_out_is_seen_and_cannot_be_swallowed(
    jmsql_factory: ConnectionFactory,
    database: WorkerDatabase,
    is_async: bool,
    transacted: bool,
    swallowed: type[BaseException],
) -> None:
    def wait(_: str) -> object:
        if is_async:
            return asyncio.sleep(600)
        time.sleep(1.0)
        return None

    around = Around(swallowed=swallowed)
    limit = 1.5 if is_async else 0.3  # a call that has not begun within it is not seen
    app = application(jmsql_factory, around, wait, is_async=is_async, transacted=transacted, timeout=limit)
    send(jmsql_factory, "orders", "kite")
    await run_until(app, lambda: database.rows(FAILED))
    [(last_error,)] = database.rows(FAILED)
    assert f"TimeoutError: The handler has taken longer than its timeout of {limit} s." in last_error
    if is_async:  # a thread has returned, too late
        [(*_, error)] = around.seen
        assert isinstance(error, TimeoutError)


async def test_it_counts_for_the_time_out_too(jmsql_factory: ConnectionFactory, database: WorkerDatabase) -> None:
    @asynccontextmanager
    async def slow(_: HandlerCall) -> AsyncIterator[None]:
        await asyncio.sleep(600)
        yield

    app = Application(jmsql_factory, around=slow)

    @app.listener(ORDERS, redelivery=NEVER_AGAIN, timeout=0.2)
    async def handle(text: str) -> None:
        raise AssertionError

    send(jmsql_factory, "orders", "kite")
    await run_until(app, lambda: database.rows(FAILED))
    assert "TimeoutError" in database.rows(FAILED)[0][0]


async def test_it_provides_values_by_their_classes(jmsql_factory: ConnectionFactory, database: WorkerDatabase) -> None:
    @contextmanager
    def around(call: HandlerCall) -> Iterator[None]:
        call.provide(Client, Client(call.listener.name.rpartition(".")[2]))
        call.provide(Clock, StoppedClock())
        yield

    app = Application(jmsql_factory, around=around)
    seen: dict[str, object] = {}

    @app.listener("blocking")
    def blocking(client: Client, text: str, clock: Clock) -> None:
        seen[client.name] = text, clock.time()

    @app.listener("awaited", transacted=False)
    async def awaited(
        message: jmsql.TextMessage, client: Client | None, reactor: asyncio.AbstractServer | None
    ) -> None:
        assert client is not None
        seen[client.name] = message.text, reactor

    send(jmsql_factory, "blocking", "kite")
    send(jmsql_factory, "awaited", "lantern")
    await run_until(app, lambda: len(seen) == 2)
    assert seen == {"blocking": ("kite", 0.0), "awaited": ("lantern", None)}


async def test_a_class_that_it_does_not_provide_fails_the_message_with_advice(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    app = Application(jmsql_factory, around=Around())

    @app.listener(ORDERS, redelivery=NEVER_AGAIN)
    def handle(client: Client) -> None:
        raise AssertionError

    send(jmsql_factory, "orders", "kite")
    await run_until(app, lambda: database.rows(FAILED))
    assert "has provided no Client for this call: have it say call.provide(Client, …)" in database.rows(FAILED)[0][0]


@pytest.mark.parametrize("is_async", [False, True], ids=["a thread", "a task"])
async def test_it_works_in_the_transaction_of_the_message(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, is_async: bool
) -> None:
    setting = sqlalchemy.text("select set_config('app.tenant', 'kites', true)")
    reading = sqlalchemy.text("insert into handled (text) values (current_setting('app.tenant'))")

    @contextmanager
    def blocking(call: HandlerCall) -> Iterator[None]:
        call.database.execute(setting)
        yield

    @asynccontextmanager
    async def awaited(call: HandlerCall) -> AsyncIterator[None]:
        await (await call.get_database()).execute(setting)
        yield

    app = Application(jmsql_factory, around=awaited if is_async else blocking)
    if is_async:

        @app.listener(ORDERS)
        async def handle_awaited(text: str, database: AsyncConnection) -> None:
            await database.execute(reading)

    else:

        @app.listener(ORDERS)
        def handle(text: str, database: sqlalchemy.Connection) -> None:
            database.execute(reading)

    send(jmsql_factory, "orders", "kite")
    await run_until(app, lambda: is_handled(database))
    assert database.rows("select text from handled") == [("kites",)]


async def test_a_handler_without_a_transaction_has_no_database(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    around = Around(before=lambda call: call.database)
    app = application(jmsql_factory, around, print, is_async=False, transacted=False)
    send(jmsql_factory, "orders", "kite")
    await run_until(app, lambda: database.rows(FAILED))
    assert "is not transacted: its message has no transaction" in database.rows(FAILED)[0][0]


@kinds
async def test_each_call_has_context_variables_of_its_own(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, is_async: bool, transacted: bool
) -> None:
    seen: list[tuple[str, str]] = []
    before: list[str] = []

    def set_it(call: HandlerCall) -> None:
        before.append(tenant.get())
        tenant.set(f"tenant of {call.message.get_body(str)}")

    around = Around(before=set_it)
    app = application(
        jmsql_factory,
        around,
        lambda text: seen.append((text, tenant.get())),
        is_async=is_async,
        transacted=transacted,
    )
    send(jmsql_factory, "orders", "kite", "lantern")
    await run_until(app, lambda: is_handled(database) and len(seen) == 2)
    assert sorted(seen) == [("kite", "tenant of kite"), ("lantern", "tenant of lantern")]
    assert before == ["nobody", "nobody"]


class _Deduplicating(logging.Handler):
    """A reporter of errors that leaves out an error which has been reported in the same context, as Sentry's does."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.last = contextvars.ContextVar[BaseException | None]("last", default=None)
        self.reported: list[BaseException] = []

    def report(self, error: BaseException) -> None:
        if error is not self.last.get():
            self.last.set(error)
            self.reported.append(error)

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.report(record.exc_info[1])


@kinds
@pytest.mark.parametrize("is_late", [False, True])
async def test_an_error_that_it_reports_is_logged_in_the_same_context(
    jmsql_factory: ConnectionFactory,
    database: WorkerDatabase,
    is_async: bool,
    transacted: bool,
    is_late: bool,
) -> None:
    reporter = _Deduplicating()

    @contextmanager
    def around(_: HandlerCall) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            reporter.report(error)
            raise

    def handle(_: str) -> object:
        if not is_late:
            raise LookupError("no such article")
        if is_async:
            return asyncio.sleep(10)
        time.sleep(0.6)
        return None

    app = application(
        jmsql_factory,
        around,  # type: ignore[arg-type]  # as good as an Around
        handle,
        is_async=is_async,
        transacted=transacted,
        timeout=0.3 if is_late else None,
    )
    send(jmsql_factory, "orders", "kite")
    logging.getLogger("jmsql.worker").addHandler(reporter)
    try:
        await run_until(app, lambda: database.rows(FAILED))
    finally:
        logging.getLogger("jmsql.worker").removeHandler(reporter)
    assert len(reporter.reported) == 1
