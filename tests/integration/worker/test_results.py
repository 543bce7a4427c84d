"""Results of handlers, kept when a listener asks for them, and the states of all messages."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import pickle
import re
import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import jmsql
import jmsql.asyncio
from jmsql import (
    AcknowledgeMode,
    ConnectionFactory,
    IllegalStateException,
    JobFailed,
    MessageFormatException,
    RedeliveryPolicy,
    RequestFailed,
    TextMessage,
)
from jmsql.admin import Administration
from jmsql.testing import receive_all, wait_for
from jmsql.worker import Application, Reject
from tests.background import Background
from tests.integration.worker.conftest import KILLED_BEFORE_STEP, PATIENCE, StartWorker, WorkerDatabase

DAY = timedelta(days=1)
KINDS = pytest.mark.parametrize(
    ("is_async", "transacted"), [(False, True), (False, False), (True, True), (True, False)]
)


@dataclasses.dataclass
class Receipt:
    """What is returned."""

    number: int
    at: dt.date


class Loop(list[object]):
    """A list that contains itself."""

    def __init__(self) -> None:
        super().__init__()
        self.append(self)


def libpq(url: str) -> str:
    """Return the URL as psycopg takes it."""
    return sqlalchemy.make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def handling(
    factory: ConnectionFactory, handle: Callable[[str], object], *, is_async: bool = False, **options: Any
) -> Application:
    """Return an application whose handler keeps what is made of a text."""
    application = Application(factory)

    def handle_text(text: str) -> object:
        return handle(text)

    async def handle_text_asynchronously(text: str) -> object:
        await asyncio.sleep(0)
        return handle(text)

    options = {"keep_result": DAY} | options
    application.listener("orders", **options)(handle_text_asynchronously if is_async else handle_text)
    return application


def echo(text: str) -> str:
    """Return a text."""
    return text


def fail(text: str) -> object:
    """Refuse a message for good."""
    raise Reject(f"no {text}") from ValueError("out of stock")


@KINDS
async def test_the_result_of_a_message_is_its_handlers_value(
    jmsql_factory: ConnectionFactory, is_async: bool, transacted: bool
) -> None:
    values: dict[str, object] = {
        "nothing": None,
        "text": "t\0\ud800",
        "number": 1.0,
        "document": {"b": [1, 2.5, None, True], "a": "ä"},
        "model": Receipt(7, dt.date(2026, 11, 28)),
        "others": [Decimal("1.50"), uuid.UUID(int=1), {3}],
    }
    as_json = values | {
        "model": {"number": 7, "at": "2026-11-28"},
        "others": ["1.50", str(uuid.UUID(int=1)), [3]],
    }
    application = handling(jmsql_factory, values.get, is_async=is_async, transacted=transacted)
    factory = jmsql.asyncio.ConnectionFactory(jmsql_factory.url, timings=jmsql_factory.timings)
    async with application.running(), await factory.create_connection() as connection:
        for text in values:
            message_id = await jmsql.asyncio.send(connection, "orders", text)
            result = await jmsql.asyncio.result(connection, message_id)
            assert await result.get(PATIENCE) == as_json[text]
            assert (result.state, result.deliveries, result.error, result.destination) == ("done", 1, None, "orders")
            assert result.id == message_id
            assert result.is_finished
            assert result.sent_at is not None
            assert result.started_at is not None
            assert result.finished_at is not None
            assert result.kept_until is not None
            assert result.started_at <= result.finished_at < result.kept_until - timedelta(hours=23)
            assert await jmsql.asyncio.status(connection, message_id.removeprefix("ID:").upper()) == "done"


@KINDS
async def test_a_dead_letter_leaves_its_error(
    jmsql_factory: ConnectionFactory, is_async: bool, transacted: bool
) -> None:
    application = handling(jmsql_factory, fail, is_async=is_async, transacted=transacted)
    with jmsql_factory.create_connection() as connection:
        async with application.running():
            message_id = jmsql.send(connection, "orders", "a")
            result = jmsql.result(connection, message_id)
            with pytest.raises(JobFailed, match=r"has failed after 1 delivery: .*no a") as caught:
                await asyncio.to_thread(result.get, PATIENCE)
    assert (result.state, result.value, result.deliveries, caught.value.state) == ("failed", None, 1, "failed")
    assert caught.value.error is not None
    assert "ValueError: out of stock" in caught.value.error
    again: JobFailed = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.error, again.state) == (str(caught.value), caught.value.error, "failed")


def test_an_expired_message_leaves_that(jmsql_factory: ConnectionFactory) -> None:
    with jmsql_factory.create_connection() as connection:
        never = threading.Event()
        application = handling(jmsql_factory, lambda _: never.wait(PATIENCE))

        async def run() -> str:
            async with application.running():
                jmsql.send(connection, "orders", "first")
                message_id = jmsql.send(connection, "orders", "late", time_to_live=0.05)
                result = jmsql.result(connection, message_id)
                with pytest.raises(JobFailed, match="has expired before"):
                    await asyncio.to_thread(result.get, PATIENCE)
                never.set()
                return str(result.state)

        assert asyncio.run(run()) == "expired"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"x", "JSON has no way to say it: it holds a byte array"),
        ({"a": [float("nan")]}, "Out of range float values"),
        ({"a": object()}, "it holds an? object"),
        ({(1, 2): 3}, "keys must be str"),
        (Loop(), "Circular reference|it is nested too deeply"),
        ("x" * 200, "Its JSON has 202 characters; at most 100 are allowed"),
    ],
    ids=["bytes", "nan", "object", "key", "loop", "huge"],
)
def test_a_value_that_cannot_be_kept_fails_the_message_and_undoes_its_work(
    jmsql_clean_url: str, value: object, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jmsql.messages.plain_json.LARGEST", 100)
    app = Application()

    @app.listener("orders", keep_result=DAY)
    def handle(text: str, connection: psycopg.Connection[Any]) -> object:
        connection.execute("create table is_undone ()")
        return value

    with psycopg.connect(libpq(jmsql_clean_url)) as database:
        message_id = jmsql.send(database, "orders", "a")
        [handled] = app.drain(transaction=database, raise_failures=False)
        assert isinstance(handled.error, MessageFormatException)
        assert re.search(
            f"handle on queue://orders keeps results, and its value cannot be kept: .*({reason})", str(handled.error)
        )
        assert database.execute("select to_regclass('is_undone')").fetchone() == (None,)
        result = jmsql.result(database, message_id)
        assert result.state == "failed"
        assert "its value cannot be kept" in (result.error or "")


def test_a_long_value_and_its_message_are_kept(jmsql_clean_url: str) -> None:
    app = Application()

    @app.listener("orders", keep_result=DAY)
    def handle(text: str) -> object:
        return TextMessage(text) if len(text) == 1 else {"text": text, "list": list(range(100_000))}

    with psycopg.connect(libpq(jmsql_clean_url)) as database:
        long = jmsql.send(database, "orders", "x" * 2**22)
        short = jmsql.send(database, "orders", "x")
        app.drain(transaction=database)
        found = jmsql.result(database, long).get(0)
        assert (len(found["text"]), found["list"][-1]) == (2**22, 99_999)
        assert jmsql.result(database, short).get(0) == "x"


KILLED = (
    KILLED_BEFORE_STEP
    + """


