"""What handlers do in a transaction of a test, by `drain`, is what they do in a worker: one table, run both ways."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import dataclass, field
from typing import Any

import msgspec
import psycopg
import pydantic
import pytest
import sqlalchemy
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

import jmsql
import jmsql.asyncio as jms
from jmsql import Message, Queue
from jmsql.testing import sent, wait_for
from jmsql.values.outcomes import RejectBecause
from jmsql.worker import Application, HandlerCall, Reject, RetryAfter, WorkerTimings
from tests.integration.testing.test_draining import (
    Article,
    Base,
    async_connection,
    async_driver,
    async_session,
    connection,
    done,
    driver,
    inserting,
    names,
    rows_in_all_tables,
    send,
    session,
    text,
)

__all__ = ["Base"]

ORDERS, SEEN, ANSWERS, OTHERS = Queue("orders"), Queue("seen"), Queue("answers"), Queue("other answers")
PATIENCE = 60.0


class Model(pydantic.BaseModel):
    number: int = pydantic.Field(alias="No")


class Struct(msgspec.Struct):
    number: int


@dataclass
class Order:
    number: int


@dataclass
class Refund:
    number: int
    amount: float


@jmsql.register_type(name="scenario parcel")
@dataclass
class Parcel:
    weight: int


class Client:
    """What surrounds a call provides it."""

    name = "client"


Outcome = Callable[[Any], Any]


@dataclass
class Scenario:
    """A handler with one parameter beside those that it sends by, and the body with which it is called.

    It sends what it was given to the queue `seen`, and then returns or raises what `outcome` does.
    """

    body: object
    annotation: Any = str
    outcome: Outcome = lambda _: None
    shown: Callable[[Any], str] = repr
    options: dict[str, Any] = field(default_factory=dict)
    prepare: Callable[[Message], None] = lambda _: None
    is_async: bool | None = None
    """Whether it is for coroutine functions alone, or for plain functions alone; None: for both."""


def fail(error: BaseException) -> Outcome:
    def outcome(_: object) -> None:
        raise error

    return outcome


def headers(message: Message) -> str:
    return repr(
        (
            message.jms_destination,
            message.jms_delivery_mode,
            message.jms_priority,
            message.jms_redelivered,
            message.jms_correlation_id,
            message.jms_reply_to,
            message.jms_type,
            message.jms_expiration,
            dict(message.properties),
            message.get_int_property("JMSXDeliveryCount"),
            type(message.jms_message_id),
            type(message.jms_timestamp),
            type(message.jms_delivery_time),
        )
    )


def with_headers(message: Message) -> None:
    message.jms_type = "kite"
    message.jms_correlation_id = "correlated"
    message.set_short_property("weight", 5)
    message.properties["color"] = "blue"


def asks(message: Message) -> None:
    message.jms_reply_to = ANSWERS


def typed(name: str) -> Callable[[Message], None]:
    def prepare(message: Message) -> None:
        message.jms_type = name

    return prepare


def replying(_: object) -> Message:
    message = jmsql.TextMessage("a message")
    message.jms_type = "of its own"
    return message


def late(_: object) -> Any:
    time.sleep(0.4)


BODIES = {
    "a message": Scenario("a", Message, shown=headers, prepare=with_headers),
    "a text message": Scenario("a", jmsql.TextMessage, shown=lambda message: message.text),
    "a message of another class": Scenario("a", jmsql.MapMessage),
    "text": Scenario("a"),
    "text that may be missing": Scenario(jmsql.TextMessage(None), str | None),
    "text that is missing": Scenario(jmsql.TextMessage(None)),
    "bytes": Scenario(b"a", bytes),
    "a dict of a map": Scenario({"number": 1, "name": "kite"}, dict, shown=lambda body: repr(sorted(body.items()))),
    "a dict of JSON": Scenario('{"lines": [{"number": 1}]}', dict[str, object]),
    "a list of JSON": Scenario("[1, 2]", list[int]),
    "anything": Scenario("a", object),
    "a dataclass": Scenario('{"number": 1}', Order),
    "a dataclass that was sent": Scenario(Order(7), Order),
    "a pydantic model": Scenario('{"No": 1}', Model),
    "a msgspec struct": Scenario(b'{"number": 1}', Struct),
    "a choice": Scenario('{"number": 1, "amount": 2.5}', Order | Refund, prepare=typed("Refund")),
    "a list of dataclasses": Scenario('[{"number": 1}, {"number": 2}]', list[Order]),
    "an object that is registered": Scenario(Parcel(5), Parcel),
    "a body that is not what it is to be": Scenario('{"number": "many"}', Order),
    "a body that is no JSON": Scenario("kite", Order),
    "what is provided": Scenario("a", Client, shown=lambda client: client.name),
}
OUTCOMES = {
    "a reply": Scenario("a", outcome=str.upper, prepare=asks),
    "a reply without an address": Scenario("a", outcome=str.upper),
    "a reply to where the listener says": Scenario("a", outcome=str.upper, options={"reply_to": OTHERS}),
    "a reply of a model": Scenario("a", outcome=lambda _: Order(1), prepare=asks),
    "a reply that is a message": Scenario("a", outcome=replying, prepare=asks),
    "a reply that cannot be sent": Scenario("a", outcome=lambda _: {1, 2}, prepare=asks),
    "Reject": Scenario("a", outcome=fail(Reject("no such article"))),
    "RetryAfter": Scenario("a", outcome=fail(RetryAfter(600, "closed"))),
    "an error": Scenario("a", outcome=fail(LookupError("no such article"))),
    "an error that is never retried": Scenario(
        "a", outcome=fail(KeyError("article")), options={"never_retry": LookupError}
    ),
    "sys.exit": Scenario("a", outcome=fail(SystemExit(3))),
    "a time-out of a task": Scenario(
        "a", outcome=lambda _: asyncio.sleep(600), options={"timeout": 0.2}, is_async=True
    ),
    "a time-out of a thread": Scenario("a", outcome=late, options={"timeout": 0.2}, is_async=False),
    "an error that is swallowed around the call": Scenario("a", outcome=fail(ArithmeticError("swallowed"))),
}


def stores(database: sqlalchemy.Connection) -> None:
    database.execute(inserting("kite"))


async def stores_awaited(database: AsyncConnection) -> None:
    await database.execute(inserting("kite"))


def stores_and_fails(database: sqlalchemy.Connection) -> None:
    stores(database)
    raise LookupError("no such article")


async def stores_and_fails_awaited(database: AsyncConnection) -> None:
    await stores_awaited(database)
    raise LookupError("no such article")


def stores_twice(database: sqlalchemy.Connection) -> None:
    stores(database)
    with suppress(sqlalchemy.exc.IntegrityError), database.begin_nested():
        stores(database)


async def stores_twice_awaited(database: AsyncConnection) -> None:
    await stores_awaited(database)
    with suppress(sqlalchemy.exc.IntegrityError):
        async with database.begin_nested():
            await stores_awaited(database)


def adds(database: orm.Session) -> None:
    database.add(Article(name="kite", amount=3))


async def adds_awaited(database: AsyncSession) -> None:
    database.add(Article(name="kite", amount=3))


def adds_and_rolls_back(database: orm.Session) -> None:
    adds(database)
    database.flush()
    database.rollback()


async def adds_and_rolls_back_awaited(database: AsyncSession) -> None:
    await adds_awaited(database)
    await database.flush()
    await database.rollback()


def sends(session: jmsql.Session) -> None:
    session.create_producer(OTHERS).send(session.create_text_message("by a session"))


async def sends_awaited(session: jms.Session) -> None:
    producer = await session.create_producer(OTHERS)
    await producer.send(session.create_text_message("by a session"))


def of_transaction(blocking: tuple[Any, Outcome], awaited: tuple[Any, Outcome]) -> dict[bool, Scenario]:
    """Return what asks for something of the message's transaction: for plain functions, and for coroutine functions."""
    return {
        is_async: Scenario("a", annotation, outcome, lambda _: "the handler was called", is_async=is_async)
        for is_async, (annotation, outcome) in ((False, blocking), (True, awaited))
    }


