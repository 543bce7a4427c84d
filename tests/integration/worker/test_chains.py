"""Messages that name their next steps: each handler's result goes to the next one, with its message."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

import jmsql
from jmsql import ConnectionFactory, InvalidDestinationException, Queue, RedeliveryPolicy
from jmsql.admin import Administration
from jmsql.testing import sent, wait_for
from jmsql.worker import Application, ListenerFunction, Reject
from tests.integration.worker.conftest import PATIENCE, WorkerDatabase
from tests.integration.worker.test_replies import KINDS

AGAIN = RedeliveryPolicy(maximum_deliveries=3, delay=0.01)


def shout(text: str) -> str:
    """Return another body."""
    return text + "!"


def note(text: str) -> None:
    """Return nothing, so that the body goes on."""


def chain(
    application: Application, *functions: Any, is_async: bool, **options: Any
) -> list[ListenerFunction[Any, Any]]:
    """Register a handler for each function, on the queues "step 0", "step 1" …"""

    def registered(number: int, function: Any) -> ListenerFunction[Any, Any]:
        async def handle_asynchronously(text: str) -> Any:
            await asyncio.sleep(0)
            return function(text)

        def handle(text: str) -> Any:
            return function(text)

        handler = handle_asynchronously if is_async else handle
        return application.listener(f"step {number}", redelivery=AGAIN, **options)(handler)

    return [registered(number, function) for number, function in enumerate(functions)]


async def received(factory: ConnectionFactory, queue: str) -> jmsql.Message:
    with factory.create_context() as context:
        message = await asyncio.to_thread(context.create_consumer(queue).receive, PATIENCE)
    assert message is not None
    return message


@KINDS
async def test_each_result_goes_to_the_next_step_with_the_group_and_the_properties(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, is_async: bool, transacted: bool
) -> None:
    application = Application(jmsql_factory)
    first, *others = chain(application, shout, note, shout, is_async=is_async, transacted=transacted)
    with jmsql_factory.create_context() as context:
        sent_first = first.send(
            context,
            "a",
            then=[*others, "the end"],
            reply_to="replies",
            group="customer 5",
            priority=7,
            properties={"tenant": "kites", "traceparent": "00-1-1-00"},
        )
    async with application.running():
        message = await received(jmsql_factory, "the end")
    assert (message.get_body(str), message.jms_priority) == ("a!!", 7)
    assert (message.jms_correlation_id, message.jms_reply_to) == (sent_first, Queue("replies"))
    assert dict(message.properties) == {"JMSXGroupID": "customer 5", "tenant": "kites", "JMSXDeliveryCount": 1}
    assert database.rows("select from jmsql.messages") == []


async def test_the_last_step_replies_to_the_sender(jmsql_factory: ConnectionFactory) -> None:
    application = Application(jmsql_factory)
    first, last = chain(application, shout, shout, is_async=False)
    with jmsql_factory.create_context() as context:
        first.send(context, "a", then=[last], reply_to="replies")
    async with application.running():
        assert (await received(jmsql_factory, "replies")).get_body(str) == "a!!"


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_chain_goes_on_after_a_failure_and_a_retried_dead_letter(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, is_async: bool
) -> None:
    calls: list[str] = []

    def fail_at_first(text: str) -> str:
        calls.append(text)
        if len(calls) == 1:
            raise ConnectionError("not now")
        if len(calls) == 2:
            raise Reject("ask a person")
        return text + "?"

    application = Application(jmsql_factory)
    first, *others = chain(application, shout, fail_at_first, shout, is_async=is_async)
    letters: list[str] = []

    @application.listener("DLQ", selector="letter = 'handled'")
    def handle(text: str) -> None:
        letters.append(text)

    with jmsql_factory.create_context() as context:
        first.send(context, "a", then=[*others, "the end"])
        first.send(context, "b", then=["DLQ"], properties={"letter": "handled"})
    dead = "select message_id from jmsql.dead_letters"
    async with application.running():
        await asyncio.to_thread(wait_for, lambda: len(database.rows(dead)) == 1 and letters, PATIENCE)
        with Administration(jmsql_factory.url) as administration:
            assert administration.retry("DLQ").returned
        assert (await received(jmsql_factory, "the end")).get_body(str) == "a!?!"
    assert calls == ["a!"] * 3
    assert database.rows("select from jmsql.messages") == []


async def test_a_dead_letter_is_no_step_of_its_chain(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    application = Application(jmsql_factory)
    undone: list[str] = []
    policy = RedeliveryPolicy(maximum_deliveries=1, dead_letter_queue="failed")

    @application.listener("trips", redelivery=policy)
    def book(text: str) -> None:
        raise LookupError(text)

    @application.listener("failed")
    def undo(text: str) -> None:
        undone.append(text)

    with jmsql_factory.create_context() as context:
        book.send(context, "a", then=["payments"])
    async with application.running():
        await asyncio.to_thread(wait_for, lambda: undone == ["a"] and not database.queued(), PATIENCE)


async def test_each_message_of_a_chunk_has_its_own_next_step(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    application = Application(jmsql_factory)
    calls: list[int] = []

    @application.listener("chunks", chunk=4, chunk_wait=30)
    def handle(texts: list[str]) -> list[str | None] | None:
        calls.append(len(texts))
        return ["z", *[None] * (len(texts) - 1)] if len(calls) == 1 else None

    with jmsql_factory.create_context() as context:
        handle.send_many(context, ["a", "b"], then=["left"])
        handle.send_many(context, ["c", "d"], then=["right"])
        handle.send_many(context, ["e", "f", "g", "h"], then=["right"])
    async with application.running():
        await asyncio.to_thread(
            wait_for, lambda: database.rows("select count(*) from jmsql.messages where queue <> 'chunks'") == [(8,)]
        )
    found = database.rows("select queue, body from jmsql.messages order by sequence")
    assert found[:2] == [("left", "z"), ("left", "b")]
    assert sorted(body for queue, body in found if queue == "right") == list("cdefgh")


async def test_the_next_steps_belong_to_the_batch_of_the_message(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    application = Application(jmsql_factory)
    first, *others = chain(application, shout, note, shout, is_async=False)
    with jmsql_factory.create_connection() as connection:
        with jmsql.batch(connection, "two chains", on_end="ends") as batch:
            for text in ("a", "b"):
                batch.send(first, text, then=others)
        async with application.running():
            message = await received(jmsql_factory, "ends")
        assert message.get_body(dict)["done"] == 6  # type: ignore[index]
        assert jmsql.batch_progress(connection, batch.id).done == 6


@KINDS
@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_chain_goes_on_without_its_batch_once_that_has_ended_or_was_deleted(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, is_async: bool, transacted: bool, is_deleted: bool
) -> None:
    calls: list[str] = []

    def fail_at_first(text: str) -> str:
        calls.append(text)
        if len(calls) == 1:
            raise Reject("ask a person")
        return text + "?"

    application = Application(jmsql_factory)
    first, *others = chain(application, fail_at_first, shout, is_async=is_async, transacted=transacted)
    with jmsql_factory.create_connection() as connection, Administration(jmsql_factory.url) as administration:
        with jmsql.batch(connection, "one chain", on_end="ends") as batch:
            batch.send(first, "a", then=[*others, "the end"])
        async with application.running():
            counts = (await received(jmsql_factory, "ends")).get_body(dict)
            if is_deleted:
                administration.delete_batch(batch.id)
            assert administration.retry("DLQ").returned
            assert (await received(jmsql_factory, "the end")).get_body(str) == "a?!"
        assert counts["total"] == counts["failed"] == 1  # type: ignore[index]
        if not is_deleted:
            assert jmsql.batch_progress(connection, batch.id).total == 1
    assert calls == ["a", "a"]
    assert database.rows("select from jmsql.messages") == []


def test_a_chain_of_an_ended_batch_goes_on_in_the_transaction_of_a_test(
    jmsql_transaction: psycopg.Connection[Any],
) -> None:
    application = Application()
    first, last = chain(application, shout, shout, is_async=False)
    with jmsql.batch(jmsql_transaction, "one chain") as batch:
        batch.send(first, "a", then=[last, "the end"])
    jmsql_transaction.execute("update jmsql_internal.batch set ended_at = now()")
    application.drain(transaction=jmsql_transaction)
    assert [message.get_body(str) for message in sent(jmsql_transaction, "the end")] == ["a!!"]


def test_a_chain_runs_in_the_transaction_of_a_test(jmsql_transaction: psycopg.Connection[Any]) -> None:
    application = Application()
    first, *others = chain(application, shout, note, shout, is_async=False)
    first.send(jmsql_transaction, "a", then=[*others, "the end"])
    jmsql.send(jmsql_transaction, "step 2", "b", properties={"JMS_Then": '["the end"]'})
    application.drain(transaction=jmsql_transaction)
    assert sorted(str(message.get_body(str)) for message in sent(jmsql_transaction, "the end")) == ["a!!", "b!"]


@pytest.mark.parametrize("steps", ["the end", "[5]", "[]", "{}", "[" * 100_000, '["nothing://here"]', 5])
def test_steps_that_cannot_be_read_are_named_in_the_error(
    jmsql_transaction: psycopg.Connection[Any], steps: object
) -> None:
    application = Application()
    (first,) = chain(application, note, is_async=False)
    first.send(jmsql_transaction, "a", properties={"JMS_Then": steps})
    with pytest.raises(Reject, match="JMS_Then is no JSON array of destinations"):
        application.drain(transaction=jmsql_transaction)


@pytest.mark.parametrize(
    ("steps", "error"),
    [("step 1", TypeError), ([5], InvalidDestinationException), ([""], InvalidDestinationException)],
)
def test_steps_that_are_no_destinations_are_refused_by_the_send(
    jmsql_transaction: psycopg.Connection[Any], steps: Any, error: type[Exception]
) -> None:
    (first,) = chain(Application(), note, is_async=False)
    with pytest.raises(error):
        first.send(jmsql_transaction, "a", then=steps)
