"""Handlers in the test's own transaction: what they do there is what they do in a worker."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine

import jmsql
import jmsql.asyncio as jms
from jmsql import Queue, Topic
from jmsql.testing import call, empty, sent, subscribe, wait_for
from jmsql.worker import Application, Reject, RetryAfter, Router, WorkerTimings

ORDERS, BILLS, NOTES = Queue("orders"), Queue("bills"), Queue("notes")
PRICES = Topic("prices")


class Base(orm.DeclarativeBase):
    pass


class Article(Base):
    __tablename__ = "drained_article"
    name: orm.Mapped[str] = orm.mapped_column(primary_key=True)
    amount: orm.Mapped[int] = orm.mapped_column(default=0)


@pytest.fixture
def url(jmsql_clean_url: str) -> Any:
    """The database, with the table of the tests."""
    engine = sqlalchemy.create_engine(sqlalchemy.make_url(jmsql_clean_url).set(drivername="postgresql+psycopg"))
    Base.metadata.create_all(engine)
    yield engine.url
    Base.metadata.drop_all(engine)
    engine.dispose()


def text(url: sqlalchemy.URL) -> str:
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


@asynccontextmanager
async def session(url: sqlalchemy.URL) -> AsyncIterator[Any]:
    """A session of a test, as SQLAlchemy's documentation makes it."""
    engine = sqlalchemy.create_engine(url)
    with engine.connect() as connection:
        transaction = connection.begin()
        with orm.Session(connection, join_transaction_mode="create_savepoint") as database:
            yield database
        transaction.rollback()
    engine.dispose()


@asynccontextmanager
async def connection(url: sqlalchemy.URL) -> AsyncIterator[Any]:
    engine = sqlalchemy.create_engine(url)
    with engine.connect() as connection:
        yield connection
        connection.rollback()
    engine.dispose()


@asynccontextmanager
async def driver(url: sqlalchemy.URL) -> AsyncIterator[Any]:
    with psycopg.connect(text(url)) as connection:
        yield connection
        connection.rollback()


@asynccontextmanager
async def async_session(url: sqlalchemy.URL) -> AsyncIterator[Any]:
    engine = create_async_engine(url)
    async with engine.connect() as connection:
        transaction = await connection.begin()
        async with AsyncSession(
            connection, join_transaction_mode="create_savepoint", expire_on_commit=False
        ) as database:
            yield database
        await transaction.rollback()
    await engine.dispose()


@asynccontextmanager
async def async_connection(url: sqlalchemy.URL) -> AsyncIterator[Any]:
    engine = create_async_engine(url)
    async with engine.connect() as connection:
        yield connection
        await connection.rollback()
    await engine.dispose()


@asynccontextmanager
async def async_driver(url: sqlalchemy.URL) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(text(url)) as connection:
        yield connection
        await connection.rollback()


@asynccontextmanager
async def async_other_driver(url: sqlalchemy.URL) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(text(url))
    transaction = connection.transaction()
    await transaction.start()
    yield connection
    await transaction.rollback()
    await connection.close()


BLOCKING = [session, connection, driver]
AWAITED = [async_session, async_connection]
DRIVERS = [async_driver, async_other_driver]


@pytest.fixture(params=BLOCKING + AWAITED, ids=lambda kind: kind.__name__)
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
async def transaction(kind: Any, url: sqlalchemy.URL) -> AsyncIterator[Any]:
    """A transaction of a test, after which nothing is left."""
    before = rows_in_all_tables(url)
    async with kind(url) as transaction:
        yield transaction
    after = rows_in_all_tables(url)
    for name in ("queue", "destination"):  # the tests with another client's messages make one
        before.pop(name, None), after.pop(name, None)
    assert after == before


def rows_in_all_tables(url: sqlalchemy.URL) -> dict[str, int]:
    with psycopg.connect(text(url)) as observer:
        [(counts,)] = observer.execute(
            "select string_agg(format('select %L, count(*) from %s', relname, oid::regclass), ' union all ') "
            "from pg_class where relkind in ('r', 'p') "
            "and (relnamespace = 'jmsql_internal'::regnamespace or relname = 'drained_article')"
        ).fetchall()
        return dict(observer.execute(counts.encode()).fetchall())