TRANSACTIONAL = {
    "a connection": of_transaction((sqlalchemy.Connection, stores), (AsyncConnection, stores_awaited)),
    "a connection, and an error": of_transaction(
        (sqlalchemy.Connection, stores_and_fails), (AsyncConnection, stores_and_fails_awaited)
    ),
    "a connection, and an error in a savepoint": of_transaction(
        (sqlalchemy.Connection, stores_twice), (AsyncConnection, stores_twice_awaited)
    ),
    "a session of the ORM": of_transaction((orm.Session, adds), (AsyncSession, adds_awaited)),
    "a session of the ORM that is rolled back": of_transaction(
        (orm.Session, adds_and_rolls_back), (AsyncSession, adds_and_rolls_back_awaited)
    ),
    "a session of JMS": of_transaction((jmsql.Session, sends), (jms.Session, sends_awaited)),
}


@contextmanager
def around(call: HandlerCall) -> Iterator[None]:
    call.provide(Client, Client())
    try:
        yield
    except ArithmeticError:
        return


@asynccontextmanager
async def around_awaited(call: HandlerCall) -> AsyncIterator[None]:
    with around(call):
        yield


def surround(call: HandlerCall) -> AbstractContextManager[None] | AbstractAsyncContextManager[None]:
    return around_awaited(call) if call.listener.is_async else around(call)


