"""What handlers return is the reply, and requestors give each reply to its request."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import orm

import jmsql
import jmsql.asyncio
from jmsql import ConnectionFactory, IllegalStateException, Message, Queue, TextMessage
from jmsql.testing import receive_all, wait_for
from jmsql.worker import Application
from tests.background import Background
from tests.integration.client.server import CONTROL, Server
from tests.integration.worker.conftest import KILLED_BEFORE_STEP, PATIENCE, StartWorker, WorkerDatabase
from tests.integration.worker.test_handlers import send, texts_in

ORDERS = Queue("orders")
KINDS = pytest.mark.parametrize(
    ("is_async", "transacted"), [(False, True), (False, False), (True, True), (True, False)]
)


@dataclasses.dataclass
class Receipt:
    """What is returned."""

    text: str


def replying(
    factory: ConnectionFactory, reply: Callable[[str], object], *, is_async: bool, **options: Any
) -> Application:
    """Return an application whose handler returns what is made of a text."""
    application = Application(factory)

    def handle(text: str) -> object:
        return reply(text)

    async def handle_asynchronously(text: str) -> object:
        await asyncio.sleep(0)
        return reply(text)

    application.listener(ORDERS, **options)(handle_asynchronously if is_async else handle)
    return application


@KINDS
async def test_the_reply_is_the_handlers_result(
    jmsql_factory: ConnectionFactory, is_async: bool, transacted: bool
) -> None:
    replies: dict[str, object] = {
        "model": Receipt("model"),
        "bytes": b"x",
        "message": TextMessage("itself"),
        "text": "t",
    }
    application = replying(jmsql_factory, replies.get, is_async=is_async, transacted=transacted)
    factory = jmsql.asyncio.ConnectionFactory(jmsql_factory.url, timings=jmsql_factory.timings)
    async with application.running(), await factory.create_connection() as connection:
        await connection.start()
        requestor = connection.requestor("orders")
        found = {text: await requestor.request(text, timeout=PATIENCE) for text in replies}
        assert found["model"].get_body(str) == '{"text":"model"}'
        assert found["model"].jms_type == "Receipt"
        assert found["bytes"].get_body(bytes) == b"x"
        assert found["message"].get_body(str) == "itself"
        assert found["text"].get_body(str) == "t"
        with pytest.raises(TimeoutError, match="No reply to the request to queue://orders has come within"):
            await requestor.request("nothing", timeout=0.2)


@KINDS
async def test_the_address_is_that_of_the_request_and_else_that_of_the_listener(
    jmsql_factory: ConnectionFactory, is_async: bool, transacted: bool
) -> None:
    application = replying(jmsql_factory, str.upper, is_async=is_async, transacted=transacted, reply_to="answers")
    with jmsql_factory.create_context() as context:
        async with application.running():
            producer = context.create_producer()
            first, second = context.create_text_message("a"), context.create_text_message("b")
            second.jms_correlation_id = "of the request"
            second.jms_reply_to = Queue("elsewhere")
            producer.send(ORDERS, first).send(ORDERS, second)
            answers = context.create_consumer(Queue("answers"))
            answer = await asyncio.to_thread(answers.receive, PATIENCE)
            assert answer is not None
            assert (answer.get_body(str), answer.jms_correlation_id) == ("A", first.jms_message_id)
            elsewhere = context.create_consumer(Queue("elsewhere"))
            other = await asyncio.to_thread(elsewhere.receive, PATIENCE)
            assert other is not None
            assert (other.get_body(str), other.jms_correlation_id) == ("B", "of the request")
            assert receive_all(answers) == []


async def test_without_an_address_there_is_one_warning(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    application = replying(jmsql_factory, str.upper, is_async=True)
    send(jmsql_factory, "orders", "a", "b")
    with caplog.at_level(logging.WARNING, "jmsql.worker"):
        async with application.running():
            await asyncio.to_thread(wait_for, lambda: not database.queued(), PATIENCE)
    assert caplog.text.count("returned a value, which was dropped: the message has no JMSReplyTo") == 1


@KINDS
async def test_a_reply_to_a_requestor_that_is_gone_is_dropped_and_its_message_handled(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, is_async: bool, transacted: bool
) -> None:
    with jmsql_factory.create_context() as context:
        message = context.create_text_message("a")
        message.jms_reply_to = context.create_temporary_queue()
        context.create_producer().send(ORDERS, message)
    application = replying(jmsql_factory, str.upper, is_async=is_async, transacted=transacted)
    async with application.running():
        await asyncio.to_thread(wait_for, lambda: not database.queued(), PATIENCE)
    assert database.rows("select from jmsql.dead_letters") == []


async def test_a_transacted_handler_may_not_wait_for_a_reply(jmsql_factory: ConnectionFactory) -> None:
    refused: list[str] = []
    factory = jmsql.asyncio.ConnectionFactory(jmsql_factory.url, timings=jmsql_factory.timings)
    application = Application(jmsql_factory)
    with jmsql_factory.create_connection() as connection:
        async with await factory.create_connection() as other:
            connection.start()
            await other.start()

            @application.listener("orders")
            def ask(text: str) -> None:
                try:
                    connection.requestor("others").request(text, timeout=0.1)
                except IllegalStateException as error:
                    refused.append(str(error))

            @application.listener("returns")
            async def ask_asynchronously(text: str) -> None:
                try:
                    await other.requestor("others").request(text, timeout=0.1)
                except IllegalStateException as error:
                    refused.append(str(error))

            send(jmsql_factory, "orders", "a")
            send(jmsql_factory, "returns", "a")
            async with application.running():
                await asyncio.to_thread(wait_for, lambda: len(refused) == 2, PATIENCE)
    assert all("inside of the transaction of the handler" in error for error in refused)


def test_a_request_inside_of_an_enlisted_transaction_is_refused_while_that_is_open(
    jmsql_factory: ConnectionFactory, jmsql_clean_url: str
) -> None:
    engine = sqlalchemy.create_engine(sqlalchemy.make_url(jmsql_clean_url).set(drivername="postgresql+psycopg"))
    with jmsql_factory.create_connection() as connection, orm.Session(engine) as database:
        connection.start()
        requestor = connection.requestor("others")
        jmsql.enlist(database).create_producer().send(ORDERS, "a")
        with pytest.raises(IllegalStateException, match="inside of the transaction of an enlisted Session"):
            requestor.request("a", timeout=5)
        # Others are in no transaction.
        elsewhere = Background(lambda: requestor.request("a", timeout=0.1))
        with pytest.raises(TimeoutError):
            elsewhere.result(PATIENCE)
        database.commit()
        with pytest.raises(TimeoutError):
            requestor.request("a", timeout=0.1)
    engine.dispose()


async def test_tasks_are_refused_the_same(jmsql_factory: ConnectionFactory, jmsql_clean_url: str) -> None:
    factory = jmsql.asyncio.ConnectionFactory(jmsql_factory.url, timings=jmsql_factory.timings)
    url = sqlalchemy.make_url(jmsql_clean_url).set(drivername="postgresql").render_as_string(hide_password=False)
    async with await factory.create_connection() as connection, await psycopg.AsyncConnection.connect(url) as database:
        await connection.start()
        requestor = connection.requestor("others")
        await jmsql.asyncio.enlist(database).create_producer().send(ORDERS, "a")
        with pytest.raises(IllegalStateException, match="of an enlisted AsyncConnection"):
            await requestor.request("a", timeout=5)
        with pytest.raises(TimeoutError):
            await asyncio.create_task(requestor.request("a", timeout=0.1))
        await database.rollback()
        with pytest.raises(TimeoutError):
            await requestor.request("a", timeout=0.1)


# Many requests at a time

MANY = 1000
LONG = 4 * PATIENCE
IGNORED = range(0, MANY, 10)
LATE = range(5, MANY, 10)


def reply_shuffled(factory: ConnectionFactory, left: threading.Event) -> int:
    """Reply to all requests in another order: late to some, to some never, to some twice. Return how many came."""
    random_order = random.Random(7)
    with factory.create_context() as context:
        consumer = context.create_consumer(ORDERS)
        requests = list[Message]()
        while len(requests) < MANY and not left.is_set():
            request = consumer.receive(1.0)
            requests += [] if request is None else [request]
        random_order.shuffle(requests)
        late = []
        producer = context.create_producer()
        for request in requests:
            number = int(request.get_body(str) or "")
            reply = context.create_text_message(f"reply to {number}")
            # Some repliers know the message's id alone.
            reply.jms_correlation_id = request.jms_correlation_id if number % 2 else request.jms_message_id
            assert request.jms_reply_to is not None
            if number in LATE:
                late.append((request.jms_reply_to, reply))
            elif number not in IGNORED:
                producer.send(request.jms_reply_to, reply)
                if number % 7 == 0:
                    producer.send(request.jms_reply_to, reply)
        left.wait(LONG)
        for address, reply in late:
            producer.send(address, reply)
        return len(requests)


LEFT = "select count(*) from jmsql_internal.message"
TEMPORARY = "select count(*) from jmsql_internal.queue where connection_id is not null"


@pytest.fixture
def left() -> Iterator[threading.Event]:
    """Set when the late replies may come, and at the end: no replier takes the messages of the next tests."""
    left = threading.Event()
    yield left
    left.set()


async def test_a_thousand_tasks_at_a_time_get_their_own_replies_and_leave_nothing(
    jmsql_factory: ConnectionFactory, server: Server, left: threading.Event
) -> None:
    replier = Background(lambda: reply_shuffled(jmsql_factory, left))
    factory = jmsql.asyncio.ConnectionFactory(jmsql_factory.url, timings=jmsql_factory.timings)
    async with await factory.create_connection() as connection:
        await connection.start()
        requestor = connection.requestor(ORDERS)

        async def ask(number: int) -> str | None:
            return (await requestor.request(str(number), timeout=LONG)).get_body(str)

        tasks = {number: asyncio.create_task(ask(number)) for number in range(MANY)}
        answered = [task for number, task in tasks.items() if number not in LATE and number not in IGNORED]
        await asyncio.wait(answered, timeout=LONG)
        for number, task in tasks.items():
            if number in LATE or number in IGNORED:
                assert not task.done()
                task.cancel()
            else:
                assert task.result() == f"reply to {number}"
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        left.set()
        assert await asyncio.to_thread(replier.result, PATIENCE) == MANY
        assert server.rows(TEMPORARY) == [(1,)]
        # What came late is dropped.
        await asyncio.to_thread(wait_for, lambda: server.rows(LEFT) == [(0,)], PATIENCE)
        assert requestor.pending == 0
    assert server.rows(TEMPORARY) == [(0,)]


def test_a_thousand_threads_at_a_time_get_their_own_replies_and_leave_nothing(
    jmsql_factory: ConnectionFactory, server: Server, left: threading.Event
) -> None:
    replier = Background(lambda: reply_shuffled(jmsql_factory, left))
    with jmsql_factory.create_connection() as connection, ThreadPoolExecutor(MANY) as threads:
        connection.start()
        requestor = connection.requestor(ORDERS)

        # A request expires with its time-out: the replier receives all before.
        [patience] = wait_for.__defaults__ or ()

        def ask(number: int) -> str | None:
            limit = 2 * patience if number in LATE or number in IGNORED else LONG
            return requestor.request(str(number), timeout=limit).get_body(str)

        calls: dict[int, Future[str | None]] = {number: threads.submit(ask, number) for number in range(MANY)}
        for number, call in calls.items():
            if number in LATE or number in IGNORED:
                with pytest.raises(TimeoutError):
                    call.result(LONG)
            else:
                assert call.result(LONG) == f"reply to {number}"
        left.set()
        assert replier.result(PATIENCE) == MANY
        assert server.rows(TEMPORARY) == [(1,)]
        wait_for(lambda: server.rows(LEFT) == [(0,)], PATIENCE)
        assert requestor.pending == 0
    assert server.rows(TEMPORARY) == [(0,)]


def test_closing_the_connection_ends_the_requests_that_wait(jmsql_factory: ConnectionFactory, server: Server) -> None:
    connection = jmsql_factory.create_connection()
    connection.start()
    request = Background(lambda: connection.requestor("orders").request("a", timeout=PATIENCE))
    wait_for(lambda: server.rows(LEFT) == [(1,)], PATIENCE)
    connection.close()
    with pytest.raises(IllegalStateException, match="closed while a request waited"):
        request.result(PATIENCE)


def test_a_request_expires_with_its_time_out(jmsql_factory: ConnectionFactory, server: Server) -> None:
    with jmsql_factory.create_connection() as connection:
        requestor = connection.requestor("orders")
        with pytest.raises(IllegalStateException, match="Start the connection"):
            requestor.request("a")
        connection.start()
        with pytest.raises(TimeoutError):
            requestor.request("a", timeout=0.1)
        expired = "select jms_expiration <= extract(epoch from clock_timestamp()) * 1000 from jmsql_internal.message"
        wait_for(lambda: server.rows(expired) in ([], [(True,)]), PATIENCE)
        with connection.create_session() as session, session.create_consumer(ORDERS) as consumer:
            assert consumer.receive_no_wait() is None
        for timeout in (0, -1):
            with pytest.raises(ValueError, match="timeout"):
                requestor.request("a", timeout=timeout)


KILLED = (
    KILLED_BEFORE_STEP
    + """


