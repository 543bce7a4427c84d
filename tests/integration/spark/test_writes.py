"""Writes of Spark, as the database sees them. The tasks are played by connections of the test."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, LiteralString

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StringType, StructField, StructType
from typer.testing import CliRunner

import jmsql
from jmsql import JMSException
from jmsql.admin import Administration
from jmsql.cli.application import app
from jmsql.spark.options import Options
from jmsql.spark.reading.batch_reader import BatchReader
from jmsql.spark.streaming.queue_stream_reader import StreamReader
from jmsql.spark.writing import commit
from jmsql.spark.writing.commit import Attempt, WriteName, abandon, forget_writes
from jmsql.spark.writing.destinations import create
from jmsql.spark.writing.maintenance import request_maintenance
from jmsql.spark.writing.outgoing import OutgoingMessages
from jmsql.spark.writing.task import TaskMessages
from jmsql.spark.writing.writer import BatchWriter
from jmsql.store.maintenance.maintenance import reap_expired
from jmsql.store.sending.pending_transactions import next_sequence, remove_abandoned
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.testing import wait_for
from jmsql.xa import XAConnectionFactory
from tests.integration.client.server import Server, with_parameters

SCHEMA = pa.schema(
    {
        "destination": pa.string(),
        "text_body": pa.string(),
        "json_body": pa.string(),
        "bytes_body": pa.binary(),
        "properties": pa.map_(pa.string(), pa.string()),
        "priority": pa.int32(),
        "correlation_id": pa.string(),
        "delivery_time": pa.timestamp("us", "UTC"),
        "expires_at": pa.timestamp("us", "UTC"),
    }
)
NAME = WriteName("w", "w", "q")
READ = StructType([StructField("text_body", StringType())])
PAST, FUTURE = datetime(2020, 1, 1, tzinfo=UTC), datetime(2999, 1, 1, tzinfo=UTC)
TEN = [str(number) for number in range(1, 11)]
ROWS = [{"text_body": body} for body in TEN]
LEFT = "select (select count(*) from jmsql_internal.pending_transaction), (select count(*) from jmsql_internal.spark_staging)"  # noqa: E501
STORED = "select count(*) from jmsql_internal.message"

Rows = Sequence[dict[str, Any]]
Write = Callable[..., Attempt]


@pytest.fixture
def connection(jmsql_clean_url: str) -> Iterator[psycopg.Connection]:
    """The driver's connection."""
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def server(connection: psycopg.Connection) -> Server:
    return Server(connection)


def make_at(url: str, destination: jmsql.Destination) -> None:
    with psycopg.connect(url) as connection:
        PsycopgRunner(connection, "jmsql").run(create(destination, wanted=True))


def send(
    task: psycopg.Connection, url: str, *batches: Rows, write_id: str = "w", planned: int | None = None
) -> Attempt:
    """Do what a task does before it commits; rows without a destination go to the queue `orders`."""
    made: list[jmsql.Destination] = []

    def make(destination: jmsql.Destination) -> None:
        made.append(destination)
        make_at(url, destination)

    messages = TaskMessages.open(task, "jmsql", make)
    outgoing = OutgoingMessages(None)
    for rows in batches:
        given = [{"destination": "queue://orders", **row} for row in rows]
        messages.send(outgoing.convert(pa.RecordBatch.from_pylist(given, SCHEMA)))
    assert len(made) == len(set(made))
    return messages.end(write_id, planned)


@pytest.fixture
def write(jmsql_clean_url: str) -> Write:
    """Run a task, which commits."""

    def write(*batches: Rows, write_id: str = "w", planned: int | None = None) -> Attempt:
        with psycopg.connect(jmsql_clean_url) as task:
            return send(task, jmsql_clean_url, *(batches or (ROWS,)), write_id=write_id, planned=planned)

    return write


def decide(
    connection: psycopg.Connection,
    *attempts: Attempt,
    batch: int | None = 0,
    days: float = 1.0,
    idleness: float = 10.0,
    name: WriteName = NAME,
) -> bool:
    with connection.transaction():
        steps = commit.send_once(attempts, name, batch, days=days, idleness=idleness)
        return PsycopgRunner(connection, "jmsql").run(steps)


