"""What handlers do in a transaction of a test, by `drain`, is what they do in a worker: one table, run both ways.

To start and to stop a worker takes longest: so one serves many cases, each with a listener and queues of its own.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

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
from jmsql.testing.database import SessionDatabase
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
from tests.leadership import SUSPEND_MAINTENANCE

__all__ = ["Base"]

BY_SESSION = Queue("by a session")
PATIENCE = 60.0
AT_A_TIME = 70
"""For how many cases there is one worker."""


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

    It sends what it was given to the queue `seen` of its case, and then returns or raises what `outcome` does.
    """

    body: object
    annotation: Any = str
    outcome: Outcome = lambda _: None
    shown: Callable[[Any], str] = repr
    options: dict[str, Any] = field(default_factory=dict)
    prepare: Callable[[Message], None] = lambda _: None
    asks: bool = False
    """Whether the message says where its reply goes."""
    answers_elsewhere: bool = False
    """Whether the listener does."""
    is_async: bool | None = None
    """Whether it is for coroutine functions alone, or for plain functions alone; None: for both."""


class Case(NamedTuple):
    """A scenario with one kind of handler, and the queues that are its own."""

    number: int
    scenario: Scenario
    is_async: bool
    transacted: bool

    @property
    def orders(self) -> Queue:
        return Queue(f"orders {self.number}")

    @property
    def seen(self) -> Queue:
        return Queue(f"seen {self.number}")

    @property
    def answers(self) -> Queue:
        return Queue(f"answers {self.number}")

    @property
    def others(self) -> Queue:
        return Queue(f"other answers {self.number}")

    @property
    def written(self) -> tuple[Queue, ...]:
        """To which the handler sends, or the worker for it."""
        return self.seen, self.answers, self.others, BY_SESSION


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
    "a reply": Scenario("a", outcome=str.upper, asks=True),
    "a reply without an address": Scenario("a", outcome=str.upper),
    "a reply to where the listener says": Scenario("a", outcome=str.upper, answers_elsewhere=True),
    "a reply of a model": Scenario("a", outcome=lambda _: Order(1), asks=True),
    "a reply that is a message": Scenario("a", outcome=replying, asks=True),
    "a reply that cannot be sent": Scenario("a", outcome=lambda _: {1, 2}, asks=True),
    "Reject": Scenario("a", outcome=fail(Reject("no such article"))),
    "RetryAfter": Scenario("a", outcome=fail(RetryAfter(600, "closed"))),
    "an error": Scenario("a", outcome=fail(LookupError("no such article"))),
    "an error that is never retried": Scenario(
        "a", outcome=fail(KeyError("article")), options={"no_retry_for": LookupError}
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
    session.create_producer(BY_SESSION).send(session.create_text_message("by a session"))


async def sends_awaited(session: jms.Session) -> None:
    producer = await session.create_producer(BY_SESSION)
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


def application(*cases: Case) -> Application:
    """Return an application with the handlers of some cases."""
    app = Application(around=surround)
    for case in cases:
        add_handler(app, case)
    return app


def add_handler(app: Application, case: Case) -> None:
    scenario = case.scenario

    def handle(value: Any, context: Any) -> object:
        context.create_producer().send(case.seen, scenario.shown(value))
        return scenario.outcome(value)

    async def handle_awaited(value: Any, context: Any) -> object:
        await context.create_producer().send(case.seen, scenario.shown(value))
        return await done(scenario.outcome(value))

    handler = handle_awaited if case.is_async else handle
    handler.__annotations__ = {
        "value": scenario.annotation,
        "context": jms.JMSContext if case.is_async else jmsql.JMSContext,
    }
    options = {**scenario.options, **({"reply_to": case.others} if scenario.answers_elsewhere else {})}
    app.listener(case.orders, transacted=case.transacted, redelivery=WAITING, **options)(handler)


WAITING = jmsql.RedeliveryPolicy(maximum_deliveries=5, delay=600.0)

Result = tuple[str, str, list[tuple[object, ...]], list[tuple[str, int]]]
"""What became of the message, with which error; what was sent; and the rows in the table."""


def message_for(case: Case) -> Message:
    from jmsql.client._sync.connection.simplified import message_of

    body = case.scenario.body
    message = body if isinstance(body, Message) else message_of(body)
    if case.scenario.asks:
        message.jms_reply_to = case.answers
    case.scenario.prepare(message)
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


async def by_drain(case: Case, transaction: Any) -> Result:
    message = message_for(case)
    app = application(case)
    await send(transaction, case.orders, message)
    [drained] = await done(app.drain(transaction=transaction, raise_failures=False))
    [listener] = app.listeners
    error = None if drained.error is None else listener.verdict(drained.error)
    found = [
        about(queue, each, message.jms_message_id)
        for queue in case.written
        for each in await done(sent(transaction, queue))
    ]
    return (*told(error), found, await names(transaction))


STATE = """
    select case when state = 'waiting' and isfinite(next_attempt) then state else 'on its way' end,
        coalesce(last_error, '')
    from jmsql.messages where queue = %(queue)s
    union all select reason, coalesce(last_error, '')
    from jmsql.dead_letters where original_destination = %(destination)s"""


async def by_worker(cases: Sequence[Case], url: sqlalchemy.URL) -> dict[int, Result]:
    """Have a worker handle the message of each case, and return the results by the numbers of the cases."""
    app = application(*cases)
    app.factory = jmsql.ConnectionFactory(text(url))
    ids = {}
    with psycopg.connect(text(url), autocommit=True) as observer:
        for case in cases:
            message = message_for(case)
            await send(observer, case.orders, message)
            ids[case.number] = message.jms_message_id

        def states(case: Case) -> list[tuple[str, str]]:
            return observer.execute(STATE, {"queue": case.orders.name, "destination": str(case.orders)}).fetchall()

        def is_settled(case: Case) -> bool:
            return all(state in {"waiting", "rejected", "unreadable"} for state, _ in states(case))

        async with app.running(timings=WorkerTimings(check_interval=0.05, failure_pause=0.01)):
            for case in cases:
                await asyncio.to_thread(wait_for, partial(is_settled, case), PATIENCE)
        stored = await names(observer)
        with app.factory.create_context() as context:
            return {
                case.number: (*became(states(case)), found_by(context, case, ids[case.number]), stored)
                for case in cases
            }


def became(states: list[tuple[str, str]]) -> tuple[str, str]:
    [(state, last_error)] = states or [("handled", "")]
    last_line = last_error.rstrip().rpartition("\n")[2].rpartition("jmsql.worker.")[2]
    if state == "waiting":
        is_put_off = "RetryAfter" in last_line or not last_line
        state, last_line = ("put off", "") if is_put_off else ("failed", last_line)
    return state, last_line.removeprefix("jmsql.")


def found_by(context: jmsql.JMSContext, case: Case, request_id: str | None) -> list[tuple[object, ...]]:
    return [about(queue, each, request_id) for queue in case.written for each in browsed(context, queue)]


def browsed(context: jmsql.JMSContext, queue: Queue) -> list[Message]:
    with context.create_browser(queue) as browser:
        return list(browser)


TRANSACTIONS = {False: (session, connection, driver), True: (async_session, async_connection, async_driver)}


def cases() -> Iterator[tuple[str, Case]]:
    """Yield all cases, each with a name."""
    number = itertools.count(1)
    for table in (BODIES, OUTCOMES):
        for name, scenario in table.items():
            for is_async in (False, True):
                for transacted in (True, False):
                    if scenario.is_async in (None, is_async):
                        kind = f"{'async def' if is_async else 'def'}{'' if transacted else ', not transacted'}"
                        yield f"{name}: {kind}", Case(next(number), scenario, is_async, transacted)
    for name, scenarios in TRANSACTIONAL.items():
        for is_async, scenario in scenarios.items():
            kind = "async def" if is_async else "def"
            yield f"{name}: {kind}", Case(next(number), scenario, is_async, transacted=True)


CASES = dict(cases())
STORING = {id(scenario) for scenarios in TRANSACTIONAL.values() for scenario in scenarios.values()}


def stores_rows(case: Case) -> bool:
    """Whether the handler is given the message's transaction, in which it writes what others would meet."""
    return id(case.scenario) in STORING


def with_transactions() -> Iterator[Any]:
    """Yield each case with a kind of transaction: each scenario meets each kind in some of its cases."""
    for name, case in CASES.items():
        kinds = TRANSACTIONS[case.is_async]
        for kind in kinds if stores_rows(case) else [kinds[case.number % len(kinds)]]:
            yield pytest.param(case, kind, id=f"{name}, {kind.__name__}")


@pytest.fixture(scope="module")
def table_url(_jmsql_database: SessionDatabase) -> Iterator[sqlalchemy.URL]:
    """The database, with the table of the tests."""
    url = sqlalchemy.make_url(_jmsql_database.url).set(drivername="postgresql+psycopg")
    engine = sqlalchemy.create_engine(url)
    Base.metadata.create_all(engine)
    engine.dispose()
    yield url
    Base.metadata.drop_all(engine)
    engine.dispose()


@pytest.fixture(scope="module")
def worked(_jmsql_database: SessionDatabase, table_url: sqlalchemy.URL) -> dict[int, Result]:
    """What workers have made of each case, by its number."""
    alike = [case for case in CASES.values() if not stores_rows(case)]
    shares = [alike[first : first + AT_A_TIME] for first in range(0, len(alike), AT_A_TIME)]
    results: dict[int, Result] = {}
    for share in (*shares, *([case] for case in CASES.values() if stores_rows(case))):
        _jmsql_database.clean()
        _jmsql_database.execute(SUSPEND_MAINTENANCE)
        _jmsql_database.execute("delete from drained_article")
        results |= asyncio.run(by_worker(share, table_url))
    _jmsql_database.execute("delete from drained_article")
    return results


@pytest.mark.usefixtures("jmsql_clean_url")
@pytest.mark.parametrize(("case", "kind"), list(with_transactions()))
async def test_a_handler_does_the_same(
    worked: dict[int, Result], table_url: sqlalchemy.URL, case: Case, kind: Any
) -> None:
    before = rows_in_all_tables(table_url)
    async with kind(table_url) as transaction:
        in_test = await by_drain(case, transaction)
    after = rows_in_all_tables(table_url)
    assert after.pop("queue") >= before.pop("queue"), "new queues stay, though their transaction is rolled back"
    assert after == before, "nothing else is left in any table"
    in_worker = worked[case.number]
    if not case.transacted and in_worker[0] != "handled":
        # What it has sent outside of a transaction is sent; in the test's, it is undone as all else is.
        in_test = (*in_test[:2], in_worker[2], in_test[3])
    assert in_test == in_worker