def application(scenario: Scenario, *, is_async: bool, transacted: bool) -> Application:
    """Return an application with the handler of a scenario."""
    app = Application(around=surround)

    def handle(value: Any, context: Any) -> object:
        context.create_producer().send(SEEN, scenario.shown(value))
        return scenario.outcome(value)

    async def handle_awaited(value: Any, context: Any) -> object:
        await context.create_producer().send(SEEN, scenario.shown(value))
        return await done(scenario.outcome(value))

    handler = handle_awaited if is_async else handle
    handler.__annotations__ = {
        "value": scenario.annotation,
        "context": jms.JMSContext if is_async else jmsql.JMSContext,
    }
    app.listener(ORDERS, transacted=transacted, redelivery=WAITING, **scenario.options)(handler)
    return app


WAITING = jmsql.RedeliveryPolicy(maximum_deliveries=5, delay=600.0)

Result = tuple[str, str, list[tuple[object, ...]], list[tuple[str, int]]]
"""What became of the message, with which error; what was sent; and the rows in the table."""


def message_for(scenario: Scenario) -> Message:
    from jmsql.client._sync.connection.simplified import message_of

    message = scenario.body if isinstance(scenario.body, Message) else message_of(scenario.body)
    scenario.prepare(message)
    return message


def told(error: BaseException | None) -> tuple[str, str]:
    """Say what becomes of a message that has failed like this, and why."""
    match error:
        case None:
            return "handled", ""
        case RetryAfter():
            return "put off", ""
        case RejectBecause():
            return error.dead_letter_reason, said(error.error)
        case Reject():
            return error.dead_letter_reason, said(error)
        case _:
            return "failed", said(error)


def said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def about(queue: Queue, message: Message, request_id: str | None) -> tuple[object, ...]:
    correlation_id = message.jms_correlation_id
    return (
        queue.name,
        type(message).__name__,
        message.get_body(object),
        message.jms_type,
        message.jms_priority,
        "the request's id" if correlation_id == request_id else correlation_id,
    )


async def by_drain(app: Application, transaction: Any, message: Message) -> Result:
    await send(transaction, ORDERS, message)
    [drained] = await done(app.drain(transaction=transaction, raise_failures=False))
    [listener] = app.listeners
    error = None if drained.error is None else listener.verdict(drained.error)
    found = [
        about(queue, each, message.jms_message_id)
        for queue in (SEEN, ANSWERS, OTHERS)
        for each in await done(sent(transaction, queue))
    ]
    return (*told(error), found, await names(transaction))


