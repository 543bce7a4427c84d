"""Batches in handlers: messages that they add, batches that they open, and tests in a transaction of their own."""

from __future__ import annotations

import asyncio
import threading
from datetime import date
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

import jmsql
import jmsql.asyncio
from jmsql import Connection, ConnectionFactory, IllegalStateException, MessageFormatException, Session, TextMessage
from jmsql.admin import Administration
from jmsql.cli.application import app as command
from jmsql.worker import Application, HandlerBatch, HandlerCall
from tests.integration.batches.test_batches import callbacks, counts, end_next, progress

app = Application()
seen: list[Any] = []
kept: list[HandlerBatch] = []


@app.listener("sites")
def crawl(message: TextMessage, session: Session, call: HandlerCall) -> None:
    batch = call.batch
    assert batch is not None
    assert call.batch is batch
    kept.append(batch)
    if message.text == "root":
        batch.send("sites", "leaf")
        with jmsql.batch(session, "nested", on_end="nested ends") as nested:
            nested.send("parts", "nested")


@app.listener("parts")
def end() -> None:
    pass


@app.listener("ends")
def note(body: dict[str, Any], session: Session) -> None:
    seen.append(body)
    with jmsql.batch(session, "after", on_end="nested ends"):
        pass


@app.listener("nested ends")
def note_nested(body: dict[str, Any]) -> None:
    seen.append(body)


def test_handlers_add_messages_and_open_batches_in_the_transaction_of_a_test(jmsql_clean_url: str) -> None:
    seen.clear()
    kept.clear()
    with psycopg.connect(jmsql_clean_url) as database:
        with jmsql.batch(database, "import", on_end=note) as batch:
            batch.send(crawl, "root")
        app.drain(transaction=database)
        assert {body["batch"]: body["done"] for body in seen} == {"import": 2, "nested": 1, "after": 0}
        assert len(seen) == 3
        assert batch.progress().is_ended
        assert {each.id for each in kept} == {batch.id}
        with pytest.raises(IllegalStateException, match="has returned"):
            kept[0].send("sites", "late")
        database.rollback()


def test_a_batch_checks_the_bodies_for_handlers_as_they_read_them(jmsql_clean_url: str) -> None:
    app = Application()

    @app.listener("days")
    def close(day: date) -> None:
        seen.append(day)

    @app.listener("numbers")
    def count(number: int) -> None:
        seen.append(number)

    seen.clear()
    with psycopg.connect(jmsql_clean_url) as database:
        with jmsql.batch(database, "closing", on_end=count, body=5) as batch:
            for send in (batch.send, lambda handler, body: batch.send_many(handler, [date(2026, 11, 28), body])):
                with pytest.raises(MessageFormatException, match="The body is not date"):
                    send(close, "yesterday")
            batch.send(close, date(2026, 11, 29))
            batch.send_many(close, [date(2026, 11, 30)])
        with pytest.raises(MessageFormatException, match="queue://numbers cannot take the callback of the batch 'x'"):
            jmsql.batch(database, "x", on_success=count)
        with pytest.raises(MessageFormatException, match="queue://numbers cannot take the callback of the batch 'x'"):
            jmsql.batch(database, "x", on_failure=count, body="five")
        app.drain(transaction=database)
        assert seen == [date(2026, 11, 29), date(2026, 11, 30), 5]
        assert batch.progress().done == 2
        database.rollback()