@app.listener("orders", transacted={transacted}, keep_result=3600)
{prefix}def handle(message):
    text = message.get_body(str)
    has_killed = Path(f"killed {{text}}")
    steps.left = None if has_killed.exists() else int(text)
    has_killed.touch()
    return os.getpid()
"""
)


@pytest.mark.parametrize(("prefix", "transacted"), [("", True), ("async ", True), ("", False)])
def test_a_process_killed_at_any_step_has_kept_the_results_of_handled_messages(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase, prefix: str, transacted: bool
) -> None:
    start_worker(
        KILLED.format(prefix=prefix, transacted=transacted),
        *("--timing", "minimum_restart_delay=0.01", "--timing", "maximum_restart_delay=0.01"),
    )
    with jmsql_factory.create_connection() as connection:
        sent = [jmsql.send(connection, "orders", str(step)) for step in range(4)]
        waiting = [Background(partial(jmsql.result(connection, message_id).get, 2 * PATIENCE)) for message_id in sent]
        processes = [each.result(2 * PATIENCE) for each in waiting]
    assert all(isinstance(process, int) for process in processes)
    kept = database.rows("select message_id from jmsql.results where state = 'done'")
    assert sorted(kept) == sorted((message_id,) for message_id in sent)
    assert database.queued() == 0


def test_the_result_of_a_transaction_that_cannot_commit_is_never_there(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    database.rows("create table parent (number integer primary key)")
    database.rows("create table child (number integer references parent deferrable initially deferred)")
    app = Application(jmsql_factory)
    attempts: list[int | None] = []

    @app.listener("orders", keep_result=DAY, redelivery=RedeliveryPolicy(maximum_deliveries=2, delay=0.01))
    def handle(message: TextMessage, database: sqlalchemy.Connection) -> str:
        attempts.append(message.delivery_count)
        if message.text == "orphan" or message.delivery_count == 1:
            database.exec_driver_sql("insert into child values (1)")  # which the commit refuses
        return f"at attempt {message.delivery_count}"

    async def run(connection: jmsql.Connection) -> None:
        async with app.running():
            result = jmsql.result(connection, jmsql.send(connection, "orders", "second"))
            assert await asyncio.to_thread(result.get, PATIENCE) == "at attempt 2"
            result = jmsql.result(connection, jmsql.send(connection, "orders", "orphan"))
            with pytest.raises(JobFailed, match="child_number_fkey"):
                await asyncio.to_thread(result.get, PATIENCE)

    try:
        with jmsql_factory.create_connection() as connection:
            asyncio.run(run(connection))
        assert attempts == [1, 2, 1, 2]
        assert database.rows("select state, deliveries from jmsql.results order by finished_at") == [
            ("done", 2),
            ("failed", 2),
        ]
    finally:
        database.rows("drop table child, parent")


@pytest.mark.parametrize("transacted", [True, False])
def test_a_handler_that_gives_its_message_back_has_no_result(
    jmsql_factory: ConnectionFactory, transacted: bool
) -> None:
    app = Application(jmsql_factory)
    states: list[str] = []

    @app.listener("orders", transacted=transacted, keep_result=DAY)
    def handle(message: TextMessage, session: jmsql.Session) -> str:
        states.append(jmsql.status(connection, message.jms_message_id or ""))
        if message.delivery_count == 1 and transacted:
            session.rollback()
        elif message.delivery_count == 1:
            session.recover()
        elif transacted:
            session.commit()
        else:
            session.acknowledge()
        return f"at attempt {message.delivery_count}"

    async def run() -> None:
        async with app.running():
            result = jmsql.result(connection, jmsql.send(connection, "orders", "a"))
            assert await asyncio.to_thread(result.get, PATIENCE) == "at attempt 2"

    with jmsql_factory.create_connection() as connection:
        asyncio.run(run())
    assert states == ["running", "running"]


def test_many_wait_for_results_and_all_get_theirs(jmsql_factory: ConnectionFactory) -> None:
    gate = threading.Event()

    def double(text: str) -> int:
        gate.wait(PATIENCE)
        return 2 * int(text)

    async def run() -> None:
        with jmsql_factory.create_connection() as first, jmsql_factory.create_connection() as second:
            async with handling(jmsql_factory, double, concurrency=4).running():
                sent = [jmsql.send(first, "orders", str(number)) for number in range(20)]
                waiting = [
                    Background(partial(jmsql.result(connection, message_id).get, PATIENCE))
                    for message_id in sent
                    for connection in (first, second, first)
                ]
                gate.set()
                found = await asyncio.to_thread(lambda: [each.result(PATIENCE) for each in waiting])
        assert found == [2 * number for number in range(20) for _ in range(3)]

    asyncio.run(run())


def test_a_result_goes_when_its_time_is_over(jmsql_factory: ConnectionFactory, database: WorkerDatabase) -> None:
    with jmsql_factory.create_connection() as connection:

        async def run() -> str:
            async with handling(jmsql_factory, str.upper, keep_result=2.0).running():
                message_id = jmsql.send(connection, "orders", "a")
                assert await asyncio.to_thread(jmsql.result(connection, message_id).get, PATIENCE) == "A"
                return message_id

        message_id = asyncio.run(run())
        wait_for(lambda: database.rows("select from jmsql.results") == [], PATIENCE)
        assert jmsql.status(connection, message_id) == "unknown"
        with pytest.raises(TimeoutError, match=r"has not ended within 0\.1 s: it is unknown"):
            jmsql.result(connection, message_id).get(0.1)


def test_the_states_of_a_message(jmsql_factory: ConnectionFactory, database: WorkerDatabase) -> None:
    with jmsql_factory.create_connection() as connection, Administration(jmsql_factory.url) as administration:
        session = connection.create_session(transacted=True)
        uncommitted = jmsql.send(session, "orders", "a")
        assert jmsql.status(connection, uncommitted) == "unknown"
        session.commit()
        assert jmsql.status(session, uncommitted) == "waiting"
        delayed = jmsql.result(connection, jmsql.send(connection, "later", "a", delivery_delay=3600))
        assert (delayed.state, delayed.destination) == ("waiting", "later")
        assert delayed.next_attempt is not None
        assert delayed.next_attempt > dt.datetime.now(dt.UTC)

        connection.start()
        holder = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        consumer = holder.create_consumer("orders")
        message = consumer.receive(PATIENCE)
        assert message is not None
        running = jmsql.result(connection, uncommitted)
        assert (running.state, running.deliveries) == ("running", 1)
        assert running.started_at is not None
        holder.recover(ValueError("not yet"))
        retrying = running.refresh()
        assert (retrying.state, retrying.deliveries) == ("retrying", 1)
        assert "ValueError: not yet" in (retrying.error or "")
        with pytest.raises(TimeoutError, match=r"it is retrying\. Its last error: ValueError: not yet"):
            retrying.get(0)
        consumer.close()
        holder.close()

        rejecting = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        rejecting.create_consumer("refused")
        refused = jmsql.send(connection, "refused", "a")
        consumer = rejecting.create_consumer("refused")
        assert consumer.receive(PATIENCE) is not None
        rejecting.recover(Reject("never"))
        failed = jmsql.result(connection, refused)
        assert (failed.state, failed.destination, failed.deliveries) == ("failed", "DLQ", 1)
        assert failed.kept_until is None
        with pytest.raises(JobFailed, match=r"has failed after 1 delivery: .*never"):
            failed.get(0)

        administration.create_queue("kept", history=True)
        past = jmsql.send(connection, "kept", "a")
        with connection.create_session().create_consumer("kept") as taking:
            assert taking.receive(PATIENCE) is not None
        wait_for(lambda: jmsql.status(connection, past) == "done", PATIENCE)
        with pytest.raises(TimeoutError, match="is done, and its listener keeps no result"):
            jmsql.result(connection, past).get(0)
        for other in ("ID:of another provider", "", "ID:" + "0" * 36, "'; drop", "ID:" + uncommitted[3:-1]):
            assert jmsql.status(connection, other) == "unknown"
        with pytest.raises(TimeoutError, match="is no JMSMessageID of jmsql's"):
            jmsql.result(connection, "ID:of another provider").get(0)
        assert jmsql.status(connection, uuid.UUID(past[3:])) == "done"
        with pytest.raises(TypeError, match="Expected a JMSMessageID"):
            jmsql.status(connection, 5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"jmsql\.enlist joins"):
            jmsql.status(object(), past)  # type: ignore[arg-type]
    with pytest.raises(IllegalStateException):
        jmsql.status(connection, past)


def test_a_dead_letter_that_is_delivered_again_has_its_new_end(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    works = threading.Event()

    def handle(text: str) -> str:
        return "done" if works.is_set() else str(fail(text))

    async def run(connection: jmsql.Connection, administration: Administration) -> None:
        async with handling(jmsql_factory, handle).running():
            retried, moved = (jmsql.send(connection, "orders", text) for text in ("retried", "moved"))
            for message_id in (retried, moved):
                with pytest.raises(JobFailed):
                    await asyncio.to_thread(jmsql.result(connection, message_id).get, PATIENCE)
            works.set()
            administration.create_queue("others")
            administration.move("DLQ", "others", f"JMSMessageID = '{moved}'")
            assert jmsql.result(connection, moved).kept_until is None
            administration.retry("DLQ")
            assert await asyncio.to_thread(jmsql.result(connection, retried).get, PATIENCE) == "done"
        other = Application(jmsql_factory)
        other.listener("others", keep_result=DAY)(echo)
        async with other.running():
            assert await asyncio.to_thread(jmsql.result(connection, moved).get, PATIENCE) == "moved"

    with jmsql_factory.create_connection() as connection, Administration(jmsql_factory.url) as administration:
        asyncio.run(run(connection, administration))


def test_dead_letters_of_one_identifier_are_buried_together(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    with jmsql_factory.create_connection() as connection:
        message_id = jmsql.send(connection, "orders", "a", time_to_live=3600)
        database.rows(
            "insert into jmsql_internal.message (queue_id, jms_message_id, inverse_priority, jms_delivery_mode, "
            "message_type) select queue_id, jms_message_id, 5, 2, 'Message' from jmsql_internal.message"
        )
        database.rows(
            "insert into jmsql_internal.result_keeping select queue_id, 60, true from jmsql_internal.message limit 1"
        )
        database.rows(
            "insert into jmsql_internal.delivery "
            "(queue_id, inverse_priority, sequence, dead_letter_queue_id, delivery_count) "
            "select queue_id, inverse_priority, sequence, 0, 3 from jmsql_internal.message"
        )
        wait_for(lambda: len(database.rows("select from jmsql.dead_letters")) == 2, PATIENCE)
        result = jmsql.result(connection, message_id)
        assert (result.state, result.deliveries) == ("failed", 3)
        assert "never acknowledged" in (result.error or "")


def test_the_death_of_a_worker_that_was_the_last_attempt_leaves_a_result(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory
) -> None:
    worker = start_worker("""
