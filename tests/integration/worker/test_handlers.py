"""What handlers are called with, and what takes effect when."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

import pytest
from typer.testing import CliRunner

from jmsql import ConnectionFactory, Queue, Topic, register_type
from jmsql.cli.application import app
from jmsql.testing import receive_all, wait_for
from tests.integration.worker.conftest import PATIENCE, StartWorker, Worker, WorkerDatabase


def send(factory: ConnectionFactory, queue: str, *bodies: object) -> None:
    with factory.create_context() as context:
        for body in bodies:
            context.create_producer().send(Queue(queue), body)


def texts_in(factory: ConnectionFactory, queue: str) -> list[str | None]:
    with factory.create_context() as context:
        return [message.get_body(str) for message in receive_all(context.create_consumer(Queue(queue)))]


HANDLERS = """
import gc
from dataclasses import dataclass
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncConnection


@jmsql.register_type(name="worker test order")
@dataclass
class Order:
    number: int


class Base(orm.DeclarativeBase):
    pass


class Handled(Base):
    __tablename__ = "handled"
    text: orm.Mapped[str] = orm.mapped_column(primary_key=True)


in_pairs = threading.Barrier(2, timeout=60)
in_threes = threading.Barrier(3, timeout=60)


@app.listener("plain", selector="JMSPriority = 4")
def plain(message, database):
    store(database, message)
    if message.get_int_property("JMSXDeliveryCount") == 1:
        raise RuntimeError("the first attempt fails")


@app.listener(jmsql.Queue("asynchronous"))
async def asynchronous(message: jmsql.TextMessage, database: AsyncConnection) -> None:
    await asyncio.sleep(0)
    await database.execute(insertion(message))


@app.listener("bodies")
def bodies(body: dict, context: jmsql.JMSContext, limit: int = 5):
    assert gc.isenabled()
    context.create_producer().send(jmsql.Queue("answers"), f"{body['number']} of {limit}")


@app.listener("objects")
def objects(order: Order, session):
    session.create_producer(jmsql.Queue("answers")).send(session.create_text_message(f"order {order.number}"))


@app.listener("orm")
def of_orm(text: str, database: orm.Session):
    database.add(Handled(text=text))
    database.flush()
    if text == "undone":
        database.rollback()


@app.listener("alone", transacted=False)
def alone(message):
    if message.get_int_property("JMSXDeliveryCount") == 1:
        raise RuntimeError("the first attempt fails")
    Path(message.get_body(str)).touch()


@app.listener(jmsql.Topic("news"), subscription="desk", selector="JMSPriority > 3")
def news(message, database):
    store(database, message)


@app.listener("nested")
def nested(body: dict, database):
    database.execute(sqlalchemy.text("insert into handled values (:text)"), {"text": body["lines"][0]["name"]})


@app.listener("pairs")
def pairs(message, database):
    in_pairs.wait()
    store(database, message)


@app.listener("threes", concurrency=3)
def threes(message, database):
    in_threes.wait()
    store(database, message)


@app.listener("failing", redelivery=jmsql.RedeliveryPolicy(delay=0.1, multiplier=2.0))
def failing(message):
    with Path("attempts").open("a") as attempts:
        attempts.write(f"{time.monotonic()}\\n")
    raise RuntimeError("it always fails")
"""


def test_handlers_get_the_values_of_their_parameters(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase, jmsql_clean_url: str
) -> None:
    @register_type(name="worker test order")
    @dataclass
    class Order:
        number: int

    worker = start_worker(HANDLERS, "--concurrency", "2")
    worker.wait_until_ready()

    send(jmsql_factory, "plain", "twice")
    send(jmsql_factory, "asynchronous", "async")
    send(jmsql_factory, "orm", "stored", "undone")
    with jmsql_factory.create_context() as context:
        context.create_producer().send(Topic("news"), "published once")
    database.wait_until_handled(4)
    rows = dict(database.handled())
    assert rows == {"twice": 2, "async": 1, "stored": None, "published once": 1}
    assert len(database.handled()) == len(rows), "the rows of a failed attempt are undone"
    failed = r"plain on queue://plain failed in delivery 1 of the message ID:\S+ with RuntimeError: the first attempt"
    assert re.search(failed, worker.log)
    assert len(re.findall("WARNING|ERROR", worker.log)) == len(re.findall("ERROR .* failed in delivery", worker.log))

    send(jmsql_factory, "bodies", {"number": 3})
    wait_for(lambda: texts_in(jmsql_factory, "answers") == ["3 of 5"], PATIENCE)
    send(jmsql_factory, "objects", Order(7))
    wait_for(lambda: texts_in(jmsql_factory, "answers") == ["order 7"], PATIENCE)

    send(jmsql_factory, "alone", "acknowledged")
    wait_for(lambda: (worker.directory / "acknowledged").exists() and database.queued() == 0, PATIENCE)

    send_json_by_the_command_and_by_sql(database, jmsql_clean_url)
    database.wait_until_handled(6)
    assert {"from SQL", "from the command"} <= dict(database.handled()).keys()

    # So many at a time as the command says, or as the listener says: each waits for the others.
    send(jmsql_factory, "pairs", "first of two", "second of two")
    send(jmsql_factory, "threes", "first of three", "second of three", "third of three")
    database.wait_until_handled(11)
    assert [count for text, count in database.handled() if " of t" in text] == [1] * 5

    send(jmsql_factory, "bodies", "a text")
    worker.wait_for_log("rejects the message .*: The body of this TextMessage is no JSON")
    check_that_a_message_that_always_fails_does_not_spin(worker, jmsql_factory)
    assert worker.stop() == 0
    assert database.queued() == 2, "what fails stays"


def send_json_by_the_command_and_by_sql(database: WorkerDatabase, url: str) -> None:
    from_command = '{"lines": [{"name": "from the command"}]}'
    result = CliRunner().invoke(app, ["send", "nested", from_command], env={"JMSQL_URL": url}, catch_exceptions=False)
    assert result.exit_code == 0
    database.rows("""select jmsql.send('nested', '{"lines": [{"name": "from SQL"}]}'::text)""")


def check_that_a_message_that_always_fails_does_not_spin(worker: Worker, factory: ConnectionFactory) -> None:
    send(factory, "failing", "a")
    attempts = worker.directory / "attempts"
    wait_for(lambda: attempts.exists() and len(attempts.read_text().splitlines()) >= 4, 2 * PATIENCE)
    times = [float(line) for line in attempts.read_text().splitlines()]
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert all(pause >= 0.1 * 2**number for number, pause in enumerate(pauses))


LEFT_OPEN = """
@app.listener("orders", concurrency=1)
{prefix}def handle(message, database):
    assert not database.in_nested_transaction()
    {await_}database.begin_nested()
    {await_}database.execute(insertion(message))
"""


@pytest.mark.parametrize(("prefix", "await_"), [("", ""), ("async ", "await ")], ids=["def", "async def"])
def test_a_savepoint_that_a_handler_leaves_open_is_none_for_the_next_message(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase, prefix: str, await_: str
) -> None:
    worker = start_worker(LEFT_OPEN.format(prefix=prefix, await_=await_))
    send(jmsql_factory, "orders", "one", "three", "two")
    database.wait_until_handled(3)
    assert database.handled() == [("one", 1), ("three", 1), ("two", 1)]
    assert worker.stop() == 0
