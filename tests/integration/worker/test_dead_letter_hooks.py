"""Functions that are called with messages which have become dead letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import orm

import jmsql
from jmsql import ConnectionFactory, Message, Queue, RedeliveryPolicy
from jmsql.testing import call
from jmsql.worker import Application, Reject, RetryAfter
from tests.integration.worker.conftest import WorkerDatabase
from tests.integration.worker.test_handlers import send
from tests.integration.worker.test_running import Events

ONCE = RedeliveryPolicy(maximum_deliveries=1)
TWICE = RedeliveryPolicy(maximum_deliveries=2)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("transacted", [False, True])
async def test_both_hooks_are_called_once_the_dead_letter_is_committed(
    is_async: bool,
    transacted: bool,
    jmsql_factory: ConnectionFactory,
    database: WorkerDatabase,
) -> None:
    events = Events()

    def hook(name: str) -> Callable[[Message, BaseException], Any]:
        def plain(message: Message, error: BaseException) -> None:
            count = database.rows(
                "select count(*) from jmsql_internal.message m join jmsql_internal.queue q "
                "using (queue_id) where q.name = 'DLQ'"
            )[0][0]
            events.tell(f"{name}: {message.get_body(str)}, delivery {message.delivery_count}, {error!r}, {count} there")
            if name == "listener":
                raise SystemExit("the hook has failed")

        async def awaited(message: Message, error: BaseException) -> None:
            plain(message, error)

        return awaited if is_async else plain

    app = Application(jmsql_factory, on_dead_letter=hook("application"))

    def fail(message: Message) -> None:
        match message.get_body(str):
            case "rejected":
                raise Reject("why")
            case "put off" if message.delivery_count == 1:
                raise RetryAfter(0)
            case "fails":
                raise ValueError("no")

    options: Any = {"transacted": transacted, "redelivery": TWICE, "on_dead_letter": hook("listener")}
    if is_async:

        @app.listener("orders", **options)
        async def handle(message: Message) -> None:
            fail(message)
    else:

        @app.listener("orders", **options)
        def handle_plain(message: Message) -> None:
            fail(message)

    async with app.running():
        for text, count, deliveries, error in [
            ("rejected", 1, 1, "Reject('why')"),
            ("put off", 1, 0, ""),
            ("fails", 2, 2, "ValueError('no')"),
        ]:
            send(jmsql_factory, "orders", text)
            if deliveries:
                for name in ("listener", "application"):
                    expected = f"{name}: {text}, delivery {deliveries}, {error}, {count} there"
                    assert await events.next() == expected
    assert events.are_over
    assert database.rows("select reason from jmsql.dead_letters order by 1") == [("maximum deliveries",), ("rejected",)]


@pytest.mark.parametrize("options", [{}, {"transacted": False}, {"chunk": 2}], ids=str)
async def test_a_message_whose_claim_was_lost_calls_no_hook_for_a_move_that_did_not_happen(
    options: dict[str, Any], jmsql_factory: ConnectionFactory, jmsql_clean_url: str
) -> None:
    events, calls = Events(), list[str]()
    app = Application(jmsql_factory, on_dead_letter=lambda _, error: events.tell(str(error)))

    def fail() -> None:
        calls.append("lost" if not calls else "kept")
        if calls == ["lost"]:
            with psycopg.connect(jmsql_clean_url) as connection:  # as the maintenance does, which counts the delivery
                connection.execute(
                    "update jmsql_internal.delivery set claim_id = null, connection_id = null, claimed_at = null, "
                    "claim_expires_at = null"
                )
        raise ValueError(calls[-1])

    def handle(body: str) -> None:
        fail()

    def handle_several(bodies: list[str]) -> None:
        fail()

    app.listener("orders", redelivery=ONCE, **options)(handle_several if "chunk" in options else handle)
    async with app.running():
        send(jmsql_factory, "orders", "a")
        assert await events.next() == "kept"
    assert events.are_over


async def test_a_message_that_is_never_retried_or_cannot_be_read_calls_it_with_the_error_itself(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    events = Events()
    app = Application(jmsql_factory, on_dead_letter=lambda _, error: events.tell(type(error).__name__))

    @app.listener("never", no_retry_for=LookupError)
    def fail(body: str) -> None:
        raise KeyError(body)

    @app.listener("unreadable")
    def read(body: dict[str, int]) -> None:
        pass

    @app.listener("slow", timeout=0.05, redelivery=ONCE)
    def wait(message: Message, database: sqlalchemy.Connection) -> None:
        database.execute(sqlalchemy.text("select pg_sleep(60)"))

    async with app.running():
        send(jmsql_factory, "never", "a")
        assert await events.next() == "KeyError"
        send(jmsql_factory, "unreadable", "no JSON")
        assert await events.next() == "MessageFormatException"
        send(jmsql_factory, "slow", "a")
        assert await events.next() == "TimeoutError"


def test_a_drained_message_that_would_be_a_dead_letter_calls_it_and_another_does_not(jmsql_clean_url: str) -> None:
    told: list[tuple[str | None, str]] = []

    def tell(message: Message, error: BaseException) -> None:
        told.append((message.get_body(str), str(error)))
        raise ValueError("the hook has failed")

    app = Application(on_dead_letter=tell)

    @app.listener("orders")
    def handle(body: str) -> None:
        raise Reject("rejected") if body == "bad" else RuntimeError("later")

    @app.listener("once", redelivery=ONCE)
    def handle_once(body: str) -> None:
        raise RuntimeError("at once")

    @app.listener("set")
    def handle_set(body: str) -> None:
        raise RuntimeError("as is set")

    engine = sqlalchemy.create_engine(sqlalchemy.make_url(jmsql_clean_url).set(drivername="postgresql+psycopg"))
    with orm.Session(engine) as session:
        session.execute(sqlalchemy.text("select jmsql.create_queue('set')"))
        session.execute(sqlalchemy.text("update jmsql_internal.queue set maximum_deliveries = 1 where name = 'set'"))
        for queue, body in [("orders", "good"), ("orders", "bad"), ("once", "c"), ("set", "d")]:
            jmsql.send(session, queue, body)
        assert len(app.drain(transaction=session, raise_failures=False)) == 4
        assert sorted(told, key=str) == [("bad", "rejected"), ("c", "at once"), ("d", "as is set")]
        with pytest.raises(Reject):
            call(app, handle, "bad", transaction=session)
        assert told[3:] == [("bad", "rejected")]
    engine.dispose()


def test_a_hook_that_could_not_be_called_is_refused_at_once() -> None:
    async def awaited(message: Message, error: BaseException) -> None: ...

    def handle(message: Message) -> None: ...

    with pytest.raises(TypeError, match=r"handle is a plain function.*on_dead_letter=… is the coroutine function"):
        Application().listener("orders", on_dead_letter=awaited)(handle)
    with pytest.raises(TypeError, match="coroutine function"):
        Application(on_dead_letter=awaited).listener("orders")(handle)
    with pytest.raises(TypeError, match=r"'log' cannot be called"):
        Application().listener(Queue("orders"), on_dead_letter="log")(handle)  # type: ignore[arg-type]