@app.listener("orders", transacted={transacted}, reply_to="answers")
{prefix}def handle(message):
    text = message.get_body(str)
    has_killed = Path(f"killed {{text}}")
    steps.left = None if has_killed.exists() else int(text)
    has_killed.touch()
    return text
"""
)


@pytest.mark.parametrize(("prefix", "transacted"), [("", True), ("async ", True), ("", False)])
def test_a_process_killed_at_any_step_has_replied_with_its_message_or_not_at_all(
    start_worker: StartWorker,
    jmsql_factory: ConnectionFactory,
    database: WorkerDatabase,
    prefix: str,
    transacted: bool,
) -> None:
    worker = start_worker(
        KILLED.format(prefix=prefix, transacted=transacted),
        *("--timing", "minimum_restart_delay=0.01", "--timing", "maximum_restart_delay=0.01"),
    )
    texts = [str(step) for step in range(4)]
    send(jmsql_factory, "orders", *texts)
    queued = "select count(*) from jmsql.messages where queue = 'orders'"
    wait_for(lambda: database.rows(queued) == [(0,)], 2 * PATIENCE)
    worker.wait_for_log("was killed by SIGKILL")
    replies = Counter(texts_in(jmsql_factory, "answers"))
    assert sorted(map(str, replies)) == texts
    assert all(count == 1 for count in replies.values()) or not transacted
    assert worker.stop() == 0


@pytest.mark.parametrize("is_gone", [False, True], ids=["its queue was kept", "its queue was removed"])
def test_a_requestor_goes_on_after_its_client_was_taken_for_dead(
    factory: ConnectionFactory, jmsql_factory: ConnectionFactory, server: Server, is_gone: bool
) -> None:
    def reply() -> None:
        with jmsql_factory.create_context() as context:
            consumer = context.create_consumer(ORDERS)
            for _ in range(2):
                request = consumer.receive(PATIENCE)
                assert request is not None
                assert request.jms_reply_to is not None
                answer = context.create_text_message(f"reply to {request.get_body(str)}")
                answer.jms_correlation_id = request.jms_message_id
                context.create_producer().send(request.jms_reply_to, answer)

    replier = Background(reply)
    with factory.create_connection() as connection:
        connection.start()
        requestor = connection.requestor(ORDERS)
        assert requestor.request("a", timeout=PATIENCE).get_body(str) == "reply to a"
        [(number,)] = server.rows("select max(connection_id) from jmsql_internal.queue")
        if is_gone:  # as maintenance does with those of a client that is gone
            server.rows(
                "update jmsql_internal.queue set name = null, connection_id = null, deleted_at = now() "
                "where connection_id is not null"
            )
        server.terminate(CONTROL)
        bound = "select count(*) from jmsql_internal.queue where connection_id > %s and deleted_at is null"
        wait_for(lambda: server.rows(bound, number) == [(1,)], PATIENCE)
        assert requestor.request("b", timeout=PATIENCE).get_body(str) == "reply to b"
    replier.result(PATIENCE)
    assert server.rows(TEMPORARY) == [(0,)]
