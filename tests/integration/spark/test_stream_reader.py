"""What Spark does with a streaming read, without Spark: offsets, partitions, and drivers that die in between."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import psycopg
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StringType, StructField, StructType

import jmsql
from jmsql.spark.database import waiting_streams
from jmsql.spark.options import Options
from jmsql.spark.streaming import queue_stream_reader
from jmsql.spark.streaming.queue_stream import SparkStream
from jmsql.spark.streaming.queue_stream_reader import StreamReader
from jmsql.store.receiving.receive import claim_batch
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.testing import wait_for
from tests.background import Background
from tests.integration.client.server import Server
from tests.integration.store.plans import PlannedStatement, sql_of

SCHEMA = StructType([StructField("text_body", StringType())])
ALL = ReadAllAvailable()
Offset = dict[str, Any]


@pytest.fixture
def context(jmsql_factory: jmsql.ConnectionFactory) -> Iterator[jmsql.JMSContext]:
    with jmsql_factory.create_context(session_mode=jmsql.AcknowledgeMode.TRANSACTED) as context:
        context.create_consumer(context.create_queue("orders")).close()
        context.commit()
        yield context


@pytest.fixture(autouse=True)
def url(jmsql_clean_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("JMSQL_URL", jmsql_clean_url)
    return jmsql_clean_url


@contextmanager
def driver(**options: str) -> Iterator[StreamReader]:
    """A driver, which dies at the end of the block: PostgreSQL sees its connections end."""
    reader = StreamReader(Options.read({"queue": "orders", **options}), SCHEMA)
    try:
        yield reader
    finally:
        reader.stop()


def send(context: jmsql.JMSContext, *bodies: str) -> None:
    for body in bodies:
        context.create_producer().send(context.create_queue("orders"), body)
    context.commit()


def read(reader: StreamReader, start: Offset, end: Offset) -> list[str]:
    """What all tasks of a batch return."""
    return [
        body
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for body in batch.column("text_body").to_pylist()
    ]


def receive(context: jmsql.JMSContext, count: int) -> list[str | None]:
    consumer = context.create_consumer(jmsql.Queue("orders"))
    received = [consumer.receive_body(str, timeout=60) for _ in range(count)]
    context.commit()
    return received


def left(server: Server) -> tuple[int, int, int]:
    """How many messages, claims and batches there are."""
    ((messages, claims, batches),) = server.rows(
        "select (select count(*) from jmsql_internal.message), "
        "(select count(*) from jmsql_internal.delivery where claim_id is not null), (select count(*) "
        "from jmsql_internal.spark_batch)"
    )
    return messages, claims, batches


def test_batches_follow_each_other_and_leave_nothing(context: jmsql.JMSContext, server: Server) -> None:
    send(context, "a", "b", "c")
    with driver() as reader:
        start = reader.initialOffset()
        first = reader.latestOffset(start, ReadMaxRows(2))
        assert (first["batch"], read(reader, start, first)) == (1, ["a", "b"])
        second = reader.latestOffset(first, ALL)  # which acknowledges the first
        assert (second["batch"], read(reader, first, second)) == (2, ["c"])
        reader.commit(second)
        assert left(server) == (0, 0, 0)
        assert reader.latestOffset(second, ALL) == second
        assert reader.partitions(second, second) == []


def test_stream_begins_as_one_read_though_spark_asks_twice_where(context: jmsql.JMSContext, server: Server) -> None:
    with driver() as reader:
        end = reader.latestOffset(reader.initialOffset(), ALL)
        assert reader.partitions(reader.initialOffset(), end) == []
    assert server.rows("select count(*) from jmsql_internal.spark_source") == [(1,)]


def test_last_batch_is_acknowledged_by_the_next_look(context: jmsql.JMSContext, server: Server) -> None:
    send(context, "a")
    with driver() as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        assert read(reader, start, end) == ["a"]
        assert reader.latestOffset(end, ALL) == end
        assert left(server) == (0, 0, 0)


def test_stream_hears_of_a_message_that_is_sent_while_it_waits(
    context: jmsql.JMSContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: SimpleQueue[object] = SimpleQueue()
    hear = queue_stream_reader._Driver._hear

    def noticed(driver: queue_stream_reader._Driver, news: None) -> None:
        hear(driver, news)
        heard.put(news)

    monkeypatch.setattr(queue_stream_reader._Driver, "_hear", noticed)
    monkeypatch.setattr(queue_stream_reader, "_POLL", math.inf)
    with driver() as reader:
        start = reader.initialOffset()
        assert reader.latestOffset(start, ALL) == start
        heard.get(timeout=60)  # senders know that it waits
        assert reader.latestOffset(start, ALL) == start
        send(context, "a")
        heard.get(timeout=60)
        assert read(reader, start, reader.latestOffset(start, ALL)) == ["a"]


def test_batch_is_read_as_often_as_asked_also_by_the_next_driver(context: jmsql.JMSContext, server: Server) -> None:
    send(context, *"abcdefg")
    with driver(partitions="3") as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        assert sorted(read(reader, start, end)) == [*"abcdefg"]
    send(context, "h")
    server.rows("delete from jmsql_internal.connection")
    with driver(partitions="2") as reader:
        assert [sorted(read(reader, start, end)) for _ in range(2)] == [[*"abcdefg"]] * 2
        last = reader.latestOffset(end, ALL)
        assert read(reader, end, last) == ["h"]
        reader.commit(last)
    assert left(server) == (0, 0, 0)


def test_batch_that_may_be_unread_goes_back_when_its_driver_dies(
    context: jmsql.JMSContext, server: Server, url: str
) -> None:
    send(context, "a", "b")
    with driver() as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        assert left(server) == (2, 2, 1)
        assert server.rows("select claimed from jmsql.spark_sources") == [(2,)]
    assert receive(context, 1) == ["a"]
    wait_for(lambda: server.rows("select claimed from jmsql.spark_sources") == [(0,)])
    with psycopg.connect(url) as connection:
        assert PsycopgRunner(connection, "jmsql").run(waiting_streams.bind(seconds=-60)) == []
    # Its offset was in the log all the same: it is what is left of it, and stays that.
    with driver() as reader:
        assert read(reader, start, end) in ([], ["b"])
        last = reader.latestOffset(end, ALL)
        rest = read(reader, end, last)
        reader.commit(last)
        assert rest in ([], ["b"])
    assert left(server)[1:] == (0, 0)


def test_frozen_batch_stays_when_its_driver_dies(context: jmsql.JMSContext, server: Server) -> None:
    send(context, "a")
    with driver() as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        reader.partitions(start, end)
    send(context, "b")
    wait_for(lambda: server.rows("select count(*) from jmsql.clients where not connected") == [(0,)], timeout=60)
    assert receive(context, 1) == ["b"]
    with driver() as reader:
        assert read(reader, start, end) == ["a"]


def test_claimed_batch_is_found_again_where_its_offset_was_not_noted(context: jmsql.JMSContext) -> None:
    send(context, "a", "b")
    with driver() as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadMaxRows(1))
        reader.partitions(start, end)
    with driver() as reader:
        assert reader.latestOffset(start, ALL) == end
        assert read(reader, start, end) == ["a"]


def test_later_driver_stops_the_earlier(context: jmsql.JMSContext) -> None:
    send(context, "a")
    with driver() as first, driver() as second:
        start = first.initialOffset()
        end = first.latestOffset(start, ALL)
        assert second.latestOffset(start, ALL) == end
        for refused in (
            lambda: first.partitions(start, end),
            lambda: first.commit(end),
            lambda: first.latestOffset(end, ALL),
        ):
            with pytest.raises(jmsql.IllegalStateException, match="Another driver has taken over"):
                refused()
        assert read(second, start, end) == ["a"]


def test_selector_and_consumers_share_the_queue(context: jmsql.JMSContext) -> None:
    for number in range(4):
        message = context.create_text_message(str(number))
        message.properties["even"] = number % 2 == 0
        context.create_producer().send(context.create_queue("orders"), message)
    context.commit()
    locked = context.create_consumer(jmsql.Queue("orders"), "even").receive_body(str, timeout=60)
    with driver(selector="even") as reader:
        start = reader.initialOffset()
        first = reader.latestOffset(start, ALL)
        assert (locked, read(reader, start, first)) == ("0", ["2"])
        context.rollback()
        wait_for(lambda: reader.latestOffset(first, ALL) != first, timeout=60)
        assert read(reader, first, reader.latestOffset(first, ALL)) == ["0"]


@pytest.mark.parametrize(
    ("options", "limit", "sizes"),
    [
        ({}, ALL, [10]),
        ({}, None, [7, 3]),
        ({"maxMessagesPerTrigger": "4"}, None, [4, 4, 2]),
        ({"maxBytesPerTrigger": "1"}, None, [10]),
        ({"maxMessagesPerTrigger": "4", "maxBytesPerTrigger": "1000000"}, None, [4, 4, 2]),
    ],
)
def test_limits_of_a_batch(
    context: jmsql.JMSContext,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
    limit: ReadLimit | None,
    sizes: list[int],
) -> None:
    send(context, *map(str, range(10)))
    monkeypatch.setattr("jmsql.spark.streaming.stream_reader._MOST_MESSAGES", 7)
    with driver(**options) as reader:
        offset = reader.initialOffset()
        found = []
        while (latest := reader.latestOffset(offset, limit or reader.getDefaultReadLimit())) != offset:
            found.append(len(read(reader, offset, latest)))
            offset = latest
        assert found == sizes


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some messages are many: several connections claim a batch after one that has as many."""
    monkeypatch.setattr("jmsql.spark.streaming.queue_stream._CHUNK", 4)


