"""The demonstration, on a small part of its input: its proof holds, and fails when it must."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
from typer.testing import CliRunner

import jmsql as library
from examples.flights import command
from examples.flights.crew import Casualty
from examples.flights.flights import ALL_FLIGHTS, Flight, read_flights
from examples.flights.routing import ALL_OTHERS, DELAYED, SUBSCRIPTIONS
from jmsql.selectors import Selector
from tests.integration.cli.conftest import Outcome

FLIGHTS = 900
OTHERS = library.Queue("untouched")


def run(url: str, *arguments: str) -> Outcome:
    """Run the demo where there is no Java: the pipeline at its end has a test of its own."""
    environment = {"JMSQL_URL": url, "PATH": "", "JAVA_HOME": None}
    result = CliRunner().invoke(command.application, arguments, env=environment, catch_exceptions=False)
    return Outcome(result.exit_code, result.stdout_bytes, result.stderr)


def driver_url(url: str) -> str:
    return sqlalchemy.make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


@pytest.fixture(scope="module")
def database(jmsql_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(driver_url(jmsql_url), autocommit=True) as connection:
        yield connection
        connection.execute("drop schema if exists jmsql_demo cascade; drop table if exists public.precious")


@pytest.fixture(scope="module")
def outcome(jmsql_url: str, database: psycopg.Connection) -> Outcome:
    """A run of the demo, in a database that has other messages and tables."""
    database.execute("create table public.precious as select 1 as number")
    with library.ConnectionFactory(jmsql_url).create_context() as context:
        context.create_producer().send(OTHERS, "precious")
    return run(jmsql_url, "--flights", str(FLIGHTS), "--workers", "2", "--json")


@pytest.fixture
def casualties(outcome: Outcome) -> list[Casualty]:
    """The workers that were killed in the run."""
    return [
        Casualty(**killed | {"killed_at": datetime.fromisoformat(killed["killed_at"])})
        for killed in outcome.document["killed"]
    ]


@pytest.fixture
def sabotaged(
    jmsql_url: str, database: psycopg.Connection, casualties: list[Casualty], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """Runs the end of the demo on the tables of the run before, with a change made to them, and undoes the change."""
    monkeypatch.setattr(command, "prepare", lambda *_, **__: None)
    for name in ("handled", "received"):
        database.execute(f"create table jmsql_demo.kept_{name} as select * from jmsql_demo.{name}")

    def reconcile_after(statement: str, *arguments: str) -> Outcome:
        def change(*_: object) -> list[Casualty]:
            database.execute(statement)
            return casualties

        monkeypatch.setattr(command, "run", change)
        return run(jmsql_url, *arguments)

    yield reconcile_after
    for name in ("handled", "received"):
        database.execute(f"truncate jmsql_demo.{name}")
        database.execute(f"insert into jmsql_demo.{name} select * from jmsql_demo.kept_{name}")
        database.execute(f"drop table jmsql_demo.kept_{name}")


class TestARun:
    def test_every_flight_is_handled_exactly_once(self, outcome: Outcome, database: psycopg.Connection) -> None:
        assert outcome.exit_code == 0
        result = outcome.document
        assert result["reconciled"] is True
        assert (result["flights"], result["handled"], result["left_in_queue"]) == (FLIGHTS, FLIGHTS, 0)
        assert result["discrepancies"] == {}
        stored = database.execute("select flight_id from jmsql_demo.flight order by 1").fetchall()
        handled = database.execute("select flight_id from jmsql_demo.handled order by 1").fetchall()
        assert stored == handled == [(number,) for number in range(1, FLIGHTS + 1)]

    def test_workers_are_killed_that_hold_messages(self, outcome: Outcome, database: psycopg.Connection) -> None:
        at_the_queue, at_a_subscription = outcome.document["killed"]
        assert at_the_queue["table"] == "handled"
        assert at_a_subscription["table"] == "received"
        assert at_a_subscription["worker"].startswith("west coast")
        for killed in (at_the_queue, at_a_subscription):
            assert killed["flight_ids"]
            workers = database.execute(
                f"select distinct worker from jmsql_demo.{killed['table']} where flight_id = any(%s)",
                [killed["flight_ids"]],
            ).fetchall()
            assert (killed["worker"],) not in workers
            assert f"Killed {killed['worker']} (process {killed['process_id']})" in outcome.errors
            with pytest.raises(ProcessLookupError):
                os.kill(killed["process_id"], 0)

    def test_each_subscription_receives_the_messages_of_its_selector(
        self, outcome: Outcome, database: psycopg.Connection
    ) -> None:
        wanted: dict[str, Callable[[Flight], bool]] = {
            "departure board": lambda flight: True,
            "United delays": lambda flight: flight.carrier == "UA" and (flight.departure_delay or 0) > 60,
            "west coast": lambda flight: flight.origin == "JFK" and flight.destination in {"LAX", "SFO"},
            "cancellations": lambda flight: flight.departure_delay is None,
        }
        assert [each["subscription"] for each in outcome.document["subscriptions"]] == list(wanted)
        flights = list(read_flights(FLIGHTS))
        for title, chosen in wanted.items():
            received = database.execute(
                "select flight_id from jmsql_demo.received where subscription = %s order by 1", [title]
            ).fetchall()
            expected = [flight.flight_id for flight in flights if chosen(flight)]
            assert expected, "the input has such flights"
            assert [flight_id for (flight_id,) in received] == expected

    def test_a_shared_subscription_goes_on_without_the_worker_that_was_killed(self, outcome: Outcome) -> None:
        _, killed = outcome.document["killed"]
        workers = {each["subscription"]: each["workers"] for each in outcome.document["subscriptions"]}["west coast"]
        assert sum(count for worker, count in workers.items() if worker != killed["worker"]) >= len(
            killed["flight_ids"]
        )

    def test_a_subscription_receives_messages_published_while_it_was_away(self, outcome: Outcome) -> None:
        assert "All is published. Now comes 'cancellations', which has been away." in outcome.errors

    def test_its_subscriptions_are_left_empty(self, outcome: Outcome, database: psycopg.Connection) -> None:
        assert outcome.exit_code == 0
        left = database.execute(
            "select subscription, ready + claimed from jmsql.subscriptions where topic = 'jmsql_demo.departures'"
        ).fetchall()
        assert sorted(left) == sorted((each.name, 0) for each in SUBSCRIPTIONS)

    def test_messages_are_rolled_back_and_delivered_again(self, outcome: Outcome, database: psycopg.Connection) -> None:
        assert outcome.document["redelivered"] > 0
        attempts = database.execute(
            "select h.delivery_count from jmsql_demo.handled h join jmsql_demo.flight using (flight_id) "
            "where carrier = 'HA'"
        ).fetchall()
        assert attempts
        assert all(count >= 2 for (count,) in attempts)

    def test_the_delay_desk_handles_delayed_flights_alone(self, outcome: Outcome, database: psycopg.Connection) -> None:
        at_desk = database.execute(
            "select flight_id from jmsql_demo.handled where worker = 'delay desk' order by 1"
        ).fetchall()
        delayed = [
            flight.flight_id
            for flight in read_flights(FLIGHTS)
            if flight.carrier == "UA" and flight.departure_delay is not None and flight.departure_delay > 60
        ]
        assert outcome.exit_code == 0
        assert [flight_id for (flight_id,) in at_desk] == delayed

    def test_other_data_are_left_alone(self, outcome: Outcome, jmsql_url: str, database: psycopg.Connection) -> None:
        assert outcome.exit_code == 0
        assert database.execute("select number from public.precious").fetchall() == [(1,)]
        with library.ConnectionFactory(jmsql_url).create_context() as context:
            assert [message.get_body(str) for message in context.create_browser(OTHERS)] == ["precious"]

    def test_without_java_the_pipeline_is_left_out_with_a_sentence(self, outcome: Outcome) -> None:
        assert outcome.exit_code == 0
        left_out = outcome.document["pipeline"]["left_out"]
        assert left_out.startswith("No Java was found. Spark needs Java 17 or newer (Debian: ")
        assert "Spark" not in outcome.errors

    def test_progress_goes_to_standard_error_as_lines(self, outcome: Outcome) -> None:
        assert f"Sent {FLIGHTS}, handled {FLIGHTS}, received by subscriptions " in outcome.errors
        assert "\x1b" not in outcome.errors


class TestReconciliation:
    def test_unchanged_tables_reconcile(self, sabotaged: Any) -> None:
        outcome = sabotaged("select 1")
        assert outcome.exit_code == 0
        command_of_the_console = outcome.text.splitlines()[-1]
        assert re.fullmatch(r"To see its queues in a browser: (\S*/)?jmsql console", command_of_the_console)
        assert (
            "Reconciled: 900 flights, each handled exactly once, and received exactly once by each of 4 subscriptions "
            "whose selector chooses it; nothing is left." in outcome.text
        )
        assert "departure_delay IS NULL" in outcome.text
        assert "United Air Lines" in outcome.text
        assert "Messages per second" in outcome.text
        assert "The flights were not archived, and no delays computed. No Java was found." in outcome.text

    def test_a_missing_row_is_found(self, sabotaged: Any) -> None:
        outcome = sabotaged("delete from jmsql_demo.handled where flight_id in (7, 8)")
        assert outcome.exit_code == 1
        assert "2 flights missing: 7, 8\n" in outcome.text
        assert "\nNOT RECONCILED.\n" in outcome.text

    def test_a_doubled_row_is_found(self, sabotaged: Any) -> None:
        outcome = sabotaged("insert into jmsql_demo.handled select * from jmsql_demo.handled where flight_id = 9")
        assert outcome.exit_code == 1
        assert "1 flight handled more than once: 9\n" in outcome.text

    @pytest.mark.parametrize(
        ("statement", "discrepancies"),
        [
            ("delete from jmsql_demo.handled where flight_id = 7", {"missing": [7]}),
            (
                "insert into jmsql_demo.handled select 1000, null, 'worker 1', 1",
                {"handled, but never stored": [1000]},
            ),
            (
                "update jmsql_demo.handled set departure_delay = 999 where flight_id = 7",
                {"handled with another delay": [7]},
            ),
            (
                "update jmsql_demo.handled set worker = 'delay desk' where flight_id = 7",
                {"handled by the wrong worker": [7]},
            ),
        ],
    )
    def test_programs_read_which_flights(
        self, sabotaged: Any, statement: str, discrepancies: dict[str, list[int]]
    ) -> None:
        outcome = sabotaged(statement, "--json")
        assert outcome.exit_code == 1
        assert outcome.document["reconciled"] is False
        found = {what: ids for what, ids in outcome.document["discrepancies"].items() if not what.startswith("lost")}
        assert found == discrepancies

    @pytest.mark.parametrize(
        ("statement", "kind", "text"),
        [
            (
                "delete from jmsql_demo.received where subscription = 'departure board' and flight_id = 7",
                "missing",
                "1 flight missing in the subscription 'departure board': 7\n",
            ),
            (
                "insert into jmsql_demo.received select 'departure board', 1000, 'departure board'",
                "unexpected",
                "1 flight received from the subscription 'departure board' and not chosen by its selector: 1000\n",
            ),
            (
                """insert into jmsql_demo.received
                   select * from jmsql_demo.received where subscription = 'departure board' and flight_id = 9""",
                "received_twice",
                "1 flight received twice from the subscription 'departure board': 9\n",
            ),
        ],
    )
    def test_missing_and_surplus_messages_of_a_subscription_are_found(
        self, sabotaged: Any, statement: str, kind: str, text: str
    ) -> None:
        outcome = sabotaged(statement)
        assert outcome.exit_code == 1
        assert text in outcome.text
        assert "\nNOT RECONCILED.\n" in outcome.text
        again = sabotaged("select 1", "--json")
        assert again.exit_code == 1
        assert len(again.document["subscriptions"][0][kind]) == 1

    def test_flights_that_nobody_has_taken_over_from_the_dead_are_found(
        self, sabotaged: Any, casualties: list[Casualty]
    ) -> None:
        dead = casualties[1]
        outcome = sabotaged(
            f"update jmsql_demo.received set worker = '{dead.worker}' where subscription = 'west coast'", "--json"
        )
        assert outcome.exit_code == 1
        assert outcome.document["discrepancies"] == {
            f"not taken over from {dead.worker}, which was killed": sorted(dead.flight_ids)
        }

    def test_a_message_that_is_left_in_the_queue_is_found(
        self, sabotaged: Any, jmsql_url: str, database: psycopg.Connection
    ) -> None:
        with library.ConnectionFactory(jmsql_url).create_context() as context:
            context.create_producer().send(library.Queue("jmsql_demo.flights"), "left over")
        outcome = sabotaged("select 1")
        database.execute("delete from jmsql_internal.message where text_body = 'left over'")
        assert outcome.exit_code == 1
        assert "1 message is left in the queue." in outcome.text

    def test_a_message_that_is_left_in_a_subscription_is_found(
        self, sabotaged: Any, jmsql_url: str, database: psycopg.Connection
    ) -> None:
        with library.ConnectionFactory(jmsql_url).create_context() as context:
            context.create_producer().send(library.Topic("jmsql_demo.departures"), "left over")
        outcome = sabotaged("select 1")
        database.execute("delete from jmsql_internal.message where text_body = 'left over'")
        assert outcome.exit_code == 1
        assert "1 message is left in the subscription 'departure board'." in outcome.text


class TestAFreshStart:
    def test_a_schema_of_someone_else_is_refused(self, jmsql_url: str, outcome: Outcome, database: Any) -> None:
        assert outcome.exit_code == 0
        mark = database.execute("select obj_description('jmsql_demo'::regnamespace, 'pg_namespace')").fetchone()[0]
        database.execute("comment on schema jmsql_demo is 'ours'")
        try:
            refused = run(jmsql_url)
        finally:
            database.execute(f"comment on schema jmsql_demo is '{mark}'")
        assert refused.exit_code == 3
        assert "that the demo did not make" in refused.errors
        assert database.execute("select count(*) from jmsql_demo.flight").fetchone() == (FLIGHTS,)

    def test_two_at_once_are_refused(self, jmsql_url: str, outcome: Outcome, database: Any) -> None:
        assert outcome.exit_code == 0
        database.execute("select pg_advisory_lock(hashtext('jmsql demo'))")
        try:
            refused = run(jmsql_url)
        finally:
            database.execute("select pg_advisory_unlock_all()")
        assert refused.exit_code == 3
        assert "Another demo is running" in refused.errors


class TestTheInput:
    def test_flights_are_read(self) -> None:
        first, *_ = flights = list(read_flights(1000))
        assert isinstance(first, Flight)
        assert (first.flight_id, first.carrier, first.flight_number) == (1, "UA", 1545)
        assert (first.origin, first.destination, first.departure_delay) == ("EWR", "IAH", 2)
        assert first.scheduled_departure.isoformat() == "2013-01-01T10:15:00+00:00"
        assert [flight.flight_id for flight in flights] == list(range(1, 1001))
        cancelled = next(flight for flight in flights if flight.departure_delay is None)
        assert cancelled.arrival_delay is None

    def test_the_whole_year_is_there(self) -> None:
        assert sum(1 for _ in read_flights(ALL_FLIGHTS + 1)) == ALL_FLIGHTS

    def test_the_selectors_share_all_flights_out(self) -> None:
        delayed, others = Selector.parse(DELAYED), Selector.parse(ALL_OTHERS)
        assert delayed is not None
        assert others is not None
        for carrier in ("UA", "DL"):
            for delay in (None, -5, 60, 61):
                message = library.MapMessage()
                message.set_string_property("carrier", carrier)
                if delay is not None:
                    message.set_int_property("departure_delay", delay)
                assert delayed.matches(message) is not others.matches(message)


def test_it_imports_public_names_alone() -> None:
    sources = "".join(path.read_text() for path in Path(command.__file__).parent.glob("*.py"))
    imported = re.findall(r"^ *(?:import|from) (jmsql[\w.]*)", sources, re.MULTILINE)
    assert set(imported) == {"jmsql", "jmsql.embedded", "jmsql.spark"}


def test_the_documentation_shows_the_code_as_it_is() -> None:
    root = Path(__file__).parents[2]
    sources = "".join(path.read_text() for path in sorted((root / "examples/flights").glob("*.py")))
    lines = {line.strip() for line in sources.splitlines()}
    blocks = re.findall(r"```python\n(.*?)```", (root / "docs/demo.md").read_text(), re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        assert {line.strip() for line in block.splitlines()} <= lines | {""}