async def done(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


async def send(transaction: Any, destination: Any, *bodies: object, delay: float = 0) -> None:
    awaited = AsyncSession | AsyncConnection | psycopg.AsyncConnection | asyncpg.Connection
    enlist: Any = jms.enlist if isinstance(transaction, awaited) else jmsql.enlist
    producer = enlist(transaction).create_producer()
    producer.delivery_delay = delay
    for body in bodies:
        await done(producer.send(destination, body))


async def names(transaction: Any) -> list[tuple[str, int]]:
    statement = "select name, amount from drained_article order by name"
    if isinstance(transaction, psycopg.Connection):
        return transaction.execute(statement).fetchall()
    if isinstance(transaction, psycopg.AsyncConnection):
        return await (await transaction.execute(statement)).fetchall()
    if isinstance(transaction, asyncpg.Connection):
        return [tuple(row) for row in await transaction.fetch(statement)]
    return [tuple(row) for row in await done(transaction.execute(sqlalchemy.text(statement)))]


def inserting(name: str) -> Any:
    return sqlalchemy.text("insert into drained_article values (:name, 0)").bindparams(name=name)


@pytest.fixture
def app() -> Application:
    """An application with a handler for each kind of parameter."""
    app = Application()

    @app.listener(ORDERS)
    def store(body: dict[str, Any], database: sqlalchemy.Connection, context: jmsql.JMSContext) -> None:
        database.execute(inserting(body["name"]))
        context.create_producer(priority=7).send(BILLS, body["name"])

    @app.listener(BILLS)
    def bill(message: jmsql.TextMessage, database: orm.Session, session: jmsql.Session) -> None:
        article = database.get_one(Article, message.text)
        article.amount = message.jms_priority + 10 * message.get_int_property("JMSXDeliveryCount")
        session.create_producer(NOTES).send(session.create_text_message(f"{message.text} is billed"))

    return app


def failing(app: Application, error: BaseException) -> None:
    @app.listener(NOTES, redelivery=jmsql.RedeliveryPolicy(maximum_deliveries=1))
    def note(body: str, database: sqlalchemy.Connection, context: jmsql.JMSContext) -> None:
        database.execute(inserting("never"))
        context.create_producer().send(ORDERS, {"name": "never"})
        if body != "fine":
            raise error


async def test_handlers_run_until_nothing_is_left(app: Application, transaction: Any) -> None:
    await send(transaction, ORDERS, {"name": "kite"}, {"name": "lantern"})
    handled = await done(app.drain(transaction=transaction))
    assert [each.listener.rpartition(".")[2] for each in handled] == ["store", "bill", "store", "bill"]
    assert await names(transaction) == [("kite", 17), ("lantern", 17)]
    assert [message.get_body(str) for message in await done(sent(transaction, NOTES))] == [
        "kite is billed",
        "lantern is billed",
    ]
    assert await done(sent(transaction, "orders")) == []
    assert await done(app.drain(transaction=transaction)) == []


PSYCOPG_INSERTION = "insert into drained_article values (%s, 0)"


@pytest.mark.parametrize("kind", BLOCKING)
async def test_a_handler_is_given_psycopgs_connection_of_the_transaction(kind: Any, url: sqlalchemy.URL) -> None:
    app = Application()

    @app.listener(ORDERS)
    def store(text: str, connection: psycopg.Connection) -> None:
        with connection.transaction():
            connection.execute(PSYCOPG_INSERTION, (text,))

    async with kind(url) as transaction:
        await send(transaction, ORDERS, "kite")
        assert len(app.drain(transaction=transaction)) == 1
        assert await names(transaction) == [("kite", 0)]
    with psycopg.connect(text(url)) as observer:
        assert await names(observer) == []


@pytest.mark.parametrize("kind", [*AWAITED, async_driver])
async def test_a_coroutine_function_is_given_psycopgs_connection_of_the_transaction(
    kind: Any, url: sqlalchemy.URL
) -> None:
    app = Application()

    @app.listener(ORDERS)
    async def store(text: str, connection: psycopg.AsyncConnection) -> None:
        async with connection.transaction():
            await connection.execute(PSYCOPG_INSERTION, (text,))

    async with kind(url) as transaction:
        await send(transaction, ORDERS, "kite")
        assert len(await app.drain(transaction=transaction)) == 1
        assert await names(transaction) == [("kite", 0)]
    with psycopg.connect(text(url)) as observer:
        assert await names(observer) == []


async def test_where_there_is_no_connection_of_psycopgs_an_error_says_so(url: sqlalchemy.URL) -> None:
    app, plain = Application(), Application()

    @app.listener(ORDERS)
    async def store(text: str, connection: psycopg.AsyncConnection) -> None: ...

    @plain.listener(ORDERS)
    def store_blocking(text: str, connection: psycopg.Connection) -> None: ...

    for application, kind in ((app, async_other_driver), (plain, async_session)):
        async with kind(url) as transaction:
            await send(transaction, ORDERS, "kite")
            with pytest.raises(TypeError, match="asks for psycopg's connection, and the transaction has none"):
                await application.drain(transaction=transaction)


async def test_a_worker_does_the_same(app: Application, url: sqlalchemy.URL) -> None:
    with psycopg.connect(text(url), autocommit=True) as observer:
        await send(observer, ORDERS, {"name": "kite"}, {"name": "lantern"})
        worker = Application(jmsql.ConnectionFactory(text(url)))
        worker.listeners.extend(app.listeners)

        def notes() -> bool:
            return observer.execute("select count(*) from jmsql.messages where queue = 'notes'").fetchone() == (2,)

        async with worker.running(timings=WorkerTimings(check_interval=0.05)):
            await asyncio.to_thread(wait_for, notes, 60)
        assert await names(observer) == [("kite", 17), ("lantern", 17)]


async def test_a_failure_is_raised_and_undone(app: Application, transaction: Any) -> None:
    failing(app, LookupError("no such article"))
    await send(transaction, NOTES, "broken")
    with pytest.raises(LookupError, match="no such article"):
        await done(app.drain(transaction=transaction))
    assert await names(transaction) == []
    assert [message.get_body(str) for message in await done(sent(transaction, NOTES))] == ["broken"]
    assert await done(sent(transaction, ORDERS)) == []


@pytest.mark.parametrize("outcome", [Reject("no such article"), RetryAfter(30)], ids=repr)
async def test_other_outcomes_are_raised_too(app: Application, transaction: Any, outcome: BaseException) -> None:
    failing(app, outcome)
    await send(transaction, NOTES, "broken")
    with pytest.raises(type(outcome)):
        await done(app.drain(transaction=transaction))
    [handled] = await done(app.drain(transaction=transaction, raise_failures=False))
    assert handled.error is outcome
    assert await names(transaction) == []
    assert len(await done(sent(transaction, NOTES))) == 1


async def test_a_handlers_value_is_the_reply(transaction: Any) -> None:
    app = Application()

    @app.listener(ORDERS)
    def answer(body: str) -> str:
        return f"{body} it is"

    request = jmsql.TextMessage("a kite")
    request.jms_reply_to = BILLS
    await send(transaction, ORDERS, request)
    await done(app.drain(transaction=transaction))
    [reply] = await done(sent(transaction, BILLS))
    assert (reply.get_body(str), reply.jms_correlation_id) == ("a kite it is", request.jms_message_id)


async def test_failures_are_collected_and_others_handled(app: Application, transaction: Any) -> None:
    failing(app, SystemExit(3))
    await send(transaction, NOTES, "broken", "broken too")
    await send(transaction, ORDERS, {"name": "kite"})
    handled = await done(app.drain(transaction=transaction, raise_failures=False))
    assert sorted(type(each.error).__name__ for each in handled) == ["NoneType"] * 2 + ["SystemExit"] * 3
    assert await names(transaction) == [("kite", 17)]


async def test_an_error_of_the_database_costs_a_savepoint(app: Application, transaction: Any) -> None:
    await send(transaction, ORDERS, {"name": "kite"}, {"name": "kite"})
    handled = await done(app.drain(transaction=transaction, raise_failures=False))
    assert [isinstance(each.error, sqlalchemy.exc.IntegrityError) for each in handled] == [False, False, True]
    assert await names(transaction) == [("kite", 17)]


async def test_delayed_messages_come_after_all_others_in_their_order(transaction: Any) -> None:
    app, bodies = Application(), []

    @app.listener(ORDERS)
    def note(body: str) -> None:
        bodies.append(body)

    @app.listener(BILLS)
    def note_too(body: str) -> None:
        bodies.append(body)

    await send(transaction, ORDERS, "in an hour", delay=3600)
    await send(transaction, BILLS, "in a minute", delay=60)
    await send(transaction, ORDERS, "now")
    await done(app.drain(transaction=transaction, with_delayed=False))
    assert bodies == ["now"]
    assert len(await done(sent(transaction, ORDERS))) == 1
    await done(app.drain(transaction=transaction))
    assert bodies == ["now", "in a minute", "in an hour"]


async def test_messages_of_others_are_left_alone(app: Application, transaction: Any, url: sqlalchemy.URL) -> None:
    with psycopg.connect(text(url), autocommit=True) as other:
        await send(other, ORDERS, {"name": "of another"})
        assert await done(app.drain(transaction=transaction)) == []
        other.execute("select jmsql.purge('orders')")
        other.execute("delete from jmsql_internal.administrative_action")


async def test_selectors_and_topics(transaction: Any) -> None:
    app, bodies = Application(), []

    @app.listener(PRICES, subscription="price desk", selector="JMSType = 'high'")
    def note(body: str) -> None:
        bodies.append(body)

    @app.listener(ORDERS, selector="JMSType = 'urgent'")
    def hurry(body: str) -> None:
        bodies.append(body)

    @app.listener(PRICES, subscription="passing", durable=False)
    def pass_by(body: str) -> None:
        bodies.append(f"{body} passes")

    await done(subscribe(app, transaction))
    await done(subscribe(app, transaction))
    for destination, types in ((PRICES, ("high", "low")), (ORDERS, ("urgent", "slow"))):
        for jms_type in types:
            message = jmsql.TextMessage(jms_type)
            message.jms_type = jms_type
            await send(transaction, destination, message)
    await done(app.drain(transaction=transaction))
    assert sorted(bodies) == ["high", "high passes", "low passes", "urgent"]


async def test_a_handler_that_sends_to_itself_is_stopped(transaction: Any) -> None:
    app = Application()

    @app.listener(ORDERS)
    def again(body: str, context: jmsql.JMSContext) -> None:
        context.create_producer().send(ORDERS, body)

    await send(transaction, ORDERS, "for ever")
    with pytest.raises(jmsql.IllegalStateException, match="handled 5 messages"):
        await done(app.drain(transaction=transaction, limit=5))


@pytest.mark.parametrize("delay", [0, 60])
async def test_as_many_messages_as_the_limit_are_handled_and_one_more_is_refused(transaction: Any, delay: int) -> None:
    app = Application()

    @app.listener(ORDERS)
    def handle(body: str) -> None: ...

    await send(transaction, ORDERS, "first")
    await send(transaction, ORDERS, "second", delay=delay)
    assert len(await done(app.drain(transaction=transaction, limit=2))) == 2
    await send(transaction, ORDERS, "first")
    await send(transaction, ORDERS, "second", delay=delay)
    with pytest.raises(jmsql.IllegalStateException, match="handled 1 messages"):
        await done(app.drain(transaction=transaction, limit=1))


async def test_one_handler_is_called_with_one_message(app: Application, transaction: Any) -> None:
    store, bill = (listener.handler for listener in app.listeners)
    await done(call(app, store, jmsql.TextMessage('{"name": "kite"}'), transaction=transaction))
    assert await names(transaction) == [("kite", 0)]
    with pytest.raises(Reject, match="TextMessage"):
        await done(call(app, bill, {"name": "kite"}, transaction=transaction))
    with pytest.raises(ValueError, match="no handler"):
        await done(call(app, print, "kite", transaction=transaction))


async def test_a_call_returns_the_handlers_value(transaction: Any) -> None:
    app = Application()

    @app.listener(ORDERS)
    def answer(body: list[int]) -> int:
        return sum(body)

    assert await done(call(app, answer, [1, 2, 3], transaction=transaction)) == 6


async def test_a_handler_stands_for_its_queue_and_is_called_without_a_body(transaction: Any) -> None:
    app, router = Application(), Router()

    @router.periodic("@daily", name="nightly")
    def report(year: int = 2026) -> int:
        return year

    app.include(router, "shop.")
    await done(report.send(transaction, 2025))
    assert len(await done(sent(transaction, report))) == 1
    assert await done(call(app, report, transaction=transaction)) == 2026


def chunked(calls: list[list[str]]) -> Application:
    """An application whose handlers take chunks, and note them."""
    app = Application()

    def check(bodies: list[str]) -> list[str]:
        calls.append(bodies)
        if "bad" in bodies:
            raise RuntimeError("it fails")
        if "worse" in bodies:
            raise Reject("it is named", index=bodies.index("worse"))
        return [body.upper() for body in bodies]

    @app.listener(ORDERS, chunk=4, reply_to=NOTES)
    def store(bodies: list[str], database: sqlalchemy.Connection) -> list[str]:
        database.execute(sqlalchemy.insert(Article), [{"name": body, "amount": 0} for body in bodies])
        return check(bodies)

    @app.listener(BILLS, chunk=4, reply_to=NOTES)
    async def store_awaited(bodies: list[str], database: AsyncConnection) -> list[str]:
        await database.execute(sqlalchemy.insert(Article), [{"name": body, "amount": 0} for body in bodies])
        return check(bodies)

    return app


async def test_chunks_are_drained_and_halved(transaction: Any) -> None:
    await check_chunks(transaction, ORDERS)


@pytest.mark.parametrize("kind", AWAITED)
async def test_chunks_of_coroutine_functions_are_drained_and_halved(transaction: Any) -> None:
    await check_chunks(transaction, BILLS)


async def check_chunks(transaction: Any, queue: Queue) -> None:
    calls: list[list[str]] = []
    app = chunked(calls)
    for body in ("a", "b", "bad", "d", "e", "worse", "g"):
        await send(transaction, queue, body)
    drained = await done(app.drain(transaction=transaction, raise_failures=False))
    assert calls == [["a", "b", "bad", "d"], ["a", "b"], ["bad", "d"], ["bad"], ["d"], ["e", "worse", "g"], ["e", "g"]]
    found = {each.message.get_body(str): each.error for each in drained}
    assert found.keys() == {"a", "b", "bad", "d", "e", "worse", "g"}
    assert {body: type(error) for body, error in found.items() if error is not None} == {
        "bad": RuntimeError,
        "worse": Reject,
    }
    assert await names(transaction) == [(name, 0) for name in "abdeg"]
    replies = [message.get_body(str) for message in await done(sent(transaction, NOTES))]
    assert replies == list("ABDEG")

    with pytest.raises(RuntimeError, match="it fails"):
        await done(app.drain(transaction=transaction))
    handler = app.listeners[[ORDERS, BILLS].index(queue)].handler
    assert await done(call(app, handler, ["x", jmsql.TextMessage("y")], transaction=transaction)) == ["X", "Y"]
    with pytest.raises(TypeError, match="call it with a list"):
        await done(call(app, handler, "x", transaction=transaction))


class TestCoroutineFunctions:
    @pytest.fixture
    def app(self) -> Application:
        app = Application()

        @app.listener(ORDERS)
        async def store(body: dict[str, Any], database: AsyncConnection, context: jms.JMSContext) -> None:
            await database.execute(inserting(body["name"]))
            await context.create_producer(priority=7).send(BILLS, body["name"])

        @app.listener(BILLS)
        async def bill(message: jms.TextMessage, database: AsyncSession, session: jms.Session) -> str | None:
            article = await database.get_one(Article, message.text)
            article.amount = message.jms_priority
            producer = await session.create_producer(NOTES)
            await producer.send(session.create_text_message(f"{message.text} is billed"))
            return message.text

        return app

    @pytest.mark.parametrize("kind", [*AWAITED, async_driver], indirect=True)
    async def test_they_are_called_where_the_transaction_is_awaited(self, app: Application, transaction: Any) -> None:
        await send(transaction, ORDERS, {"name": "kite"})
        assert len(await done(app.drain(transaction=transaction))) == 2
        assert await names(transaction) == [("kite", 7)]
        assert len(await done(sent(transaction, NOTES))) == 1
        bill = app.listeners[1].handler
        assert await done(call(app, bill, "kite", transaction=transaction)) == "kite"

    @pytest.mark.parametrize("kind", DRIVERS, indirect=True)
    async def test_without_a_database_they_are_called_in_the_transactions_of_drivers(self, transaction: Any) -> None:
        app = Application()

        @app.listener(ORDERS)
        async def order(body: str, context: jms.JMSContext) -> None:
            await context.create_producer().send(NOTES, body)
            if body == "broken":
                raise LookupError("no such article")

        await send(transaction, ORDERS, "broken", "kite")
        first, second = await app.drain(transaction=transaction, raise_failures=False)
        assert (repr(first.error), second.error) == ("LookupError('no such article')", None)
        assert [message.get_body(str) for message in await sent(transaction, NOTES)] == ["kite"]
        assert await call(app, order, "lantern", transaction=transaction) is None
        assert len(await sent(transaction, NOTES)) == 2

    @pytest.mark.parametrize("kind", [async_other_driver], indirect=True)
    async def test_asyncpg_has_no_connection_for_sqlalchemy(self, app: Application, transaction: Any) -> None:
        await send(transaction, ORDERS, {"name": "kite"})
        with pytest.raises(TypeError, match="cannot be made over one of asyncpg's: drain the transaction of an AsyncS"):
            await app.drain(transaction=transaction)
        assert await names(transaction) == []

    @pytest.mark.parametrize("kind", DRIVERS, indirect=True)
    async def test_plain_functions_are_refused_in_them(self, transaction: Any) -> None:
        app = Application()
        app.listener(ORDERS)(lambda message: None)
        await send(transaction, ORDERS, "kite")
        with pytest.raises(TypeError, match="is a plain function, and is called in the transaction of an AsyncSession"):
            await app.drain(transaction=transaction)

    @pytest.mark.parametrize("kind", [session, async_driver, async_other_driver, async_session], indirect=True)
    async def test_listeners_that_cannot_be_called_do_no_harm_without_a_message(self, transaction: Any) -> None:
        app = Application()

        async def later(body: str) -> None:
            """Do nothing."""

        def now(body: str) -> None:
            """Do nothing."""

        app.listener(ORDERS)(later)
        app.listener(BILLS)(now)
        app.listener(NOTES)(later)
        is_blocking = isinstance(transaction, orm.Session)
        called, other = (BILLS, ORDERS) if is_blocking else (ORDERS, BILLS)
        await send(transaction, called, "kite", "lantern")
        assert len(await done(app.drain(transaction=transaction))) == 2
        await send(transaction, other, "kite")
        await send(transaction, called, "kite")
        without: Any = later if is_blocking else now
        assert len(await done(app.drain(transaction=transaction, without=without))) == 1
        assert await done(app.drain(transaction=transaction, only=[called, "notes"])) == []
        if not isinstance(transaction, AsyncSession):
            with pytest.raises(TypeError, match="without=…"):
                await done(app.drain(transaction=transaction, only=other))
        assert len(await done(sent(transaction, other))) == 1
        with pytest.raises(ValueError, match="no listener with 'missing'"):
            app.drain(transaction=transaction, only="missing")

    @pytest.mark.parametrize("kind", [driver, async_session], indirect=True)
    async def test_listeners_and_routers_are_drained_alone(self, transaction: Any) -> None:
        app, mail, bills = Application(), Router(), Router()

        @mail.listener("letters")
        async def post(body: str) -> None:
            """Do nothing."""

        @bills.listener("notes")
        @bills.listener(BILLS)
        async def pay(body: str) -> None:
            """Do nothing."""

        app.include(mail, "mail.")
        app.include(bills)
        if not isinstance(transaction, AsyncSession):
            with pytest.raises(ValueError, match="no listener with"):
                app.drain(transaction=transaction, only=Router())
            return
        await post.send(transaction, "kite")
        await pay.send(transaction, "lantern")
        await send(transaction, BILLS, "lantern")
        assert await app.drain(transaction=transaction, only=[], without=mail) == []
        assert [str(each.listener) for each in await app.drain(transaction=transaction, only=pay)] == [pay.name]
        assert [each.message.get_body(str) for each in await app.drain(transaction=transaction, only=mail)] == ["kite"]
        assert await app.drain(transaction=transaction, without=[mail, BILLS]) == []
        assert len(await app.drain(transaction=transaction, only=pay.function)) == 1

    @pytest.mark.parametrize("kind", BLOCKING, indirect=True)
    async def test_they_are_refused_where_it_is_not(self, app: Application, transaction: Any) -> None:
        await send(transaction, ORDERS, {"name": "kite"})
        with pytest.raises(TypeError, match="coroutine function"):
            app.drain(transaction=transaction)


@pytest.mark.parametrize("kind", [session, async_session], indirect=True)
async def test_a_session_writes_before_and_reads_after(app: Application, transaction: Any, kind: Any) -> None:
    transaction.add(Article(name="kite"))
    await send(transaction, BILLS, "kite")
    article: Any = await done(transaction.get(Article, "kite"))
    await done(app.drain(transaction=transaction))
    if kind is async_session:  # whose objects do not expire
        await transaction.refresh(article)
    assert article.amount == 14


def test_the_transaction_of_the_test_is_needed(app: Application) -> None:
    with pytest.raises(TypeError, match="transaction="):
        app.drain()


def test_drain_returns_a_list_or_an_awaitable_of_it(app: Application) -> None:
    """Checked by mypy: a list where the transaction blocks, what is awaited where it is."""

    def blocking(database: orm.Session) -> list[Any]:
        return app.drain(transaction=database)

    async def awaited(database: AsyncSession) -> list[Any]:
        return await app.drain(transaction=database)

    assert callable(blocking)
    assert callable(awaited)


@asynccontextmanager
async def autocommit_driver(url: sqlalchemy.URL) -> AsyncIterator[Any]:
    with psycopg.connect(text(url), autocommit=True) as connection:
        yield connection


@asynccontextmanager
async def autocommit_connection(url: sqlalchemy.URL) -> AsyncIterator[Any]:
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@asynccontextmanager
async def async_autocommit_driver(url: sqlalchemy.URL) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(text(url), autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize("kind", [autocommit_driver, autocommit_connection, async_autocommit_driver])
async def test_in_autocommit_mode_each_message_has_a_transaction(kind: Any, url: sqlalchemy.URL) -> None:
    app = Application()

    def store(body: str, context: jmsql.JMSContext) -> None:
        context.create_producer().send(BILLS, body)
        if body == "bad":
            raise LookupError(body)

    async def store_later(body: str, context: jms.JMSContext) -> None:
        await context.create_producer().send(BILLS, body)
        if body == "bad":
            raise LookupError(body)

    app.listener(ORDERS)(store_later if kind is async_autocommit_driver else store)
    async with kind(url) as transaction:
        await done(empty(transaction))
        await send(transaction, ORDERS, "kite", "bad", "lantern")
        handled = await done(app.drain(transaction=transaction, raise_failures=False))
        assert [type(each.error) for each in handled] == [type(None), LookupError, type(None)]
        async with autocommit_driver(url) as other:
            assert [message.get_body(str) for message in sent(other, BILLS)] == ["kite", "lantern"]
            assert [message.get_body(str) for message in sent(other, ORDERS)] == ["bad"]
        await done(empty(transaction))
        assert await done(sent(transaction, ORDERS)) == []