@pytest.mark.parametrize("world", ["threads", "asyncio"])
async def test_workers_give_handlers_the_batch_of_their_message(
    world: str, connection: Connection, jmsql_factory: ConnectionFactory
) -> None:
    app, found, has_ended = Application(factory=jmsql_factory), list[int | None](), threading.Event()

    def crawl(body: str, call: HandlerCall) -> None:
        found.append(None if call.batch is None else call.batch.id)
        if body == "root" and call.batch is not None:
            call.batch.send_many("sites", ["leaf", "leaf"])

    async def crawl_async(body: str, call: HandlerCall) -> None:
        found.append(None if call.batch is None else call.batch.id)
        if body == "root" and call.batch is not None:
            await call.batch.send_many("sites", ["leaf", "leaf"])

    def end(body: dict[str, Any]) -> None:
        assert body == counts(total=3, done=3)
        has_ended.set()

    app.listener("sites")(crawl if world == "threads" else crawl_async)
    app.listener("ends")(end)
    with connection.create_session() as session:
        session.create_producer(session.create_queue("sites")).send(jmsql.TextMessage("alone"))
    with jmsql.batch(connection, "import", on_end="ends") as batch:
        batch.send("sites", "root")
    async with app.running():
        assert await asyncio.to_thread(has_ended.wait, 60)
    assert sorted(map(str, found)) == [*[str(batch.id)] * 3, "None"]


def test_a_chunk_of_several_batches_names_none(connection: Connection, jmsql_clean_url: str) -> None:
    app, found = Application(), list[Any]()

    @app.listener("parts", chunk=3)
    def handle(bodies: list[str], call: HandlerCall) -> None:
        try:
            found.append((bodies, None if call.batch is None else call.batch.id))
        except IllegalStateException as error:
            found.append(str(error))

    with psycopg.connect(jmsql_clean_url) as database:
        with jmsql.batch(database, "import") as first:
            first.send_many("parts", ["a", "b", "c", "d"])
        with jmsql.batch(database, "import") as second:
            second.send_many("parts", ["e"])
        app.drain(transaction=database)
        database.rollback()
    assert found[0] == (["a", "b", "c"], first.id)
    assert "belong to several batches" in found[1]


def test_nothing_is_added_once_the_message_of_the_handler_has_ended(connection: Connection, sender: Session) -> None:
    with jmsql.batch(connection, "import", on_end="ends") as batch:
        batch.send("parts", "one")
    message = sender.create_consumer("parts").receive(60)
    assert message is not None
    own = jmsql.batch_of(sender, message)
    assert own is not None
    own.send("parts", "two")
    sender.commit()
    assert progress(connection, batch).total == 2
    end_next(sender)
    sender.commit()
    with pytest.raises(IllegalStateException, match="has ended"):
        jmsql.batch_of(sender, message).send("parts", "three")  # type: ignore[union-attr]
    sender.rollback()
    assert callbacks(connection) == [counts(total=2, done=2)]


async def test_batches_under_asyncio(jmsql_asyncio_factory: jmsql.asyncio.ConnectionFactory) -> None:
    async with jmsql_asyncio_factory.create_context() as context:
        async with jmsql.asyncio.batch(context, "import", on_end="ends") as batch:
            await batch.send("parts", "one")
        assert (await batch.progress()).waiting == 1
        async with await context.create_consumer("parts") as consumer:
            assert await consumer.receive(60) is not None
        async with await context.create_consumer("ends") as consumer:
            assert await consumer.receive_body(dict, 60) == counts(total=1, done=1)
        assert (await jmsql.asyncio.batch_progress(context, batch.id)).is_ended


def test_a_batch_that_is_left_open_is_closed_or_deleted_by_the_command(
    connection: Connection, jmsql_factory: ConnectionFactory, jmsql_clean_url: str
) -> None:
    def run(*words: str) -> str:
        ran = CliRunner().invoke(command, ["batch", *words, "--url", jmsql_clean_url], env={"COLUMNS": "200"})
        return ran.output

    assert "There are no batches" in run("list")
    with connection.create_session(transacted=True) as session:
        for _ in range(2):
            block = jmsql.batch(session, "import", on_end="ends")
            block.__enter__().send("parts", "one")
            session.commit()
    with Administration(jmsql_factory) as administration:
        second, first = administration.batches("import")
        assert (first.state, first.waiting) == ("open", 1)
        assert "import" in run("show", str(first.id))
        assert "is closed" in run("close", str(first.id))
        assert "is closed" in run("close", str(first.id))
        assert "is deleted" in run("delete", str(second.id), "--yes")
        assert "no batch" in run("show", str(second.id))
    assert callbacks(connection, "parts") == ["one", "one"]
    assert callbacks(connection) == [counts(total=1, done=1)]
