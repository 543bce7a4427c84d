"""`jmsql schedule`."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import psycopg
import pytest

from tests.integration.cli.conftest import Command


def test_a_schedule_is_made_paused_sent_and_deleted(jmsql: Command) -> None:
    assert jmsql("schedule", "list").text == "There are no schedules.\n"
    body = json.dumps({"kind": "nightly"})
    times = ("--cron", "0 3 * * *", "--time-zone", "Europe/Berlin")
    made = jmsql("schedule", "set", "nightly", "reports", body, *times, "-p", "color=blue", "--no-overlap", "--json")
    assert (made.document["next_at"] is not None, made.document["overlap"]) == (True, False)
    listed = jmsql("schedule", "list").text
    assert re.search(r"nightly +0 3 \* \* \* Europe/Berlin +queue://reports", listed)
    assert jmsql("schedule", "pause", "nightly").text == "Paused nightly.\n"
    assert "paused" in jmsql("schedule", "list").text
    sent = jmsql("schedule", "now", "nightly", "--json").document["message_id"]
    received = jmsql("receive", "reports", "--json").document
    assert (received["message_id"], json.loads(received["body"])) == (sent, {"kind": "nightly"})
    assert received["properties"]["color"] == "blue"
    assert jmsql("schedule", "resume", "nightly").text.startswith("Resumed nightly; its next tick: ")
    assert jmsql("schedule", "set", "fast", "topic://news", "--every", "10s", "--missed", "all").exit_code == 0
    assert {each["name"]: each["every"] for each in jmsql("schedule", "list", "--json").document} == {
        "fast": 10.0,
        "nightly": None,
    }
    assert jmsql("schedule", "delete", "nightly", "--yes").text == "Deleted nightly.\n"
    for command in ("pause", "resume", "now", "explain"):
        assert jmsql("schedule", command, "nightly").exit_code == 3


def test_the_next_ten_ticks_are_explained_in_both_zones(jmsql: Command) -> None:
    explained = jmsql(
        "schedule", "explain", "--cron", "30 2 * * *", "--time-zone", "Europe/Berlin", url="postgresql://no/"
    )
    header, *rows = explained.text.splitlines()
    assert header.split() == ["Europe/Berlin", "UTC"]
    assert len(rows) == 10
    jmsql("schedule", "set", "hourly", "reports", "--cron", "@hourly")
    ticks = [datetime.fromisoformat(each["utc"]) for each in jmsql("schedule", "explain", "hourly", "--json").document]
    assert ticks[0] > datetime.now(UTC) - timedelta(minutes=1)
    assert {after - before for before, after in pairwise(ticks)} == {timedelta(hours=1)}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("set", "nightly", "reports"), "--cron or as --every"),
        (("set", "nightly", "reports", "--cron", "@daily", "--every", "1d"), "--cron or as --every"),
        (("set", "nightly", "reports", "--cron", "at three"), "Cannot read"),
        (("set", "nightly", "reports", "--cron", "@daily", "--time-zone", "Mars/Olympus"), "no time zone"),
        (("set", "nightly", "reports", "--every", "soon"), "is not an interval"),
        (("set", "nightly", "topic://news", "--every", "1h", "--no-overlap"), "needs a queue"),
        (("explain",), "Give the name of a schedule"),
        (("explain", "nightly", "--cron", "@daily"), "Give the name of a schedule"),
    ],
)
def test_an_impossible_schedule_is_an_error_of_usage(jmsql: Command, arguments: tuple[str, ...], reason: str) -> None:
    outcome = jmsql("schedule", *arguments)
    assert outcome.exit_code == 2
    assert reason in " ".join(outcome.errors.replace("│", " ").split())


def test_the_doctor_names_schedules_that_do_not_go_well(jmsql: Command, jmsql_clean_url: str) -> None:
    def found() -> dict[str, str]:
        findings = jmsql("doctor", "--json").document["findings"]
        return {each["health"]: f"{each['says']} {each['advice']}" for each in findings if each["check"] == "schedules"}

    assert "there are none" in found()["ok"]
    for name in ("failing", "late", "gone", "well"):
        jmsql("schedule", "set", name, "reports", "--cron", "@yearly")
    assert "4 schedules" in found()["ok"]
    with psycopg.connect(jmsql_clean_url) as database:
        for name, change in (
            ("failing", "last_error = 'There is no queue.'"),
            ("late", "next_at = now() - interval '3 hours'"),
            ("gone", "declared_at = now() - interval '3 hours'"),
            ("well", "declared_at = now() - interval '6 minutes'"),
        ):
            database.execute(f"update jmsql_internal.schedule set {change} where name = '{name}'".encode())
    assert re.search(r"'late': no client has sent .* 3 hours|'failing' fails: There is no queue", found()["problem"])
    assert re.search(r"'gone': no worker .* 3 hours.*`jmsql schedule delete gone --yes`", found()["note"])
    assert "well" not in str(found())