CLAIMING = "jmsql-spark-claiming"
WIDE = {"maxMessagesPerTrigger": "20", "partitions": "2", "claimConnections": "3"}


def test_large_batches_are_claimed_by_several_connections(
    context: jmsql.JMSContext, server: Server, small_pieces: None, url: str
) -> None:
    server.rows("update jmsql_internal.queue set history = true")
    for priority in (9, 4):
        for number in range(30):
            context.create_producer(priority=priority).send(jmsql.Queue("orders"), f"{9 - priority} {number:02}")
    context.commit()
    ((claimed,),) = server.rows("select sequence from jmsql_internal.message order by sequence offset 25 limit 1")
    with driver(**WIDE) as reader, psycopg.connect(url) as other:
        other.execute("select from jmsql_internal.message where sequence = %s for update", (claimed,))
        offsets = [reader.initialOffset()]
        found = []
        while (latest := reader.latestOffset(offsets[-1], reader.getDefaultReadLimit())) != offsets[-1]:
            found.append(sorted(read(reader, offsets[-1], latest)))
            assert sorted(read(reader, offsets[-1], latest)) == found[-1]
            offsets.append(latest)
        assert server.connections(CLAIMING) == 3
        assert left(server) == (1, 0, 0)
    bodies = [body for each in found for body in each]
    assert sorted(bodies) == [
        f"{place} {number:02}" for place in (0, 5) for number in range(30) if (place, number) != (0, 25)
    ]
    assert found[0] == bodies[:20] == sorted(bodies)[:20]
    assert found[1][:9] == sorted(bodies)[20:29]
    assert server.rows("select count(*), count(distinct client_id) from jmsql.history") == [(59, 1)]