def clean(connection: psycopg.Connection, limit: int = 100) -> int:
    """Delete what is never sent; return how many steps it took."""
    steps = 0
    while PsycopgRunner(connection, "jmsql").run(remove_abandoned(limit)):
        steps += 1
    return steps


def bodies(server: Server) -> list[str]:
    """What everybody sees."""
    return [body for (body,) in server.rows("select body from jmsql.messages order by queue, sequence")]


def test_messages_of_all_tasks_are_sent_at_one_instant_and_once(
    server: Server, connection: psycopg.Connection, write: Write
) -> None:
    attempts = write(), write()
    assert (server.rows(STORED), bodies(server)) == ([(20,)], [])
    with connection.transaction():
        assert decide(connection, *attempts)
        with psycopg.connect(connection.info.dsn, password=connection.info.password) as other:
            assert other.execute("select count(*) from jmsql.messages").fetchone() == (0,)
    assert bodies(server) == 2 * TEN
    assert not decide(connection, write(), write())
    assert (clean(connection), bodies(server)) == (2, 2 * TEN)
    assert server.rows(LEFT) == [(0, 0)]
    assert server.rows("select sent from jmsql.counters where destination = 'orders'") == [(20,)]


def ask_clients(factory: jmsql.ConnectionFactory, orders: jmsql.Queue) -> Iterator[object]:
    """Receive and browse as JMS has it, and yield what comes."""
    for mode in jmsql.AcknowledgeMode:
        with factory.create_context(session_mode=mode) as context:
            context.set_client_id("auditor")
            yield list(context.create_browser(orders))
            yield list(context.create_browser(orders, "JMSPriority > 5"))
            yield context.create_consumer(orders).receive(0)
            yield context.create_consumer(orders, "JMSPriority > 5 OR JMSXGroupID = 'g'").receive(0)
            yield context.create_durable_consumer(jmsql.Topic("news"), "audit").receive(0)


def ask_in_a_global_transaction(url: str, orders: jmsql.Queue) -> Iterator[object]:
    """Receive in a transaction that could be prepared."""
    with XAConnectionFactory(url).create_xa_context() as context:
        consumer = context.create_consumer(orders)
        context.tpc_begin(context.xid(1, "g", "b"))
        yield consumer.receive(0)
        context.tpc_rollback()


def ask_administrators(administration: Administration, orders: jmsql.Queue, others: jmsql.Queue) -> Iterator[object]:
    """Look, move and delete as an administrator does."""
    yield administration.purge(orders)
    yield administration.purge(orders, "JMSPriority > 5")
    yield administration.move(orders, others)
    yield administration.move(orders, others, "JMSXGroupID = 'g'")
    yield [each for each in administration.queues() if each.ready or each.expired or each.delayed]
    yield [each for each in administration.subscriptions() if each.ready or each.expired]


def ask_commands(url: str, message_ids: Sequence[str]) -> Iterator[object]:
    """Run the commands that look at messages, and yield those that say something of what is hidden."""
    for command in (
        *("browse orders", "browse topic://news --subscription audit --client-id auditor", "receive orders --all"),
        *("purge orders --yes", "move orders others", "retry orders", "dead-letters", "doctor", "queues --json"),
        *("subscriptions --json", "top --once --interval 0.1 --json", "metrics --once", "history list"),
        *(f"show {message_id}" for message_id in message_ids),
    ):
        output = CliRunner().invoke(app, command.split(), env={"JMSQL_URL": url}).output
        assert "Traceback" not in output
        shown = re.findall(r'secret|"(?:ready|expired|oldest\w*)": (?!0\b|null).*|(?:Moved|Deleted) [1-9].*', output)
        shown += re.findall(r"jmsql_(?:queue|subscription)_messages\{.* [1-9].*", output)
        yield [command, *shown] if shown else []


