"""psycopg's own connection in a message's transaction: the handler works on it, and the worker ends the transaction."""

from __future__ import annotations

import pytest

from jmsql import ConnectionFactory
from jmsql.testing import wait_for
from tests.integration.worker.conftest import PATIENCE, StartWorker, WorkerDatabase
from tests.integration.worker.test_handlers import send

WORLDS = pytest.mark.parametrize("world", ["def", "async def"])

PREFACE = """
import contextlib
import psycopg
from psycopg import rows
from sqlalchemy.ext.asyncio import AsyncConnection

ONCE = jmsql.RedeliveryPolicy(maximum_deliveries=1)
INSERTION = "insert into handled values (%s, %s, %s)"


DEF record(connection, text, count=1):
    AWAIT connection.execute(INSERTION, (text, os.getpid(), count))
"""


def source_of(handlers: str, world: str) -> str:
    """Return a module of handlers as it is written in one of the worlds."""
    names = {
        "DEF ": "async def " if world == "async def" else "def ",
        "AWAIT ": "await " if world == "async def" else "",
        "WITH ": "async with " if world == "async def" else "with ",
        "CONNECTION": "psycopg.AsyncConnection" if world == "async def" else "psycopg.Connection",
        "DATABASE": "AsyncConnection" if world == "async def" else "sqlalchemy.Connection",
    }
    source = PREFACE + handlers
    for name, text in names.items():
        source = source.replace(name, text)
    return source


def dead_letters(database: WorkerDatabase) -> dict[str, str]:
    """Return why messages are in the dead-letter queue, by their texts."""
    return dict(database.rows("select body, error from jmsql.dead_letters"))


def texts(database: WorkerDatabase) -> list[str]:
    """Return the texts that handlers have recorded."""
    return [text for text, _ in database.handled()]


AS_A_WHOLE = """
@app.listener("orders")
DEF handle(message, connection: CONNECTION[rows.TupleRow], context):
    number = message.get_int_property("JMSXDeliveryCount")
    AWAIT record(connection, message.get_body(str), number)
    AWAIT context.create_producer().send(jmsql.Queue("sent"), f"delivery {number}")
    cursor = AWAIT connection.execute("select body from jmsql.messages where queue = 'sent'")
    assert (AWAIT cursor.fetchall()) == [(f"delivery {number}",)]
    if number == 1:
        raise RuntimeError("the first attempt fails")


@app.listener("both", redelivery=ONCE)
DEF handle_both(text: str, connection: CONNECTION | None, database: DATABASE):
    AWAIT record(connection, text)
    AWAIT database.execute(sqlalchemy.text("insert into handled select text || ' too', 1, 1 from handled"))
    cursor = AWAIT connection.execute("select text from handled where text = %s", (f"{text} too",))
    assert (AWAIT cursor.fetchone()) == (f"{text} too",)
    if text == "fails":
        raise RuntimeError("as it should")
"""


@WORLDS
def test_its_work_is_committed_with_the_message_or_not_at_all(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase, world: str
) -> None:
    worker = start_worker(source_of(AS_A_WHOLE, world))
    send(jmsql_factory, "orders", "order")
    wait_for(lambda: database.handled() == [("order", 2)], PATIENCE)
    sent = "select body from jmsql.messages where queue = 'sent'"
    wait_for(lambda: database.rows(sent) == [("delivery 2",)], PATIENCE)
    assert worker.stop() == 0


@WORLDS
def test_together_with_sqlalchemys_it_is_one_transaction(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase, world: str
) -> None:
    worker = start_worker(source_of(AS_A_WHOLE, world))
    send(jmsql_factory, "both", "fails", "one", "fails")
    wait_for(lambda: len(dead_letters(database)) == 2 or texts(database), PATIENCE)
    wait_for(lambda: database.queued() == 2, PATIENCE)  # the dead letters
    assert texts(database) == ["one", "one too"]
    assert set(dead_letters(database).values()) == {"RuntimeError: as it should"}
    assert worker.stop() == 0


REFUSED = """
ENDS = {
    "commit()": lambda connection: connection.commit(),
    "rollback()": lambda connection: connection.rollback(),
    "close()": lambda connection: connection.close(),
    "set_autocommit()": lambda connection: connection.set_autocommit(True),
    "set_isolation_level()": lambda connection: connection.set_isolation_level(psycopg.IsolationLevel.SERIALIZABLE),
    "set_read_only()": lambda connection: connection.set_read_only(True),
    "set_deferrable()": lambda connection: connection.set_deferrable(True),
    "tpc_begin()": lambda connection: connection.tpc_begin("x"),
    "'commit'": lambda connection: connection.execute("commit"),
    "' /* now */ Rollback'": lambda connection: connection.execute(b" /* now */ Rollback"),
    "'end;'": lambda connection: connection.cursor().execute("end;"),
    "\\"prepare transaction 'x'\\"": lambda connection: connection.execute("prepare transaction 'x'"),
}


@app.listener("orders", redelivery=ONCE)
DEF handle(message, connection: CONNECTION):
    for is_first in True, False:
        for name, end in ENDS.items():
            try:
                AWAIT end(connection)
            except jmsql.TransactionInProgressException as error:
                assert str(error).startswith(f"{name} is refused: the connection is in the transaction of a message")
            else:
                raise AssertionError(f"{name} is allowed")
        try:
            WITH connection:
                AWAIT record(connection, "in a block of the connection's")
        except jmsql.TransactionInProgressException:
            AWAIT record(connection, "refused")
    raise RuntimeError("as it should")
"""