@pytest.mark.parametrize("step", ["claimed", "frozen", "acknowledged"])
def test_driver_that_dies_while_several_connections_work_leaves_a_whole_batch(
    context: jmsql.JMSContext,
    server: Server,
    small_pieces: None,
    step: str,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
) -> None:
    send(context, *(f"{number:02}" for number in range(60)))
    with driver(**WIDE) as reader:
        start = reader.initialOffset()
        first = reader.latestOffset(start, ReadMaxRows(20))
        taken = read(reader, start, first)
        second = first
        if step == "claimed":
            break_after(monkeypatch, "_claim_piece")
            with pytest.raises(RuntimeError, match="the driver breaks"):
                reader.latestOffset(first, ReadMaxRows(20))
            assert left(server) == (40, 0, 0)
        else:
            second = reader.latestOffset(first, ReadMaxRows(20))
            break_after(monkeypatch, "_freeze_piece" if step == "frozen" else "_acknowledge_piece")
            if step == "acknowledged":
                taken += read(reader, first, second)
            with pytest.raises(RuntimeError, match="the driver breaks"):
                reader.partitions(first, second) if step == "frozen" else reader.commit(second)
    monkeypatch.undo()
    monkeypatch.setenv("JMSQL_URL", url)
    with driver(**WIDE) as reader:
        if step == "frozen":
            taken += read(reader, first, second)  # or what is left of it, as of any client that dies
            assert reader.latestOffset(first, ALL) == second
        last = reader.latestOffset(second, ALL)
        taken += read(reader, second, last)
        reader.commit(last)
    assert sorted(taken) == [f"{number:02}" for number in range(60)]
    assert left(server) == (0, 0, 0)


