"""The statistics, each held against what PostgreSQL itself computes of the same history."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet
import pytest
import sqlalchemy
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

import jmsql
from jmsql.cli.application import app
from jmsql.spark import archive as write_archive
from jmsql.spark.statistics import Results, Source, compute_statistics, write_statistics
from jmsql.spark.statistics.reading import read_messages
from jmsql.testing.database import SessionDatabase
from tests.documentation import programs, run
from tests.spark.past import MARKUP, make_past

pytestmark = pytest.mark.timeout(600)

_BODY = " + ".join(f"coalesce(octet_length({each}), 0)" for each in ("text_body", "json_body::text", "bytes_body"))
_SECONDS = "extract(epoch from time_in_queue)::float8"
_DONE = "outcome = 'acknowledged'"
_CONSUMER = "coalesce(client_id, 'connection ' || consumed_by)"
_SHARED = f"{_DONE} and (destination_type = 'queue' or subscription is not null)"
_OF = "subscription_client_id, subscription"


def _percentile(share: float) -> str:
    return f"percentile_cont({share}) within group (order by {_SECONDS})"


EXPECTED = {
    "throughput": f"select {{keys}}, count(*), sum({_BODY})::bigint from past where {_DONE} group by {{keys}}",
    "time_in_queue": f"""
        select {{keys}}, count(*), {_percentile(0.5)}, {_percentile(0.95)}, {_percentile(0.99)}, max({_SECONDS})
        from past where {_DONE} group by {{keys}}""",
    "redeliveries": """
        select {keys}, count(*), count(*) filter (where delivery_count > 1),
               sum(greatest(delivery_count - 1, 0)), max(delivery_count)
        from past group by {keys}""",
    "expiries": "select {keys}, count(*), count(*) filter (where outcome = 'expired'), "
    "count(*) filter (where outcome = 'purged') from past group by {keys}",
    "consumers": f"""
        select destination, {_OF}, {{hour}} {_CONSUMER}, count(*),
               count(*) / sum(count(*)) over (partition by destination, {_OF}, {{hour_}})
        from past where {_SHARED} group by destination, {_OF}, {{hour}} {_CONSUMER}""",
    "consumer_balance": f"""
        select destination, {_OF}, {{hour}} count(*), sum(n), max(n) / sum(n),
               case when count(*) > 1 then max(n) / avg(n) - 1 end
        from (select destination, {_OF}, {{hour}} {_CONSUMER}, count(*) as n from past where {_SHARED}
              group by destination, {_OF}, {{hour}} {_CONSUMER}) as c
        group by {{hour}} destination, {_OF}""",
    "largest_groups": f"""
        select {{keys}}, properties ->> 'JMSXGroupID', count(*), sum({_BODY})::bigint
        from past where {_DONE} and properties ? 'JMSXGroupID' group by {{keys}}, properties ->> 'JMSXGroupID'""",
}
"""What each statistic is, in SQL; `{keys}` is the destination, or the destination and the hour."""

_PAST = """
    with past as (
        select destination_type || '://' || destination as destination,
               date_trunc('hour', acknowledged_at, '{zone}') as hour, destination_type, acknowledged_at, outcome,
               delivery_count, time_in_queue, text_body, json_body, bytes_body, properties, client_id, consumed_by,
               subscription, subscription_client_id
        from jmsql.history where {condition})
    """


@pytest.fixture(scope="module")
def database(_jmsql_database: SessionDatabase) -> Iterator[psycopg.Connection[Any]]:
    """A database with a past."""
    _jmsql_database.clean()
    url = sqlalchemy.make_url(_jmsql_database.url).set(drivername="postgresql")
    with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as connection:
        make_past(jmsql.ConnectionFactory(_jmsql_database.url), connection)
        yield connection


@pytest.fixture(scope="module")
def archive(database: psycopg.Connection[Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of all of it."""
    directory = tmp_path_factory.mktemp("archive")
    assert write_archive(str(directory)).messages > 70
    return directory


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the documentation's program is run."""
    return tmp_path_factory.mktemp("documentation")