@WORLDS
def test_it_refuses_to_end_the_transaction_or_begin_another_kind(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase, world: str
) -> None:
    worker = start_worker(source_of(REFUSED, world))
    send(jmsql_factory, "orders", "order")
    wait_for(lambda: dead_letters(database), PATIENCE)
    assert dead_letters(database) == {"order": "RuntimeError: as it should"}
    assert texts(database) == []
    assert worker.stop() == 0


BLOCKS = """
@app.listener("orders", redelivery=ONCE)
DEF handle(text: str, connection: CONNECTION, context: jmsql.CONTEXT):
    with contextlib.suppress(psycopg.errors.DivisionByZero):
        WITH connection.transaction():
            AWAIT record(connection, "undone")
            AWAIT context.create_producer().send(jmsql.Queue("sent"), "undone")
            AWAIT connection.execute("select 1 / 0")
    WITH connection.transaction():
        AWAIT record(connection, text)
        AWAIT context.create_producer().send(jmsql.Queue("sent"), text)
    if text == "fails":
        raise RuntimeError("as it should")


@app.listener("in pipelines", redelivery=ONCE)
DEF handle_in_pipeline(text: str, connection: CONNECTION):
    WITH connection.pipeline():
        AWAIT record(connection, text)
        WITH connection.transaction():
            AWAIT record(connection, f"{text} in a block")
        WITH connection.transaction(force_rollback=True):
            AWAIT record(connection, "undone")
    if text == "fails":
        raise RuntimeError("as it should")


@app.listener("caught", redelivery=ONCE)
DEF handle_caught(text: str, connection: CONNECTION):
    AWAIT record(connection, text)
    with contextlib.suppress(psycopg.Error):
        AWAIT connection.execute("select 1 / 0")


@app.listener("ended", redelivery=ONCE)
DEF handle_ended(text: str, connection: CONNECTION):
    AWAIT connection.execute("insert into handled values ('undone', 1, 1); rollback")
"""


@WORLDS
def test_its_transaction_blocks_are_savepoints_also_the_first(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase, world: str
) -> None:
    context = "asyncio.JMSContext" if world == "async def" else "JMSContext"
    imports = "import jmsql.asyncio\n"
    worker = start_worker(imports + source_of(BLOCKS.replace("jmsql.CONTEXT", f"jmsql.{context}"), world))
    send(jmsql_factory, "orders", "fails", "one")
    send(jmsql_factory, "in pipelines", "fails", "two")
    wait_for(lambda: len(texts(database)) == 3 and len(dead_letters(database)) == 1, PATIENCE)
    wait_for(lambda: database.queued() == 3, PATIENCE)
    assert texts(database) == ["one", "two", "two in a block"]
    assert database.rows("select body from jmsql.messages where queue = 'sent'") == [("one",)]
    assert set(dead_letters(database).values()) == {"RuntimeError: as it should"}
    assert worker.stop() == 0


@WORLDS
def test_a_transaction_that_has_failed_or_is_gone_fails_the_message(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase, world: str
) -> None:
    context = "asyncio.JMSContext" if world == "async def" else "JMSContext"
    imports = "import jmsql.asyncio\n"
    worker = start_worker(imports + source_of(BLOCKS.replace("jmsql.CONTEXT", f"jmsql.{context}"), world))
    send(jmsql_factory, "caught", "caught")
    send(jmsql_factory, "ended", "ended")
    wait_for(lambda: len(dead_letters(database)) == 2, PATIENCE)
    errors = dead_letters(database)
    assert "(division by zero), and the error was caught" in errors["caught"]
    assert "psycopg's transaction()" in errors["caught"]
    assert 'rollback" is refused' in errors["ended"]
    send(jmsql_factory, "orders", "one")
    wait_for(lambda: texts(database) == ["one"], PATIENCE)
    assert worker.stop() == 0


LEFT = """
kept = []


@app.listener("orders", concurrency=1, redelivery=ONCE)
DEF handle(text: str, connection: CONNECTION):
    cursor = AWAIT connection.execute("select 1")
    assert (AWAIT cursor.fetchone()) == (1,)
    connection.row_factory = rows.dict_row
    connection.cursor_factory = psycopg.CLIENTCURSOR
    match text:
        case "a cursor factory":
            AWAIT record(connection, text)
            return
        case "a pipeline":
            block = connection.pipeline()
        case "a copy" | "a copy and an error":
            block = connection.cursor().copy("copy handled from stdin")
        case "a block":
            block = connection.transaction()
        case "nothing":
            connection.row_factory = rows.tuple_row
            AWAIT record(connection, text)
            return
    kept.append(block)
    AWAIT record(connection, text)
    ENTERED
    if text == "a copy and an error":
        raise RuntimeError("as it should")
"""


@WORLDS
def test_open_work_on_it_ends_before_the_next_message(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase, world: str
) -> None:
    is_async = world == "async def"
    source = LEFT.replace("CLIENTCURSOR", "AsyncClientCursor" if is_async else "ClientCursor")
    source = source.replace("ENTERED", "await block.__aenter__()" if is_async else "block.__enter__()")
    worker = start_worker(source_of(source, world))
    left = ["a cursor factory", "a pipeline", "a copy", "a copy and an error", "a block"]
    send(jmsql_factory, "orders", *[text for each in left for text in (each, "nothing")])
    wait_for(lambda: texts(database).count("nothing") == len(left), PATIENCE)
    wait_for(lambda: database.queued() == 2, PATIENCE)  # the dead letters
    assert [text for text in texts(database) if text != "nothing"] == ["a block", "a cursor factory", "a pipeline"]
    errors = dead_letters(database)
    assert "a COPY or another statement was still running" in errors["a copy"]
    assert errors["a copy and an error"] == "RuntimeError: as it should"
    assert worker.stop() == 0