def break_after(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the second and all later pieces of a batch fail."""
    work = getattr(SparkStream, name)
    pieces = itertools.count()

    def break_down(*arguments: Any) -> Any:
        if next(pieces):
            raise RuntimeError("the driver breaks")
        return (yield from work(*arguments))

    monkeypatch.setattr(SparkStream, name, break_down)


def test_connections_that_claim_are_made_again_and_later_drivers_stop_them(
    context: jmsql.JMSContext, server: Server, small_pieces: None
) -> None:
    send(context, *(f"{number:02}" for number in range(60)))
    with driver(**WIDE) as reader, driver(**WIDE) as later:
        start = reader.initialOffset()
        first = reader.latestOffset(start, ReadMaxRows(20))
        second = reader.latestOffset(first, ReadMaxRows(20))
        assert server.terminate(CLAIMING) == 3
        assert read(reader, first, second) == [f"{number:02}" for number in range(20, 40)]
        assert later.latestOffset(second, ReadMaxRows(10))["batch"] == 3
        with pytest.raises(jmsql.IllegalStateException, match="Another driver has taken over"):
            reader.latestOffset(second, ALL)


def test_claims_committed_after_their_connection_was_lost_are_released(
    context: jmsql.JMSContext, server: Server, small_pieces: None, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(context, *(f"{number:02}" for number in range(60)))
    with driver(**WIDE) as reader, psycopg.connect(url) as lost:
        start = reader.initialOffset()
        first = reader.latestOffset(start, ReadMaxRows(20))

        def work_and_be_lost(stream: SparkStream, work: Sequence[Any]) -> None:
            runner = PsycopgRunner(lost, "jmsql")
            for steps in work:
                runner.run(steps)

        with monkeypatch.context() as patch:
            patch.setattr(SparkStream, "_work_beside", work_and_be_lost)
            claiming = Background(lambda: reader.latestOffset(first, ReadMaxRows(20)))
            server.wait_until_someone_waits()
            lost.commit()
            second = claiming.result()
        assert read(reader, first, second) == [f"{number:02}" for number in range(20, 40)]
        assert left(server) == (40, 20, 1)


def test_available_now_leaves_messages_sent_later(context: jmsql.JMSContext, server: Server) -> None:
    send(context, "a")
    with driver() as reader:
        reader.prepareForTriggerAvailableNow()
        send(context, "b")
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        assert read(reader, start, end) == ["a"]
        assert reader.latestOffset(end, ALL) == end
    assert left(server) == (1, 0, 0)


@pytest.mark.parametrize("bound", ["latest", "id", "timestamp"])
def test_new_read_starts_where_it_is_told(context: jmsql.JMSContext, server: Server, bound: str) -> None:
    send(context, "a")
    server.rows("update jmsql_internal.message set jms_timestamp = jms_timestamp - 60000")
    where = "latest"
    if bound != "latest":
        send(context, "b")
        moment = "to_char(sent_at at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"+00:00\"')"
        rows = server.rows(f"select message_id, {moment} from jmsql.messages where body = 'b'")
        where = rows[0][0 if bound == "id" else 1]
    with driver(startingOffsets=where) as reader:
        start = reader.initialOffset()
        if bound == "latest":
            send(context, "b")
        assert read(reader, start, reader.latestOffset(start, ALL)) == ["b"]


def test_first_batch_comes_again_though_the_message_is_gone_that_it_begins_with(
    context: jmsql.JMSContext, server: Server
) -> None:
    send(context, "a", "b")
    [(where,)] = server.rows("select message_id from jmsql.messages where body = 'a'")
    assert context.create_consumer(jmsql.Queue("orders")).receive_body(str, timeout=60) == "a"
    with driver(startingOffsets=where) as reader:
        end = reader.latestOffset(reader.initialOffset(), ALL)
        assert read(reader, reader.initialOffset(), end) == ["b"]
    context.commit()
    with driver(startingOffsets=where) as reader:
        assert read(reader, reader.initialOffset(), end) == ["b"]
        reader.commit(end)
    assert left(server) == (0, 0, 0)

    with driver(startingOffsets=where) as reader, pytest.raises(jmsql.JMSException, match=f"no message {where}"):
        reader.latestOffset(reader.initialOffset(), ALL)


def test_backlog_is_reported(context: jmsql.JMSContext, server: Server) -> None:
    send(context, "a", "b", "c")
    server.rows("update jmsql_internal.message set jms_timestamp = jms_timestamp - 60000")
    with driver() as reader:
        assert reader.reportLatestOffset() is None
        start = reader.initialOffset()
        reader.latestOffset(start, ReadMaxRows(1))
        report = reader.reportLatestOffset()
    assert report is not None
    assert (report["source"], report["backlogMessages"]) == (start["source"], 2)
    assert report["backlogBytes"] > 0
    assert 60 <= report["lagSeconds"] < 3600


def test_connection_that_breaks_is_made_again(context: jmsql.JMSContext, server: Server) -> None:
    send(context, "a", "b")
    with driver() as reader:
        start = reader.initialOffset()
        first = reader.latestOffset(start, ReadMaxRows(1))
        found = read(reader, start, first)
        assert server.terminate("jmsql-spark-streaming") == 1
        second = reader.latestOffset(first, ALL)
        found += read(reader, first, second)
        assert server.terminate("jmsql-spark-streaming") == 1
        reader.commit(second)
    assert found == ["a", "b"]
    assert left(server) == (0, 0, 0)


def test_acknowledged_messages_are_counted(context: jmsql.JMSContext, server: Server) -> None:
    send(context, "a", "b", "c")
    context.create_consumer(jmsql.Queue("orders")).receive(60)
    context.rollback()
    server.rows("update jmsql_internal.message set jms_timestamp = jms_timestamp - 60000 returning 1")
    with driver() as reader:
        start = reader.initialOffset()
        first = reader.latestOffset(start, ReadMaxRows(2))
        reader.partitions(start, first)
        second = reader.latestOffset(first, ALL)
        reader.partitions(first, second)
        reader.commit(second)
        reader.commit(second)
    counted = "select acknowledged, redelivered, waited from jmsql_internal.destination_counters where acknowledged > 0"
    [(acknowledged, redelivered, waited)] = server.rows(counted)
    assert (acknowledged, redelivered) == (3, 1)
    assert 180_000_000 <= waited < 3_600_000_000


def test_history_is_kept(context: jmsql.JMSContext, server: Server) -> None:
    send(context, "a")
    server.rows("update jmsql_internal.queue set history = true")
    with driver() as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        reader.partitions(start, end)
        reader.commit(end)
        (connection_id,) = server.rows("select connection_id from jmsql.clients where client_id like 'spark-%%'")
    assert server.rows("select body, outcome, delivery_count, client_id, consumed_by from jmsql.history") == [
        ("a", "acknowledged", 1, f"spark-{start['source']}", *connection_id)
    ]


def test_messages_that_vanish_are_told_unless_that_is_allowed(context: jmsql.JMSContext, server: Server) -> None:
    send(context, "a", "b")
    with driver() as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        (partition,) = reader.partitions(start, end)
        server.rows("delete from jmsql_internal.message where text_body = 'a'")
        with pytest.raises(jmsql.JMSException, match="1 messages of the batch are gone"):
            list(reader.read(partition))
        server.rows(
            "delete from jmsql_internal.delivery where sequence = (select min(sequence) from jmsql_internal.delivery)"
        )
        with pytest.raises(jmsql.JMSException, match=r"1 messages of batch 1 are gone.*failOnDataLoss"):
            reader.partitions(start, end)
        with pytest.raises(jmsql.JMSException, match=r"Batch 7 is in the checkpoint and not in the database"):
            reader.partitions(end, {**end, "batch": 7})
    with driver(failOnDataLoss="false") as reader:
        assert read(reader, start, end) == ["b"]
        assert reader.partitions(end, {**end, "batch": 7}) == []


def test_checkpoint_that_contradicts_the_database_is_refused_unless_that_is_allowed(context: jmsql.JMSContext) -> None:
    send(context, "a", "b")
    with driver() as reader:
        start = reader.initialOffset()
        first = reader.latestOffset(start, ReadMaxRows(1))
        reader.commit(first)
        beyond, unknown = {**first, "batch": 3}, {"source": "00000000-0000-0000-0000-000000000000", "batch": 3}
        for offset, words in (
            (start, "The checkpoint is at batch 0, but batch 1 is acknowledged"),
            (beyond, "The checkpoint is at batch 3, beyond batch 1"),
            (unknown, "which the database does not know"),
        ):
            with driver() as other, pytest.raises(jmsql.JMSException, match=f"{words}.*'failOnDataLoss' to false"):
                other.latestOffset(offset, ALL)
    # Each goes on with the messages that are left, in batches of its own.
    for offset, batch in ((start, 2), (beyond, 4), (unknown, 4)):
        with driver(failOnDataLoss="false") as reader:
            end = reader.latestOffset(offset, ALL)
            assert (end, read(reader, offset, end)) == ({**offset, "batch": batch}, ["b"])
            reader.commit(end)
            assert reader.latestOffset(end, ALL) == end
            send(context, "b")


def test_checkpoint_of_another_queue_is_refused_and_its_driver_goes_on(
    context: jmsql.JMSContext, administration: jmsql.admin.Administration
) -> None:
    administration.create_queue("bills")
    send(context, "a")
    with driver() as reader, driver(queue="bills") as other:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        for refused in (lambda: other.latestOffset(start, ALL), lambda: other.partitions(start, end)):
            with pytest.raises(jmsql.JMSException, match="a stream of another queue or subscription than the options"):
                refused()
        assert read(reader, start, end) == ["a"]
        reader.commit(end)


def test_deleted_queue_ends_its_stream_also_when_another_has_its_name(
    context: jmsql.JMSContext, administration: jmsql.admin.Administration
) -> None:
    with driver() as reader, driver() as next_one:
        start = reader.initialOffset()
        assert reader.latestOffset(start, ALL) == start
        administration.delete(jmsql.Queue("orders"), force=True)
        administration.create_queue("orders")
        with pytest.raises(jmsql.InvalidDestinationException, match="was deleted"):
            wait_for(lambda: reader.latestOffset(start, ALL) != start)
        with pytest.raises(jmsql.JMSException, match="was deleted"):
            next_one.latestOffset(start, ALL)


def test_deleted_subscription_ends_its_stream(
    context: jmsql.JMSContext, administration: jmsql.admin.Administration
) -> None:
    topic = jmsql.Topic("prices")
    administration.create_topic("prices")
    administration.subscribe(topic, "lake", shared=True)
    options = Options.read({"topic": "prices", "subscription": "lake"})
    reader = StreamReader(options, SCHEMA)
    try:
        start = reader.initialOffset()
        assert reader.latestOffset(start, ALL) == start
        administration.delete(topic, force=True)
        with pytest.raises(jmsql.InvalidDestinationException, match="was deleted"):
            wait_for(lambda: reader.latestOffset(start, ALL) != start)
    finally:
        reader.stop()


def test_checkpoint_of_the_history_is_refused(context: jmsql.JMSContext) -> None:
    of_history = {"source": "00000000-0000-0000-0000-000000000000", "transaction": 1, "sequence": 2}
    later = {**of_history, "sequence": 3, "first": [1, 2], "messages": 1}
    with driver() as reader:
        for refused in (
            lambda: reader.latestOffset(of_history, ALL),
            lambda: reader.partitions(of_history, later),
            lambda: reader.commit(of_history),
        ):
            with pytest.raises(jmsql.JMSException, match="a stream of the history"):
                refused()


def test_forgotten_read_releases_its_messages(context: jmsql.JMSContext, server: Server) -> None:
    send(context, "a")
    with driver() as reader:
        start = reader.initialOffset()
        reader.partitions(start, reader.latestOffset(start, ALL))
    assert server.rows("select queue, claimed from jmsql.spark_sources") == [("orders", 1)]
    assert server.rows("select jmsql.forget_spark_source(%s::uuid)", start["source"]) == [(1,)]
    assert receive(context, 1) == ["a"]
    assert server.rows("select count(*) from jmsql.spark_sources") == [(0,)]


def test_reads_without_messages_are_forgotten_when_their_driver_does_not_return(
    context: jmsql.JMSContext, server: Server
) -> None:
    send(context, "a")

    def begin() -> Offset:
        with driver() as reader:
            return reader.initialOffset()

    def known() -> set[str]:
        return {str(source) for (source,) in server.rows("select source_id from jmsql.spark_sources")}

    with driver() as reader:
        holding = reader.initialOffset()
        reader.partitions(holding, reader.latestOffset(holding, ALL))
    with driver() as reader:
        opened = reader.initialOffset()
        assert reader.latestOffset(opened, ALL) == opened
    noted = begin()
    server.rows("update jmsql_internal.spark_source set used_at = now() - interval '2 days'")
    new = begin()
    assert known() == {read["source"] for read in (holding, opened, new)}
    with driver() as reader, pytest.raises(jmsql.InvalidDestinationException, match="does not know"):
        reader.latestOffset(noted, ALL)
    server.rows("update jmsql_internal.spark_source set used_at = now() - interval '401 days'")
    new = begin()
    assert known() == {read["source"] for read in (holding, new)}


def test_subscription_is_streamed_if_it_is_durable(context: jmsql.JMSContext, server: Server) -> None:
    prices = context.create_topic("prices")
    context.create_shared_durable_consumer(prices, "audit").close()
    context.create_shared_consumer(prices, "passing")
    context.create_producer().send(prices, "a")
    context.commit()
    schema = StructType([StructField("destination", StringType())])
    reader = StreamReader(Options.read({"topic": "prices", "subscription": "audit"}), schema)
    start = reader.initialOffset()
    (partition,) = reader.partitions(start, reader.latestOffset(start, ALL))
    assert [row for batch in reader.read(partition) for row in batch.to_pylist()] == [{"destination": "topic://prices"}]
    reader.stop()

    passing = StreamReader(Options.read({"topic": "prices", "subscription": "passing"}), schema)
    with pytest.raises(jmsql.JMSException, match="Option 'subscription': 'passing' is not durable"):
        passing.initialOffset()


@pytest.fixture
def subscriber(jmsql_factory: jmsql.ConnectionFactory) -> Iterator[jmsql.JMSContext]:
    """A client with the durable subscription `audit` to `prices`, which is not shared."""
    factory = jmsql.ConnectionFactory(jmsql_factory.url, client_id="office")
    with factory.create_context() as context:
        context.create_durable_consumer(context.create_topic("prices"), "audit").close()
        yield context


def publish(context: jmsql.JMSContext, *bodies: str) -> None:
    for body in bodies:
        context.create_producer().send(context.create_topic("prices"), body)


AUDIT = {"topic": "prices", "subscription": "audit", "clientId": "office"}


@contextmanager
def audit(**options: str) -> Iterator[StreamReader]:
    reader = StreamReader(Options.read({**AUDIT, **options}), SCHEMA)
    try:
        yield reader
    finally:
        reader.stop()


def test_durable_subscription_is_streamed_in_the_order_of_its_priorities(
    subscriber: jmsql.JMSContext, server: Server
) -> None:
    server.rows("select jmsql.alter_destination('topic://prices', '{\"history\": true}')")
    publish(subscriber, "a", "b")
    subscriber.create_producer(priority=9).send(subscriber.create_topic("prices"), "urgent")
    with audit() as reader:
        start = reader.initialOffset()
        first = reader.latestOffset(start, ReadMaxRows(2))
        assert read(reader, start, first) == ["urgent", "a"]
        last = reader.latestOffset(first, ALL)
        assert read(reader, first, last) == ["b"]
        reader.commit(last)
        assert left(server) == (0, 0, 0)
    assert server.rows("select body, subscription from jmsql.history order by sequence") == [
        ("a", "audit"),
        ("b", "audit"),
        ("urgent", "audit"),
    ]


def test_stream_is_the_one_active_consumer_of_a_subscription_that_is_not_shared(
    subscriber: jmsql.JMSContext, server: Server
) -> None:
    prices = subscriber.create_topic("prices")
    publish(subscriber, "a", "b")
    with audit() as reader:
        start = reader.initialOffset()
        consumer = subscriber.create_durable_consumer(prices, "audit")
        with pytest.raises(jmsql.IllegalStateException, match="'audit' has an active consumer"):
            reader.latestOffset(start, ALL)
        consumer.close()
        end = reader.latestOffset(start, ReadMaxRows(1))
        assert read(reader, start, end) == ["a"]
        for refused in (
            lambda: subscriber.create_durable_consumer(prices, "audit"),
            lambda: subscriber.unsubscribe("audit"),
        ):
            with pytest.raises(jmsql.IllegalStateException, match="active consumer"):
                refused()
        with audit() as second, pytest.raises(jmsql.IllegalStateException, match="active consumer"):
            second.latestOffset(second.initialOffset(), ALL)
        reader.commit(end)
    wait_for(lambda: server.rows("select consumers from jmsql.subscriptions") == [(0,)])
    assert subscriber.create_durable_consumer(prices, "audit").receive_body(str, timeout=60) == "b"


def test_stream_stays_the_active_consumer_when_its_connection_was_lost(
    subscriber: jmsql.JMSContext, server: Server
) -> None:
    publish(subscriber, "a")
    with audit() as reader:
        start = reader.initialOffset()
        first = reader.latestOffset(start, ALL)
        ((former, _),) = server.rows(
            "select s.connection_id, pg_terminate_backend(c.server_process_id, 10000) from jmsql_internal.subscriber s "
            "join jmsql_internal.connection c using (connection_id)"
        )

        def is_attached_again() -> bool:
            assert read(reader, start, first) == ["a"]
            return server.rows(
                "select connection_id <> %s and jmsql_internal.is_connected(connection_id) "
                "from jmsql_internal.subscriber",
                former,
            ) == [(True,)]

        wait_for(is_attached_again, timeout=60)
        with pytest.raises(jmsql.IllegalStateException, match="active consumer"):
            subscriber.create_durable_consumer(subscriber.create_topic("prices"), "audit")


def test_claiming_compares_no_message_with_all_others(url: str, server: Server) -> None:
    """Whatever PostgreSQL expects of tables that it has not analyzed."""
    server.rows("select jmsql.create_queue('orders')")
    ((queue_id,),) = server.rows("select queue_id from jmsql_internal.queue where name = 'orders'")
    server.rows(
        "insert into jmsql_internal.message (queue_id, inverse_priority, jms_delivery_mode, message_type) "
        "select %s, 5, 2, 'Message' from generate_series(1, 2000)",
        queue_id,
    )
    claim = claim_batch(None)
    with psycopg.connect(url, autocommit=True) as connection:
        plan = PlannedStatement(connection, "claim", sql_of(claim, "jmsql")).run(
            {
                **claim.parameters,
                "queue_id": queue_id,
                "lowest": [0] * 10,
                "limit": 2000,
                "first_sequence": 0,
                "last_sequence": 2**63 - 1,
                "first_timestamp": 0,
                "claim_id": 1,
                "connection_id": 1,
            }
        )
    assert plan.most_rows < 10_000