@app.listener("orders", keep_result=3600, redelivery=jmsql.RedeliveryPolicy(maximum_deliveries=1))
def handle(message):
    os.kill(os.getpid(), 9)
""")
    worker.wait_until_ready()
    with jmsql_factory.create_connection() as connection:
        result = jmsql.result(connection, jmsql.send(connection, "orders", "a"))
        with pytest.raises(JobFailed, match="the client went away without acknowledging"):
            result.get(PATIENCE)


# Requests


@KINDS
async def test_a_requestor_learns_of_a_failure_at_once(
    jmsql_factory: ConnectionFactory, is_async: bool, transacted: bool
) -> None:
    application = handling(jmsql_factory, fail, is_async=is_async, transacted=transacted, keep_result=None)
    factory = jmsql.asyncio.ConnectionFactory(jmsql_factory.url, timings=jmsql_factory.timings)
    async with application.running(), await factory.create_connection() as connection:
        await connection.start()
        with pytest.raises(RequestFailed, match=r"The request to queue://orders has failed: .*no a") as caught:
            await connection.requestor("orders").request("a", timeout=10 * PATIENCE)
    assert "ValueError: out of stock" in (caught.value.error or "")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.error) == (str(caught.value), caught.value.error)


def test_a_reply_queue_of_an_applications_own_gets_no_message_of_a_failure(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    with jmsql_factory.create_context() as context:
        replies = context.create_temporary_queue()

        async def run() -> None:
            async with handling(jmsql_factory, fail).running():
                message_id = jmsql.send(context, "orders", "a", reply_to=replies)
                with pytest.raises(JobFailed):
                    await asyncio.to_thread(jmsql.result(context, message_id).get, PATIENCE)

        asyncio.run(run())
        assert receive_all(context.create_consumer(replies)) == []


# In transactions


def test_a_transaction_sees_its_own_results_and_is_not_waited_in(
    jmsql_factory: ConnectionFactory, jmsql_clean_url: str
) -> None:
    app = handling(jmsql_factory, str.upper)
    engine = sqlalchemy.create_engine(sqlalchemy.make_url(jmsql_clean_url).set(drivername="postgresql+psycopg"))
    with orm.Session(engine) as database, psycopg.connect(libpq(jmsql_clean_url), autocommit=True) as outside:
        message_id = jmsql.send(database, "orders", "a")
        result = jmsql.result(database, message_id)
        assert result.state == "waiting"
        with pytest.raises(IllegalStateException, match="inside of the caller's transaction"):
            result.get(5)
        app.drain(transaction=database)
        assert (result.get(5), jmsql.status(outside, message_id)) == ("A", "unknown")
        database.rollback()
        assert jmsql.status(database, message_id) == "unknown"
        assert not database.in_transaction()  # what has only looked leaves none open
        with pytest.raises(TimeoutError):
            result.get(0.01)
        message_id = jmsql.send(database, "orders", "b")
        database.commit()

        async def run() -> None:
            async with app.running():
                for target in (database, outside):
                    assert await asyncio.to_thread(jmsql.result(target, message_id).get, PATIENCE) == "B"

        asyncio.run(run())
    engine.dispose()


async def test_a_transacted_session_with_open_work_is_not_waited_in(jmsql_factory: ConnectionFactory) -> None:
    async with handling(jmsql_factory, str.upper).running():
        with jmsql_factory.create_connection() as connection:
            session = connection.create_session(transacted=True)
            message_id = jmsql.send(session, "orders", "a")
            result = jmsql.result(session, message_id)
            with pytest.raises(IllegalStateException, match="inside of the session's transaction"):
                result.get(5)
            session.commit()
            assert await asyncio.to_thread(result.get, PATIENCE) == "A"
            jmsql.send(session, "receipts", "b")
            assert result.get(None) == "A"  # it is there, so that nothing waits
            session.rollback()
            with pytest.raises(TimeoutError):
                jmsql.result(session, uuid.uuid4()).get(0.01)


async def test_transactions_of_tasks_see_results(jmsql_factory: ConnectionFactory, jmsql_clean_url: str) -> None:
    url = sqlalchemy.make_url(jmsql_clean_url)
    app = handling(jmsql_factory, str.upper, is_async=True)
    async with app.running(), await psycopg.AsyncConnection.connect(libpq(jmsql_clean_url)) as database:
        message_id = await jmsql.asyncio.send(database, "orders", "a")
        with pytest.raises(IllegalStateException, match="inside of the caller's transaction"):
            await (await jmsql.asyncio.result(database, message_id)).get(5)
        await database.commit()
        assert await (await jmsql.asyncio.result(database, message_id)).get(PATIENCE) == "A"
        for driver in ("psycopg", "asyncpg"):
            engine = create_async_engine(url.set(drivername=f"postgresql+{driver}"))
            async with AsyncSession(engine) as session:
                message_id = await jmsql.asyncio.send(session, "orders", driver)
                await session.commit()
                result = await jmsql.asyncio.result(session, message_id)
                assert await result.get(PATIENCE) == driver.upper()
                assert await jmsql.asyncio.status(session, message_id) == "done"
            await engine.dispose()


async def test_a_transacted_handler_may_not_wait_for_a_result(jmsql_factory: ConnectionFactory) -> None:
    with jmsql_factory.create_connection() as connection:
        other = str(uuid.uuid4())

        def wait(_: str) -> object:
            return jmsql.result(connection, other).get(5)

        async with handling(jmsql_factory, wait, no_retry_for=IllegalStateException).running():
            result = jmsql.result(connection, jmsql.send(connection, "orders", "a"))
            with pytest.raises(JobFailed, match="is waited for inside of the transaction of the handler"):
                await asyncio.to_thread(result.get, PATIENCE)


async def test_a_wait_that_is_cancelled_leaves_nothing_behind(jmsql_factory: ConnectionFactory) -> None:
    factory = jmsql.asyncio.ConnectionFactory(jmsql_factory.url, timings=jmsql_factory.timings)
    async with await factory.create_connection() as connection:
        message_id = await jmsql.asyncio.send(connection, "orders", "a")
        result = await jmsql.asyncio.result(connection, message_id)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await result.get(None)
        async with handling(jmsql_factory, str.upper).running():
            assert await result.get(PATIENCE) == "A"


# Listeners that keep no results, and databases that have none


def test_a_wrong_time_to_keep_results_is_refused() -> None:
    app = Application()
    for options, error, reason in (
        ({"keep_result": 0}, ValueError, "for more than 0 s"),
        ({"keep_result": -1}, ValueError, "keep_result is a number of seconds"),
        ({"keep_result": "1"}, TypeError, "keep_result is a number of seconds"),
    ):
        with pytest.raises(error, match=reason):
            app.listener("orders", **options)(echo)
    with pytest.raises(ValueError, match="have an end for each subscription"):
        app.listener(jmsql.Topic("news"), subscription="all", keep_result=60)(echo)
