"""The history goes to Parquet once, and leaves PostgreSQL when it is there. DuckDB reads the files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import psycopg
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import jmsql
from jmsql.cli.application import app
from jmsql.spark import ArchivedDay, archive, archived_files
from tests.documentation import blocks, programs, run
from tests.integration.client.server import Server
from tests.integration.history.conftest import SetClock, database, dequeue, send, set_clock  # noqa: F401 - fixtures
from tests.integration.pooler.pgbouncer import PgBouncer
from tests.spark.archive.lake import assert_archived_once, in_archive, in_history, waiting
from tests.spark.conftest import SECRET

pytestmark = pytest.mark.timeout(600)

NOON = datetime(2030, 3, 10, 12, tzinfo=UTC)
FIRST, SECOND = NOON.date(), NOON.date() + timedelta(days=1)

ORDERS = jmsql.Queue("orders")
PRICES = jmsql.Topic("prices")


@pytest.fixture
def keep(jmsql_factory: jmsql.ConnectionFactory) -> Callable[..., None]:
    """Sends messages to a queue that keeps history, and takes them."""
    with jmsql.admin.Administration(jmsql_factory) as administration:
        administration.create_queue("orders", history=True)
        administration.create_topic("prices", history=True)

    def keep(*bodies: str) -> None:
        send(jmsql_factory, *bodies, destination=ORDERS)
        dequeue(jmsql_factory, ORDERS, len(bodies))

    return keep


def publish(factory: jmsql.ConnectionFactory, body: str) -> None:
    """Publish to two subscriptions, which take it in one transaction."""
    with factory.create_context(session_mode=jmsql.AcknowledgeMode.TRANSACTED) as context:
        consumers = [context.create_shared_durable_consumer(PRICES, name) for name in ("billing", "audit")]
        context.create_producer().send(PRICES, body)
        context.commit()
        assert [consumer.receive_body(str, timeout=60) for consumer in consumers] == [body] * 2
        context.commit()


def test_each_run_adds_what_is_new_and_drops_what_is_safe(
    jmsql_factory: jmsql.ConnectionFactory,
    keep: Callable[..., None],
    server: Server,
    set_clock: SetClock,  # noqa: F811
    tmp_path: Path,
) -> None:
    target = tmp_path / "lake"
    set_clock(NOON)
    keep("a", "b", "c")
    server.rows("analyze jmsql_internal.message_history")  # which tells that nothing has a subscription
    publish(jmsql_factory, "price")
    report = archive(str(target), max_messages_per_batch=2)
    assert (report.target, report.messages) == (str(target), 5)
    first = [("queue://orders", str(FIRST), body) for body in "abc"] + [("topic://prices", str(FIRST), "price")] * 2
    assert in_history(server) == first
    assert_archived_once(target, first)
    subscriptions = in_archive(target, "subscription")
    assert subscriptions == [("audit",), ("billing",), (None,), (None,), (None,)]

    set_clock(NOON + timedelta(days=1))
    keep("d")
    report = archive(str(target), drop=True)
    assert (report.batches, report.messages) == (1, 1)
    # The second day is today.
    assert report.days == (ArchivedDay(FIRST, 5, 5, 0, 0, settled=True, dropped=True),)
    second = ("queue://orders", str(SECOND), "d")
    assert in_history(server) == [second]
    assert_archived_once(target, sorted([*first, second]))

    # A file is lost, and the next day has come. What comes later stays, too.
    set_clock(NOON + timedelta(days=2))
    keep("e")
    set_clock(NOON + timedelta(days=4))
    (lost,) = target.glob(f"*/day={SECOND}/*/*.parquet")
    lost.rename(tmp_path / "lost")
    report = archive(str(target), drop=True)
    reason = "the archive lacks 1 of its messages"
    assert report.days == (ArchivedDay(SECOND, 1, 0, 1, 0, settled=True, kept_because=reason),)
    assert not report.is_safe
    assert len(in_history(server)) == 2

    # It is found, and there twice.
    (tmp_path / "lost").rename(lost)
    copy = lost.with_name("copy.parquet")
    copy.write_bytes(lost.read_bytes())
    planned = archive(str(target), drop=True, dry_run=True).days
    doubled = "the archive has 1 of its messages too often"
    assert [(day.dropped, day.kept_because) for day in planned] == [
        (False, doubled),
        (False, f"{SECOND}, before it, is kept"),
    ]
    report = archive(str(target), drop=True)
    assert [day.kept_because for day in report.days] == [doubled]
    copy.unlink()

    report = archive(str(target), drop=True, keep_days=2)
    assert [(day.day, day.dropped) for day in report.days] == [(SECOND, True)]
    assert in_history(server) == [("queue://orders", str(FIRST + timedelta(days=2)), "e")]
    assert len(in_archive(target)) == 7


def test_command_archives_a_destination_and_its_waiting_messages(
    jmsql_factory: jmsql.ConnectionFactory,
    keep: Callable[..., None],
    server: Server,
    secret_url: str,
    set_clock: SetClock,  # noqa: F811
    tmp_path: Path,
) -> None:
    target = tmp_path / "lake"

    def run(*arguments: str) -> tuple[int, str, str]:
        command = ["archive", str(target), "--destination", "topic://prices", "--destination", "orders", *arguments]
        result = CliRunner().invoke(app, command, env={"JMSQL_URL": secret_url}, catch_exceptions=False)
        return result.exit_code, result.stdout, result.stderr

    set_clock(NOON)
    keep("a")
    publish(jmsql_factory, "price")
    send(jmsql_factory, "waits", destination=ORDERS)
    send(jmsql_factory, "elsewhere", destination=jmsql.Queue("other"))
    set_clock(NOON + timedelta(days=2))
    days = [
        {
            "day": str(FIRST),
            "in_history": 3,
            "in_archive": 0,
            "missing": 3,
            "doubled": 0,
            "settled": True,
            "dropped": True,
            "kept_because": None,
        }
    ]
    code, output, _ = run("--dry-run", "--drop", "--live", "--json")
    document = json.loads(output)
    assert (code, document["messages"], document["live_messages"], document["days"]) == (0, 3, 1, days)
    assert not target.exists()

    code, output, _ = run("--drop", "--live", "--partitions", "2")
    assert code == 0
    assert f"Archived 3 messages in 2 batches to {target}." in output
    assert f"Wrote 1 waiting message to {target}/_live." in output
    assert re.search(rf"{FIRST} +3 +3 +0 +0 +yes", output)
    assert len(in_archive(target)) == 3
    assert waiting(target) == [("queue://orders", "waits")]
    assert in_history(server) == []
    assert server.rows("select count(*) from jmsql_internal.message") == [(2,)]

    dequeue(jmsql_factory, ORDERS)
    code, output, _ = run("--live")
    assert (code, waiting(target), len(in_archive(target))) == (0, [], 4)
    everything = b"".join(file.read_bytes() for file in target.rglob("*") if file.is_file())
    assert SECRET.encode() not in everything

    code, output, errors = run("--schema", "other")
    assert (code, output) == (3, "")
    assert "schema" in errors


def test_command_tells_if_there_can_be_no_history(jmsql_clean_url: str, tmp_path: Path, server: Server) -> None:
    def run() -> str:
        command = ["archive", f"file:{tmp_path}/lake"]
        result = CliRunner().invoke(app, command, env={"JMSQL_URL": jmsql_clean_url}, catch_exceptions=False)
        assert result.exit_code == 0
        return result.stdout

    server.rows("select jmsql.create_queue('orders', '{}')")
    output = run()
    assert f"Archived 0 messages in 0 batches to file://{tmp_path}/lake" in output
    assert "No destination keeps its history: see `jmsql destination set NAME --history`." in output
    server.rows("select jmsql.create_queue('kept', '{\"history\": true}')")
    assert "No destination" not in run()
    assert (tmp_path / "lake").is_dir()


def test_impossible_options_are_refused_in_a_sentence(
    keep: Callable[..., None], jmsql_clean_url: str, tmp_path: Path
) -> None:
    keep("a")
    target = tmp_path / "lake"
    for words, options in (
        ("there is no queue 'nowhere'", {"destinations": ["nowhere"]}),
        ("stored as json or as map, not as 'csv'", {"properties": "csv"}),
        ("partitions is a whole number from 1 on", {"partitions": 0}),
    ):
        with pytest.raises(jmsql.JMSException, match=words) as raised:
            archive(str(target), **options)
        assert "\n" not in str(raised.value)
    with pytest.raises(jmsql.JMSException, match="opening nowhere://lake"):
        archive("nowhere://lake/archive")
    with pytest.raises(jmsql.JMSException, match="holds a password") as raised:
        archive(f"s3://key:{SECRET}@lake/archive")
    assert SECRET not in str(raised.value)
    with pytest.raises(jmsql.JMSException, match="do not belong in its name"):
        archive(f"{tmp_path}/day=*")
    for unusable, words in (("", "has no name"), ("file:lake", "write file:///path, or the path alone")):
        with pytest.raises(jmsql.JMSException, match=words):
            archive(unusable)

    (tmp_path / "else" / "family photos").mkdir(parents=True)
    with pytest.raises(jmsql.IllegalStateException, match="holds something else"):
        archive(str(tmp_path / "else"))

    # An archive that has begun stays what it is, and belongs to one run at a time.
    target = tmp_path / "archive"
    assert archive(str(target), destinations=["orders"]).messages == 1
    with pytest.raises(jmsql.IllegalStateException, match="with destinations queue://orders, not all"):
        archive(str(target))
    with psycopg.connect(jmsql_clean_url, autocommit=True) as other:
        other.execute("select pg_advisory_lock(hashtextextended(%s, 0))", [f"jmsql archive {target}"])
        with pytest.raises(jmsql.IllegalStateException, match="Another run writes"):
            archive(str(target), destinations=["orders"])
        (tmp_path / "link").symlink_to(target)
        for same in (f"file://{target}", f"file://{tmp_path}/link", f"{tmp_path}/link/"):
            with pytest.raises(jmsql.IllegalStateException, match="Another run writes"):
                archive(same, destinations=["orders"])
    (target / "_archive.json").rename(tmp_path / "manifest")
    with pytest.raises(jmsql.IllegalStateException, match="holds something else"):
        archive(str(target), destinations=["orders"])
    assert len(in_archive(target)) == 1


def test_one_run_at_a_time_writes_also_through_a_pooler(
    keep: Callable[..., None],
    jmsql_clean_url: str,
    pooler: PgBouncer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep("a", "b", "c")
    monkeypatch.setenv("JMSQL_URL", pooler.url(jmsql_clean_url))
    target = str(tmp_path / "lake")
    refused = []

    def run_beside(_: str, messages: int) -> None:
        if messages:
            with pytest.raises(jmsql.IllegalStateException, match="Another run writes"):
                archive(target)
            refused.append(messages)

    assert archive(target, max_messages_per_batch=1, progress=run_beside).messages == 3
    assert refused == [1, 2, 3]
    assert archive(target).messages == 0
    pooler.forget(jmsql_clean_url)


def test_tasks_of_spark_write_the_files_of_a_large_batch(
    spark: SparkSession, keep: Callable[..., None], server: Server, tmp_path: Path
) -> None:
    bodies = [f"{number:03}" for number in range(40)]
    keep(*bodies)
    assert archive(str(tmp_path), spark=spark, partitions=2, live=True).messages == 40
    assert_archived_once(tmp_path, in_history(server))
    assert [body for *_, body in in_archive(tmp_path)] == bodies
    assert len([*tmp_path.glob("destination=*/*/*/*.parquet")]) == 2
    assert not list(tmp_path.glob("_new/*"))


def test_files_are_listed_where_they_are_and_what_is_no_archive_is_refused(
    keep: Callable[..., None],
    set_clock: SetClock,  # noqa: F811
    tmp_path: Path,
) -> None:
    target = tmp_path / "lake"
    set_clock(NOON)
    with pytest.raises(jmsql.IllegalStateException, match="not an archive that this version"):
        archived_files(str(target))
    keep("a")
    archive(str(target))
    [file] = archived_files(str(target))
    assert (file.destination, file.day, file.name) == ("queue://orders", FIRST, file.place)
    manifest = target / "_archive.json"
    document = json.loads(manifest.read_text())
    document["change"] = {
        "remove": [file.place],
        "move": [["_new/a.parquet", "destination=b/day=2026-11-20/batch=2/p.parquet"]],
    }
    manifest.write_text(json.dumps(document))
    with pytest.raises(jmsql.IllegalStateException, match="has lost a file"):
        archived_files(str(target))
    (target / "_new").mkdir(exist_ok=True)
    (target / "_new/a.parquet").write_bytes(b"12")
    [moved] = archived_files(target)
    assert (moved.destination, str(moved.day), moved.name, moved.size) == ("b", "2026-11-20", "_new/a.parquet", 2)
    document["layout"] = 3
    manifest.write_text(json.dumps(document))
    with pytest.raises(jmsql.IllegalStateException, match="not an archive that this version"):
        archived_files(str(target))
    for damaged in (b"", b'{"layout": 2, "sch', b"[]", b"\xff\xfe"):
        manifest.write_bytes(damaged)
        for use in (archived_files, archive):
            with pytest.raises(jmsql.IllegalStateException, match="is damaged: it is not a JSON object"):
                use(str(target))


def test_day_that_another_archive_has_yet_to_read_stays_and_a_dry_run_says_so(
    keep: Callable[..., None],
    set_clock: SetClock,  # noqa: F811
    server: Server,
    tmp_path: Path,
) -> None:
    target, given_up = tmp_path / "lake", tmp_path / "given up"
    set_clock(NOON)
    keep("archived twice")
    archive(str(target))
    archive(str(given_up))
    keep("a")
    set_clock(NOON + timedelta(days=1))
    [source] = json.loads((given_up / "_archive.json").read_text())["progress"]
    for dry_run in (True, False, True):
        [day] = archive(str(target), drop=True, dry_run=dry_run).days
        assert not day.dropped
        assert day.kept_because is not None
        assert f"other archives, have not passed it: {source['source']}. " in day.kept_because
    server.rows(f"select jmsql.forget_spark_source('{source['source']}')")
    keep("b")  # which the archive itself has yet to read
    set_clock(NOON + timedelta(days=2))
    for dry_run in (True, False):
        days = archive(str(target), drop=True, dry_run=dry_run).days
        assert [(each.in_history, each.dropped) for each in days] == [(2, True), (1, True)]
    assert in_history(server) == []


def test_destination_whose_directory_no_disk_can_hold_is_refused_before_anything_is_decided(
    jmsql_factory: jmsql.ConnectionFactory, keep: Callable[..., None], tmp_path: Path
) -> None:
    target = tmp_path / "lake"
    keep("a")
    assert archive(str(target)).messages == 1
    long = jmsql.Queue("é" * 120)
    with jmsql.admin.Administration(jmsql_factory) as administration:
        administration.create_queue(long.name, history=True)
    keep("b")
    send(jmsql_factory, "c", destination=long)
    dequeue(jmsql_factory, long)
    for _ in range(2):
        with pytest.raises(jmsql.JMSException, match="no name on a disk may have more than 255 bytes"):
            archive(str(target))
    assert [body for *_, body in in_archive(target)] == ["a"]
    assert json.loads((target / "_archive.json").read_text())["change"] == {"remove": [], "move": []}
    assert archive(str(tmp_path / "other"), destinations=["orders"]).messages == 2


def test_texts_with_nul_are_valid_json_in_the_archive(
    jmsql_factory: jmsql.ConnectionFactory, keep: Callable[..., None], tmp_path: Path
) -> None:
    with jmsql_factory.create_context() as context:
        message = context.create_map_message()
        message.set_string("text", "a\0\\\0")
        message.set_string_property("color", "\0red")
        context.create_producer().send(ORDERS, message)
    dequeue(jmsql_factory, ORDERS)
    archive(str(tmp_path))
    [found] = in_archive(tmp_path, "properties ->> '$.color', json_body ->> '$.text'")
    assert found == ("\0red", "a\0\\\0")


def test_queries_of_the_documentation_run(
    spark: SparkSession,
    jmsql_factory: jmsql.ConnectionFactory,
    keep: Callable[..., None],
    set_clock: SetClock,  # noqa: F811
    tmp_path: Path,
) -> None:
    set_clock(NOON)
    send(jmsql_factory, "waits", destination=jmsql.Queue("other"))
    keep("a", "b")
    archive(str(tmp_path), live=True)
    with duckdb.connect() as duck:
        shown = [
            duck.execute(query.text.replace("/srv/archive", str(tmp_path))).fetchall()
            for query in blocks("docs/archive.md", "sql")
        ]
    assert shown[0] == [("queue://orders", FIRST, 2, 2)]
    assert len(shown) == 3
    reading, listing, archiving = (
        run(program, {"/srv/archive": str(tmp_path)}) for program in programs("docs/archive.md")
    )
    assert reading["history"].count() == 2
    assert listing["file"].place.startswith("destination=queue%3A%2F%2Forders/day=")
    assert archiving["report"].messages == 0