STATE = """
    select case when state = 'waiting' and isfinite(next_attempt) then state else 'on its way' end,
        coalesce(last_error, '')
    from jmsql.messages where queue = 'orders'
    union all select reason, coalesce(last_error, '') from jmsql.dead_letters"""


async def by_worker(app: Application, url: sqlalchemy.URL, message: Message) -> Result:
    app.factory = jmsql.ConnectionFactory(text(url))
    with psycopg.connect(text(url), autocommit=True) as observer:
        await send(observer, ORDERS, message)
        rows: list[Any] = []

        def is_settled() -> bool:
            rows[:] = observer.execute(STATE).fetchall()
            return all(state in {"waiting", "rejected", "unreadable"} for state, _ in rows)

        async with app.running(timings=WorkerTimings(check_interval=0.05, failure_pause=0.01)):
            await asyncio.to_thread(wait_for, is_settled, PATIENCE)
        found = [
            about(queue, each, message.jms_message_id)
            for queue in (SEEN, ANSWERS, OTHERS)
            for each in browsed(app.factory, queue)
        ]
        [(state, last_error)] = rows or [("handled", "")]
        last_line = last_error.rstrip().rpartition("\n")[2].rpartition("jmsql.worker.")[2]
        if state == "waiting":
            is_put_off = "RetryAfter" in last_line or not last_line
            state, last_line = ("put off", "") if is_put_off else ("failed", last_line)
        return state, last_line.removeprefix("jmsql."), found, await names(observer)


def browsed(factory: Any, queue: Queue) -> list[Message]:
    with factory.create_context() as context, context.create_browser(queue) as browser:
        return list(browser)


@pytest.fixture
def url(jmsql_clean_url: str) -> Iterator[sqlalchemy.URL]:
    """The database, with the table of the tests."""
    engine = sqlalchemy.create_engine(sqlalchemy.make_url(jmsql_clean_url).set(drivername="postgresql+psycopg"))
    Base.metadata.create_all(engine)
    yield engine.url
    Base.metadata.drop_all(engine)
    engine.dispose()


TRANSACTIONS = {False: (session, connection, driver), True: (async_session, async_connection, async_driver)}


def cases() -> Iterator[Any]:
    number = 0
    for table in (BODIES, OUTCOMES):
        for name, scenario in table.items():
            for is_async in (False, True):
                for transacted in (True, False):
                    if scenario.is_async in (None, is_async):
                        kinds = TRANSACTIONS[is_async]
                        number += 1
                        kind = kinds[number % len(kinds)]  # each scenario meets each kind in some of its four cases
                        which = f"{'async def' if is_async else 'def'}{'' if transacted else ', not transacted'}"
                        yield pytest.param(scenario, is_async, transacted, kind, id=f"{name}: {which}, {kind.__name__}")
    for name, scenarios in TRANSACTIONAL.items():
        for is_async, scenario in scenarios.items():
            for kind in TRANSACTIONS[is_async]:
                which = "async def" if is_async else "def"
                yield pytest.param(scenario, is_async, True, kind, id=f"{name}: {which}, {kind.__name__}")


@pytest.mark.parametrize(("scenario", "is_async", "transacted", "kind"), list(cases()))
async def test_a_handler_does_the_same(
    url: sqlalchemy.URL, scenario: Scenario, is_async: bool, transacted: bool, kind: Any
) -> None:
    before = rows_in_all_tables(url)
    async with kind(url) as transaction:
        app = application(scenario, is_async=is_async, transacted=transacted)
        drained = await by_drain(app, transaction, message_for(scenario))
    assert rows_in_all_tables(url) == before, "nothing is left in any table"
    worked = await by_worker(app, url, message_for(scenario))
    if not transacted and worked[0] != "handled":
        # What it has sent outside of a transaction is sent; in the test's, it is undone as all else is.
        drained, worked = (drained[:2] + drained[3:]), (worked[:2] + worked[3:])  # type: ignore[assignment]
    assert drained == worked