@pytest.fixture(scope="module")
def results(spark: SparkSession, archive: Path, directory: Path) -> Results:
    """The statistics of the history and of its archive together, which the documentation's program computes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        [program] = programs("docs/statistics.md")
        found: Results = run(program, {"/srv/archive": str(archive)})["results"]
    return found


def test_properties_say_the_same_as_text_and_as_maps(spark: SparkSession, archive: Path, tmp_path: Path) -> None:
    write_archive(str(tmp_path), properties="map")
    found = [
        sorted(map(str, read_messages(spark, Source(history=False, archive=str(place))).collect()))
        for place in (archive, tmp_path)
    ]
    assert found[0] == found[1]
    assert "group_id='" in str(found)
    assert 'error="KeyError' in str(found)


@pytest.mark.usefixtures("snapshots_end")
def test_destination_that_is_named_twice_is_counted_once(spark: SparkSession) -> None:
    orders = jmsql.Queue("orders")
    once, twice = (read_messages(spark, Source(destinations=[orders] * times)).count() for times in (1, 2))
    assert once == twice > 0


@pytest.fixture
def snapshots_end(database: psycopg.Connection[Any]) -> Iterator[None]:
    """Nobody keeps the moments of the reads any longer than the test takes."""
    yield
    database.execute(
        "select pg_terminate_backend(pid, 10000) from pg_stat_activity "
        "where datname = current_database() and application_name = 'jmsql-spark-keeping-a-snapshot'"
    )


def rows(table: Any) -> list[tuple[Any, ...]]:
    return _sorted([tuple(row.values()) for row in table.to_pylist()])


def expected(
    database: psycopg.Connection[Any], name: str, *, hourly: bool, zone: str = "UTC", condition: str = "true"
) -> list[tuple[Any, ...]]:
    statement = _PAST.format(zone=zone, condition=condition) + EXPECTED[name].format(
        keys="destination, hour" if hourly else "destination",
        hour="hour, " if hourly else "",
        hour_="hour" if hourly else "1",
    )
    return _sorted(database.execute(statement.encode()).fetchall())


def _sorted(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    plain = [
        tuple(value if isinstance(value, str | datetime | None) else float(value) for value in row) for row in found
    ]
    return sorted(plain, key=lambda row: [str(value) for value in row if isinstance(value, str | datetime | None)])


def assert_equal(found: list[tuple[Any, ...]], wanted: list[tuple[Any, ...]]) -> None:
    assert wanted
    assert len(found) == len(wanted)
    for got, want in zip(found, wanted, strict=True):
        for a, b in zip(got, want, strict=True):
            assert a == (pytest.approx(b, rel=1e-9, abs=1e-6) if isinstance(b, float) else b)


@pytest.mark.parametrize("name", EXPECTED)
def test_history_and_archive_together_count_each_message_once(
    results: Results, database: psycopg.Connection[Any], name: str
) -> None:
    assert_equal(rows(results.overall[name]), expected(database, name, hourly=False))
    assert_equal(rows(results.by_hour[name]), expected(database, name, hourly=True, zone=results.time_zone))


def test_dead_letters_tell_their_reasons(results: Results) -> None:
    found = {(row["destination"], row["reason"], row["error"]): row["messages"] for row in results.rows("dead_letters")}
    assert found == {
        ("queue://orders", "maximum deliveries", "KeyError: 'no such kite'"): 2,
        ("queue://orders", "maximum deliveries", "KeyError: 'out of wind'"): 1,
    }
    assert sum(row["messages"] for row in results.hours("dead_letters")) == 3


def test_statistics_are_written_as_parquet_in_place_of_those_before(results: Results, tmp_path: Path) -> None:
    place = tmp_path / "statistics" / "parquet"
    write_statistics(results, str(place))
    (place / "overall" / "stale").mkdir()
    write_statistics(results, place)

    assert sorted(path.name for path in (place / "by_hour").iterdir()) == sorted(results.by_hour)
    assert sorted(path.name for path in (place / "overall").iterdir()) == sorted(results.overall)
    for name, table in results.by_hour.items():
        assert pyarrow.parquet.read_table(place / "by_hour" / name).equals(table)
    assert [path.name for path in place.parent.iterdir()] == ["parquet"]


def test_nothing_makes_empty_statistics(spark: SparkSession, tmp_path: Path) -> None:
    found = compute_statistics(spark, Source(history=False, archive=str(tmp_path)))
    assert found.is_empty
    assert all(table.num_rows == 0 for table in (*found.overall.values(), *found.by_hour.values()))


@pytest.fixture
def command(jmsql_url: str, tmp_path: Path) -> Callable[..., Result]:
    """Runs `jmsql statistics`, with a directory for its output."""

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(
            app, ["statistics", "--output", str(tmp_path / "statistics"), *arguments], env={"JMSQL_URL": jmsql_url}
        )

    return run


@pytest.mark.usefixtures("spark", "snapshots_end")
def test_command_writes_the_report_and_shows_the_tables(
    command: Callable[..., Result], archive: Path, tmp_path: Path
) -> None:
    output = tmp_path / "statistics"
    nothing = command("--destination", "orders", "--until", "2020-01-01")
    assert (nothing.exit_code, nothing.stdout) == (1, "")
    assert nothing.stderr == "There is nothing of that in the history.\n"
    assert not output.exists()

    shown = command("--archive", str(archive), "--destination", "orders", "--time-zone", "Asia/Kolkata")
    assert shown.exit_code == 0, shown.stderr
    assert re.search(r"queue://orders +60 +", shown.stdout)
    assert "KeyError: 'no such kite'" in shown.stdout
    assert f"65 messages, in {output / 'parquet'}." in shown.stdout
    assert (output / "report.html").is_file()
    assert pyarrow.parquet.read_table(output / "parquet" / "overall" / "throughput")["messages"].to_pylist() == [60]


@pytest.mark.usefixtures("spark", "snapshots_end")
def test_hours_are_those_of_the_time_zone_and_a_range_and_destinations_choose(
    command: Callable[..., Result], database: psycopg.Connection[Any], archive: Path
) -> None:
    last = "select max(acknowledged_at) from jmsql.history where outcome = 'acknowledged' and destination <> 'DLQ'"
    [(moment,)] = database.execute(last).fetchall()  # some minutes after the midnight around which they are
    midnight = moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    since, until = midnight - timedelta(minutes=30), midnight + timedelta(minutes=45)
    chosen = ("--destination", "orders", "--destination", f"queue://{MARKUP}")
    range_ = ("--since", since.isoformat(), "--until", until.isoformat())
    zone = ("--time-zone", "Asia/Kolkata")
    found = command("--no-history", "--archive", str(archive), *chosen, *range_, *zone, "--top", "2", "--json")
    document = json.loads(found.stdout)

    # What was refused or is dead has the time of this run, which may lie around that midnight, too.
    others = "destination not in ('prices', 'refused', 'foreign', 'DLQ')"
    condition = f"{others} and acknowledged_at >= '{since}' and acknowledged_at < '{until}'"
    by_hour = Path(document["parquet"], "by_hour")
    for name in ("throughput", "time_in_queue", "consumer_balance"):
        wanted = expected(database, name, hourly=True, zone="Asia/Kolkata", condition=condition)
        assert_equal(rows(pyarrow.parquet.read_table(by_hour / name)), wanted)
    hours = pyarrow.parquet.read_table(by_hour / "throughput")["hour"].to_pylist()
    assert {hour.minute for hour in hours} == {30}

    wanted = expected(database, "expiries", hourly=False, condition=condition)
    assert document["messages"] == sum(row[1] for row in wanted)
    statistics = document["statistics"]
    assert {row["destination"]: row["messages"] for row in statistics["expiries"]} == dict(row[:2] for row in wanted)
    everything = expected(database, "largest_groups", hourly=False, condition=condition)
    groups = [row["messages"] for row in statistics["largest_groups"]]
    assert groups == sorted((row[2] for row in everything), reverse=True)[:2]


def test_program_of_the_documentation_writes_its_report(results: Results, directory: Path) -> None:
    assert results.time_zone == "Europe/Berlin"
    assert (directory / "statistics" / "report.html").is_file()
    assert (directory / "statistics" / "parquet" / "by_hour" / "consumers").is_dir()