def ask_spark(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Read as a batch, and as a stream, and yield what comes."""
    monkeypatch.setenv("JMSQL_URL", url)
    for target in ({"queue": "orders"}, {"topic": "news", "subscription": "audit", "clientId": "auditor"}):
        batch = BatchReader(Options.read({**target, "partitions": "3", "snapshotTimeout": "0"}), READ)
        yield [row for part in batch.partitions() for rows in batch.read(part) for row in rows.to_pylist()]
        stream = StreamReader(Options.read(target), READ)
        try:
            start = stream.initialOffset()
            end = stream.latestOffset(start, ReadAllAvailable())
            yield list(stream.partitions(start, end))
            backlog = stream.reportLatestOffset()
            yield backlog is None or backlog["backlogMessages"]
        finally:
            stream.stop()


def test_unsent_rows_are_not_seen_counted_moved_or_deleted(
    server: Server,
    connection: psycopg.Connection,
    jmsql_factory: jmsql.ConnectionFactory,
    jmsql_clean_url: str,
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    news = {"destination": "topic://news", "text_body": "secret"}
    with Administration(jmsql_factory) as administration:
        orders, others = administration.create_queue("orders"), administration.create_queue("others")
        with jmsql_factory.create_context() as context:
            context.set_client_id("auditor")
            context.create_durable_consumer(jmsql.Topic("news"), "audit").close()
        attempt = write(
            [
                {"text_body": "secret"},
                {"text_body": "secret group", "properties": [("JMSXGroupID", "g")]},
                {"text_body": "secret, urgent", "priority": 9},
                {"text_body": "secret, expired", "expires_at": PAST},
                {"text_body": "secret, late", "delivery_time": FUTURE},
                news,
            ]
        )
        stored: LiteralString = "select array_agg(m order by m.sequence)::text, count(*) from jmsql_internal.message m"
        before = server.rows(stored)
        may_prepare = server.rows("show max_prepared_transactions") != [("0",)]
        assert before[0][1] == 6
        ids = [name for (name,) in server.rows("select 'ID:' || jms_message_id from jmsql_internal.message")]
        # A client that has the maintenance done lives all the time.
        with jmsql_factory.create_connection():
            for answers in (
                ask_spark(jmsql_clean_url, monkeypatch),
                ask_commands(jmsql_clean_url, ids),
                ask_administrators(administration, orders, others),
                ask_in_a_global_transaction(jmsql_clean_url, orders) if may_prepare else (),
                ask_clients(jmsql_factory, orders),
            ):
                assert [answer for answer in answers if answer] == []
            for function in ("move('orders', 'others')", "purge('orders')", "retry('orders')"):
                assert connection.execute(f"select jmsql.{function}".encode()).fetchall() == [(0,)]
            for (view,) in server.rows("select viewname::text from pg_views where schemaname = 'jmsql'"):
                seen = connection.execute(f"select v::text from jmsql.{view} v".encode()).fetchall()
                assert not [row for row in seen if "secret" in str(row) or any(each in str(row) for each in ids)], view
            runner = PsycopgRunner(connection, "jmsql")
            assert runner.run(reap_expired.bind(limit=100)) == 0
            # Nor does it stand in the way of what else there is.
            with jmsql_factory.create_context() as context:
                context.create_producer().send(orders, "sent")
                assert context.create_consumer(orders).receive_body(str, timeout=60) == "sent"
        assert server.rows(stored) == before

        assert decide(connection, attempt)
        with jmsql_factory.create_context() as context:
            consumer = context.create_consumer(orders)
            received = [consumer.receive_body(str, timeout=60) for _ in range(3)]
            assert received == ["secret, urgent", "secret", "secret group"]
        assert server.rows("select state from jmsql.messages where queue = 'orders' and state <> 'expired'") == [
            ("delayed",)
        ]


def test_messages_are_those_that_a_client_would_have_sent(
    server: Server,
    connection: psycopg.Connection,
    jmsql_clean_url: str,
    jmsql_factory: jmsql.ConnectionFactory,
    write: Write,
) -> None:
    before = server.rows("select jmsql_internal.current_milliseconds()")[0][0]
    first = {"text_body": "two kites \u00e9\0", "properties": [("color", "blue")], "correlation_id": "c\0"}
    attempt = write([first, {"json_body": '{"a": 5000000000}'}], [{"bytes_body": b"\0\1"}, {}])
    after = server.rows("select jmsql_internal.current_milliseconds()")[0][0]
    decide(connection, attempt)
    with jmsql_factory.create_context() as context:
        consumer = context.create_consumer(context.create_queue("orders"))
        text, mapped, binary, plain = (consumer.receive(timeout=60) for _ in range(4))
    assert isinstance(text, jmsql.TextMessage)
    assert (text.text, text.jms_correlation_id) == ("two kites \u00e9\0", "c\0")
    assert text.get_string_property("color") == "blue"
    assert before <= text.jms_timestamp <= after
    assert str(text.jms_message_id).startswith("ID:")
    assert (text.jms_priority, text.jms_delivery_mode) == (4, jmsql.DeliveryMode.PERSISTENT)
    assert isinstance(mapped, jmsql.MapMessage)
    assert mapped.get_long("a") == 5_000_000_000
    assert isinstance(binary, jmsql.BytesMessage)
    assert binary.get_body(bytes) == b"\0\1"
    assert type(plain) is jmsql.Message


def test_queues_priorities_and_the_order_of_rows(
    server: Server, connection: psycopg.Connection, jmsql_factory: jmsql.ConnectionFactory, write: Write
) -> None:
    rows = [{"text_body": str(number), "priority": number % 2 * 9} for number in range(6)]
    attempt = write(rows, [{"destination": "queue://returns", "text_body": "r"}])
    with jmsql_factory.create_context() as context:
        consumer = context.create_consumer(context.create_queue("orders"))
        assert consumer.receive(0) is None
        decide(connection, attempt)
        assert [consumer.receive_body(str, timeout=60) for _ in rows] == ["1", "3", "5", "0", "2", "4"]
    assert server.rows("select queue, body from jmsql.messages") == [("returns", "r")]


def test_groups_of_two_tasks_keep_the_order_of_each(
    connection: psycopg.Connection, jmsql_factory: jmsql.ConnectionFactory, write: Write
) -> None:
    rows = [{**row, "properties": [("JMSXGroupID", "g")]} for row in ROWS]
    decide(connection, write(rows), write(rows))
    with jmsql_factory.create_context() as context:
        consumer = context.create_consumer(context.create_queue("orders"))
        assert [consumer.receive_body(str, timeout=60) for _ in range(20)] == 2 * TEN


def test_topics_and_delayed_messages_are_hidden_too_and_sent_as_by_any_send(
    server: Server, connection: psycopg.Connection, jmsql_factory: jmsql.ConnectionFactory, write: Write
) -> None:
    prices: list[dict[str, Any]] = [{"destination": "topic://prices", **row} for row in ROWS]
    with jmsql_factory.create_context() as context:
        topic = context.create_topic("prices")
        context.create_shared_durable_consumer(topic, "some", "color = 'blue'").close()
        consumer = context.create_shared_durable_consumer(topic, "all")
        later = [{**row, "delivery_time": FUTURE} for row in prices]
        due = [{**row, "delivery_time": PAST} for row in ROWS]
        attempt = write([*prices, *later, *due])
        assert consumer.receive(0) is None
        assert server.rows("select count(*) from jmsql_internal.delayed_message") == [(0,)]
        decide(connection, attempt)
        assert [consumer.receive_body(str, timeout=60) for _ in TEN] == TEN
        late = context.create_consumer(context.create_queue("orders"))
        assert [late.receive_body(str, timeout=60) for _ in TEN] == TEN
        assert (consumer.receive(0), late.receive(0)) == (None, None)
    assert server.rows("select subscription, state, count(*) from jmsql.messages group by 1, 2") == [
        ("all", "delayed", 10)
    ]
    assert server.rows("select kind, destination, sent from jmsql.counters where sent > 0 order by kind") == [
        ("queue", "orders", 10),
        ("topic", "prices", 20),
    ]
    assert server.rows(LEFT) == [(0, 0)]


def test_row_security_of_an_administrator_lets_all_through(
    connection: psycopg.Connection, jmsql_clean_url: str, jmsql_factory: jmsql.ConnectionFactory, server: Server
) -> None:
    server.rows("create role row_administrator")
    try:
        server.rows("select jmsql_internal.permit('row_administrator', array['administer'], null)")
        with psycopg.connect(with_parameters(jmsql_clean_url, options="-crole=row_administrator")) as task:
            attempt = send(task, jmsql_clean_url, [*ROWS, {"text_body": "late", "delivery_time": FUTURE}])
            task.commit()
            assert bodies(server) == []
            with task.transaction():
                PsycopgRunner(task, "jmsql").run(commit.send_once([attempt], WriteName("w", "w"), 0, days=1))
    finally:
        server.rows("drop owned by row_administrator")
        server.rows("delete from jmsql_internal.permission")
        server.rows("drop role row_administrator")
    assert sorted(bodies(server)) == sorted([*TEN, "late"])
    with jmsql_factory.create_context() as context:
        consumer = context.create_consumer(context.create_queue("orders"))
        assert [consumer.receive_body(str, timeout=60) for _ in TEN] == TEN


def test_second_of_two_drivers_waits_for_the_first_and_sends_nothing(
    server: Server, connection: psycopg.Connection, jmsql_clean_url: str, write: Write
) -> None:
    first, second = write(), write()
    with psycopg.connect(jmsql_clean_url, autocommit=True) as other, ThreadPoolExecutor(1) as pool:
        with connection.transaction():
            assert decide(connection, first)
            waiting = pool.submit(decide, other, second)
            server.wait_until_someone_waits()
        assert not waiting.result(60)
    assert (clean(connection), bodies(server)) == (1, TEN)
    assert server.rows(STORED) == [(10,)]


def test_driver_that_is_frozen_in_its_commit_is_overtaken_and_sends_nothing(
    server: Server, connection: psycopg.Connection, jmsql_clean_url: str, write: Write
) -> None:
    first, second = write(), write()
    with psycopg.connect(jmsql_clean_url) as frozen:
        frozen.execute("select")  # begins the transaction
        assert decide(frozen, first, idleness=1.5)
        assert decide(connection, second)  # which waits for the first
        with pytest.raises(psycopg.Error, match="idle-in-transaction timeout"):
            frozen.commit()
    assert (clean(connection), bodies(server)) == (1, TEN)


def test_driver_that_is_killed_in_its_commit_sends_nothing_and_the_next_all(
    server: Server, connection: psycopg.Connection, jmsql_clean_url: str, write: Write
) -> None:
    attempts = write(), write()
    with psycopg.connect(jmsql_clean_url) as killed:
        killed.execute("select")  # begins the transaction
        assert decide(killed, *attempts)
        killed.pgconn.finish()  # with no word, as when its process is killed
    assert bodies(server) == []
    assert decide(connection, write(), write())
    assert (clean(connection), bodies(server)) == (2, 2 * TEN)
    assert server.rows(STORED) == [(20,)]


def test_driver_sends_no_rows_that_are_given_up_or_gone(
    server: Server, connection: psycopg.Connection, write: Write
) -> None:
    attempts = write(), write(ROWS[:5])
    PsycopgRunner(connection, "jmsql").run(abandon(attempts[1:]))
    with pytest.raises(JMSException, match=r"5 of 15 messages .* are gone.*run the write again"):
        decide(connection, *attempts)
    assert clean(connection) == 1
    with pytest.raises(JMSException, match=r"5 of 15 messages"):
        decide(connection, *attempts)
    assert server.rows("select count(*) from jmsql_internal.spark_write") == [(0,)]
    assert (bodies(server), server.rows(STORED)) == ([], [(10,)])


def test_decision_gives_up_all_other_tasks_of_the_same_write(
    server: Server, connection: psycopg.Connection, write: Write
) -> None:
    counted, _slower, of_another = write(), write(), write(write_id="another")
    decide(connection, counted)
    assert clean(connection) == 1
    assert (bodies(server), server.rows(STORED)) == (TEN, [(20,)])
    assert server.rows("select transaction_id::text from jmsql_internal.pending_transaction") == [
        (of_another.transaction_id,)
    ]


def test_restarted_query_gives_up_rows_of_its_former_drivers(
    server: Server, connection: psycopg.Connection, jmsql_clean_url: str, write: Write
) -> None:
    _of_a_dead_driver = write(), write()
    of_another_query = write(write_id="another")
    planned = PsycopgRunner(connection, "jmsql").run(next_sequence)
    with psycopg.connect(jmsql_clean_url) as first:
        begun = send(first, jmsql_clean_url, ROWS, planned=planned)
        attempt = write(planned=planned)  # which does not wait for the first
    assert clean(connection) == 2
    pending = "select transaction_id::text from jmsql_internal.pending_transaction order by 1"
    left = sorted(each.transaction_id for each in (begun, attempt, of_another_query))
    assert server.rows(pending) == [(each,) for each in left]
    assert decide(connection, begun, attempt)
    assert bodies(server) == 2 * TEN


def test_an_abandoned_write_is_deleted_in_steps_and_never_sent_in_part(
    server: Server, connection: psycopg.Connection, write: Write
) -> None:
    attempt = write()
    server.rows("update jmsql_internal.pending_transaction set committed_at = now() - interval '25 hours'")
    driver = PsycopgRunner(connection, "jmsql")
    assert driver.run(remove_abandoned(4))
    assert server.rows(STORED) == [(6,)]
    with pytest.raises(JMSException, match="10 of 10 messages"):
        decide(connection, attempt)
    assert clean(connection, 4) == 2
    assert (server.rows(STORED), server.rows(LEFT)) == ([(0,)], [(0, 0)])


def test_task_that_dies_leaves_nothing(server: Server, jmsql_clean_url: str) -> None:
    task = psycopg.connect(jmsql_clean_url)
    send(task, jmsql_clean_url, [*ROWS, {"destination": "topic://prices", "text_body": "p"}])
    task.close()
    assert (server.rows(STORED), server.rows(LEFT)) == ([(0,)], [(0, 0)])


def test_tasks_that_need_the_same_new_queue_do_not_wait_for_each_other(
    server: Server, connection: psycopg.Connection, jmsql_clean_url: str
) -> None:
    with psycopg.connect(jmsql_clean_url) as first, psycopg.connect(jmsql_clean_url) as second:
        attempts = send(first, jmsql_clean_url, ROWS), send(second, jmsql_clean_url, ROWS)
    decide(connection, *attempts)
    assert len(bodies(server)) == 20


def test_ledger_of_a_stream_keeps_its_last_batches(connection: psycopg.Connection, server: Server) -> None:
    for batch in range(103):
        assert decide(connection, batch=batch)
    assert server.rows("select count(*) from jmsql_internal.spark_write") == [(101,)]
    assert not decide(connection, batch=102)


def test_batch_that_comes_again_with_other_rows_is_refused(
    connection: psycopg.Connection, server: Server, write: Write
) -> None:
    assert decide(connection, write(), batch=7)
    with pytest.raises(JMSException, match=r"batch 7 at .* with 10 messages, and now this has 5.*a new checkpoint"):
        decide(connection, write(ROWS[:5]), batch=7)
    with pytest.raises(JMSException, match=r"has written batch 7 already, and this is batch 6.*a new checkpoint"):
        decide(connection, write(), batch=6)
    assert bodies(server) == TEN
    assert server.rows("select batch_id, messages from jmsql_internal.spark_write") == [(7, 10)]


def test_message_about_a_batch_with_other_rows_says_how_to_take_it_for_written(
    connection: psycopg.Connection, server: Server, write: Write
) -> None:
    assert decide(connection, write(), batch=7)
    for batch, count in ((7, 5), (6, 10)):
        attempt = write(ROWS[:count])
        with pytest.raises(JMSException) as raised:
            decide(connection, attempt, batch=batch)
        server.rows(re.search(r"insert into .*(?=\.)", str(raised.value))[0])  # type: ignore[index]
        assert not decide(connection, attempt, batch=batch)
    assert bodies(server) == TEN


def test_query_with_another_checkpoint_is_refused_under_the_name_of_a_write(
    connection: psycopg.Connection, server: Server, write: Write
) -> None:
    first, second = (WriteName.of_query(query, "etl 'a'") for query in ("q1", "q2"))
    assert decide(connection, write(), batch=0, name=first)
    attempt = write(write_id=second.tasks)
    error = ""
    for batch in (0, 1):
        with pytest.raises(JMSException, match=r"belongs to the query q1\. .* the query q2.* a new name") as raised:
            decide(connection, attempt, batch=batch, name=second)
        error = str(raised.value)
    assert bodies(server) == TEN
    assert decide(connection, attempt, batch=0, name=WriteName.of_query("q2", "etl 2"))
    # Batches that the advice takes for written are not written again; later ones are.
    server.rows(re.search(r"update .*(?=\.$)", error)[0])  # type: ignore[index]
    assert not decide(connection, write(), batch=0, name=second)
    assert decide(connection, write(), batch=1, name=second)
    with pytest.raises(JMSException, match="belongs to the query q2"):
        decide(connection, write(), batch=1, name=first)
    assert bodies(server) == 3 * TEN


def test_advice_about_a_checkpoint_that_was_restored_fits_the_name_of_the_write(
    connection: psycopg.Connection, write: Write
) -> None:
    for write_id, advice in (
        ("etl", "Give option 'writeId' a new name"),
        (None, "Start the query with a new checkpoint"),
    ):
        name = WriteName.of_query("q", write_id)
        assert decide(connection, write(), batch=7, name=name)
        with pytest.raises(JMSException, match=rf"written\. {advice}"):
            decide(connection, write(), batch=6, name=name)


def test_job_that_is_run_again_with_other_rows_is_refused(
    connection: psycopg.Connection, server: Server, write: Write
) -> None:
    def job(rows: Rows) -> bool:
        attempts = [write(rows)]
        with connection.transaction():
            return PsycopgRunner(connection, "jmsql").run(
                commit.send_once(attempts, WriteName("import", "import"), 0, days=None)
            )

    assert job(ROWS)
    assert not job(ROWS)
    with pytest.raises(JMSException, match=r"'import' was done at .* with 10 messages. This one has 3.*another name"):
        job(ROWS[:3])
    assert bodies(server) == TEN


@pytest.mark.parametrize("is_made_again", [False, True])
@pytest.mark.parametrize("batch", [None, 0])
def test_queue_that_is_deleted_between_tasks_fails_the_write(
    connection: psycopg.Connection, server: Server, write: Write, batch: int | None, *, is_made_again: bool
) -> None:
    rows = [*ROWS, {"destination": "queue://others", "text_body": "x"}]
    attempts = [write(rows)]
    server.rows("select jmsql.delete_destination('orders')")
    if is_made_again:
        attempts.append(write(rows))
    with pytest.raises(jmsql.InvalidDestinationException, match=r"queue://orders was deleted while .* run the write"):
        decide(connection, *attempts, batch=batch)
    assert bodies(server) == []
    assert server.rows("select count(*) from jmsql_internal.spark_write") == [(0,)]
    PsycopgRunner(connection, "jmsql").run(abandon(attempts))
    clean(connection)
    assert decide(connection, write(), batch=batch)
    assert bodies(server) == TEN


def test_deletion_of_a_queue_and_the_decision_wait_for_each_other(
    server: Server, jmsql_clean_url: str, write: Write
) -> None:
    delete: LiteralString = "select jmsql.delete_destination('orders')"
    with (
        psycopg.connect(jmsql_clean_url) as first,
        psycopg.connect(jmsql_clean_url, autocommit=True) as second,
        ThreadPoolExecutor(1) as pool,
    ):
        attempt = write()
        first.execute(delete)
        decision = pool.submit(decide, second, attempt)
        server.wait_until_someone_waits()
        first.commit()
        with pytest.raises(jmsql.InvalidDestinationException, match="queue://orders was deleted"):
            decision.result(60)

        attempt = write()
        first.execute("select")  # begins the transaction
        assert decide(first, attempt, batch=1)
        deletion = pool.submit(second.execute, delete)
        server.wait_until_someone_waits()
        first.commit()
        deletion.result(60)


def test_write_without_a_name_leaves_no_row_behind(
    connection: psycopg.Connection, server: Server, write: Write
) -> None:
    assert decide(connection, write(), batch=None)
    assert server.rows("select count(*) from jmsql_internal.spark_write") == [(0,)]


def test_maintenance_deletes_rows_unsent_for_a_day_and_forgets_old_writes(
    server: Server, connection: psycopg.Connection, jmsql_factory: jmsql.ConnectionFactory, write: Write
) -> None:
    assert decide(connection, write(write_id="sent"), batch=1, days=1.0) is True
    server.rows("delete from jmsql_internal.pending_transaction")
    write(write_id="abandoned")
    server.rows("update jmsql_internal.pending_transaction set committed_at = now() - interval '25 hours'")
    write(write_id="fresh")
    server.rows("insert into jmsql_internal.spark_write values ('old', 0, 1, now() - interval '9 days', now())")
    server.rows("insert into jmsql_internal.spark_write values ('kept for ever', 0, 1, now() - interval '9 days')")
    PsycopgRunner(connection, "jmsql").run(request_maintenance())
    with jmsql_factory.create_connection():
        wait_for(lambda: server.rows("select write_id from jmsql_internal.pending_transaction") == [("fresh",)])
    assert server.rows("select write_id from jmsql_internal.spark_write order by 1") == [("kept for ever",), ("w",)]
    PsycopgRunner(connection, "jmsql").run(forget_writes)
    assert server.rows(STORED) == [(20,)]


def test_destination_that_does_not_exist_is_made_only_where_that_is_wanted(
    connection: psycopg.Connection, jmsql_clean_url: str, server: Server, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    monkeypatch.setenv("JMSQL_URL", jmsql_clean_url)
    there = "select count(*) from jmsql.destinations where destination = 'ordesr'"
    for option in ("queue", "topic"):
        BatchWriter(Options.read({option: "ordesr"}))
        with pytest.raises(jmsql.InvalidDestinationException, match=f"no {option} 'ordesr', and its use does not make"):
            BatchWriter(Options.read({option: "ordesr", "automaticCreation": "false"}))
    assert server.rows(there) == [(0,)]
    server.rows("update jmsql_internal.configuration set automatic_creation = false")
    try:
        for kind in ("queue", "topic"):
            with pytest.raises(jmsql.InvalidDestinationException, match="automatic creation is off"):
                BatchWriter(Options.read({kind: "ordesr"}))
            with pytest.raises(jmsql.InvalidDestinationException, match="automatic creation is off"):
                write([{"destination": f"{kind}://ordesr", "text_body": "x"}])
    finally:
        server.rows("update jmsql_internal.configuration set automatic_creation = true")
    for kind in ("queue", "topic"):
        write([{"destination": f"{kind}://ordesr", "text_body": "x"}])
    assert server.rows(there) == [(2,)]


def test_rows_that_are_no_messages_are_sent_with_the_others(
    connection: psycopg.Connection, jmsql_clean_url: str, server: Server
) -> None:
    rows = [{"destination": "queue://orders", "text_body": "a"}, {"destination": "nowhere", "text_body": "b"}]
    converted = OutgoingMessages(None, "queue://bad").convert(pa.RecordBatch.from_pylist(rows, SCHEMA))
    with psycopg.connect(jmsql_clean_url) as task:
        messages = TaskMessages.open(task, "jmsql", lambda destination: make_at(jmsql_clean_url, destination))
        messages.send(converted)
        attempt = messages.end("w")
    assert decide(connection, attempt)
    refusal = "The column 'destination': 'nowhere' is not a destination; write queue://NAME or topic://NAME."
    assert server.rows("select queue, body, properties ->> 'error' from jmsql.messages order by queue desc") == [
        ("orders", "a", None),
        ("bad", '{"destination": "nowhere", "text_body": "b"}', refusal),
    ]
