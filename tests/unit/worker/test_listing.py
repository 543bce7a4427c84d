"""`jmsql worker --list`: what an application listens to, without a database."""

from __future__ import annotations

import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from jmsql import RedeliveryPolicy
from jmsql.cli.application import app
from jmsql.worker.handlers.options import ListenerOptions
from jmsql.worker.supervisor import Supervisor

APPLICATION = """
from contextlib import contextmanager
from dataclasses import dataclass

import jmsql
import pydantic
from jmsql.worker import Application

print("a line of the application's own")


class Client:
    pass


@contextmanager
def around(call):
    yield


app = Application(around=around)


class Order(pydantic.BaseModel):
    number: int


@app.listener("orders", selector="color = 'blue'", timeout=30, reply_to="answers", no_retry_for=ValueError)
def ship(client: Client, order: Order): ...


@app.listener(jmsql.Topic("prices"), subscription="desk", durable=False, transacted=False, concurrency=7)
async def note(message: jmsql.TextMessage): ...


@app.listener("texts", redelivery=jmsql.RedeliveryPolicy(maximum_deliveries=3), keep_result=60)
def print_it(body: str): ...
"""
FURTHER = """
from datetime import timedelta

from jmsql.worker import Application, Rate

app = Application()


@app.periodic("*/5 * * * *", time_zone="Europe/Berlin", body="all")
@app.listener("chunks", chunk=10, rate=Rate(5))
def handle(bodies: list[str]): ...


@app.listener("few", at_most=3)
def one_of_few(body: str): ...


app.schedule("again", timedelta(minutes=1), handle, "x")
app.schedule("elsewhere", "@daily", "others")
"""


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the command where the application is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("JMSQL_URL", "postgresql://nowhere.invalid/shop")
    (tmp_path / "listed_shop.py").write_text(APPLICATION)
    (tmp_path / "further_shop.py").write_text(FURTHER)
    (tmp_path / "broken_shop.py").write_text("1 / 0\n")

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["worker", *arguments])

    yield run
    sys.modules.pop("listed_shop", None)
    sys.modules.pop("further_shop", None)


def test_people_see_a_table(listed: Any) -> None:
    result = listed("listed_shop:app", "--list", "--concurrency", "2")
    assert result.exit_code == 0
    header, *rows = [line.split() for line in result.stdout.splitlines()]
    assert header[:3] == ["Listener", "Destination", "Subscription"]
    ship, note, print_it = rows
    assert ship == [
        *("listed_shop.ship", "queue://orders", "color", "=", "'blue'", "Order", "2", "(--concurrency)", "yes"),
        *("30", "s", "queue://answers", "ValueError"),
    ]
    assert note == ["listed_shop.note", "topic://prices", *["desk", "(not", "durable)", "7", "no"]]
    assert print_it[:5] == ["listed_shop.print_it", "queue://texts", "str", "2", "(--concurrency)"]
    assert print_it[5:] == ["yes", "3", "deliveries,", "then", "to", "DLQ", "60", "s"]


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (RedeliveryPolicy(maximum_deliveries=1), "1 delivery, then to DLQ"),
        (
            RedeliveryPolicy(
                maximum_deliveries=5, delay=2, multiplier=2, maximum_delay=60, dead_letter_queue="orders.dead"
            ),
            "5 deliveries, after 2 s, times 2 up to 60 s, then to orders.dead",
        ),
        (RedeliveryPolicy(delay=0.5, multiplier=3), "no limit of deliveries, after 0.5 s, times 3"),
    ],
)
def test_people_see_the_redelivery_policy(listed: Any, policy: RedeliveryPolicy, text: str, tmp_path: Path) -> None:
    further = tmp_path / "further_shop.py"
    decorator = f'import jmsql\n@app.listener("retried", redelivery=jmsql.{policy!r})\ndef retried(body: str): ...\n'
    further.write_text(FURTHER + decorator)
    header, row = listed("further_shop:app", "--list", "--only", "retried").stdout.splitlines()
    assert header.endswith("Redelivery")
    assert row.endswith(text)


def test_each_option_of_a_listener_is_listed(listed: Any) -> None:
    [document, *_] = json.loads(listed("listed_shop:app", "--list", "--json").stdout)
    assert {field.name for field in fields(ListenerOptions)} - document.keys() == {"on_dead_letter", "chunk_wait"}


def test_a_listeners_own_concurrency_is_told_from_the_workers(listed: Any) -> None:
    listing = json.loads(listed("listed_shop:app", "--list", "--json", "--concurrency", "2").stdout)
    assert [(each["concurrency"], each["own_concurrency"]) for each in listing] == [(2, None), (7, 7), (2, None)]


def test_programs_read_json_with_the_schemas_of_bodies(listed: Any) -> None:
    result = listed("listed_shop:app", "--list", "--json")
    ship, note, print_it = json.loads(result.stdout)
    assert result.stderr == "a line of the application's own\n"
    assert ship == {
        "listener": "listed_shop.ship",
        "destination": "queue://orders",
        "selector": "color = 'blue'",
        "subscription": None,
        "durable": None,
        "concurrency": 1,
        "transacted": True,
        "timeout": 30.0,
        "chunk": None,
        "rate": None,
        "at_most": None,
        "own_concurrency": None,
        "coroutine": False,
        "visibility_timeout": None,
        "redelivery": None,
        "no_retry_for": ["builtins.ValueError"],
        "reply_to": "queue://answers",
        "keep_result": None,
        "schedules": [],
        "body": "Order",
        "body_schema": {
            "properties": {"number": {"title": "Number", "type": "integer"}},
            "required": ["number"],
            "title": "Order",
            "type": "object",
        },
    }
    assert (note["coroutine"], note["durable"], note["concurrency"]) == (True, False, 7)
    assert (note["body"], note["body_schema"]) == (None, None)
    assert (print_it["body"], print_it["body_schema"]) == ("str", None)
    assert print_it["redelivery"]["maximum_deliveries"] == 3


def test_chunks_limits_and_schedules_are_shown_where_there_are_some(listed: Any) -> None:
    header, row, _ = listed("further_shop:app", "--list").stdout.splitlines()
    assert header.split()[-6:] == ["to", "Chunk", "Rate", "At", "most", "Schedules"]
    assert row.endswith("*/5 * * * *; every 60 s")
    assert " 10 " in row
    document, few = json.loads(listed("further_shop:app", "--list", "--json").stdout)
    assert (document["chunk"], few["at_most"], few["schedules"]) == (10, "3", [])
    assert document["schedules"] == [
        {"name": "further_shop.handle", "cron": "*/5 * * * *", "every": None, "time_zone": "Europe/Berlin"},
        {"name": "again", "cron": None, "every": 60.0, "time_zone": None},
    ]


@pytest.mark.parametrize(
    ("options", "destinations"),
    [
        (["--only", "orders"], ["queue://orders"]),
        (["--only", "orders, *xt?"], ["queue://orders", "queue://texts"]),
        (["--only", "texts", "--only", "prices"], ["topic://prices", "queue://texts"]),
        (["--except", "topic://*"], ["queue://orders", "queue://texts"]),
        (["--only", "queue://*", "--except", "texts"], ["queue://orders"]),
    ],
)
def test_the_choice_of_listeners_is_shown(listed: Any, options: list[str], destinations: list[str]) -> None:
    result = listed("listed_shop:app", "--list", "--json", *options)
    assert [each["destination"] for each in json.loads(result.stdout)] == destinations


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            ["--only", "oders"],
            "No listener has the destination --only 'oders'. They have queue://orders, queue://texts",
        ),
        (["--only", "orders,"], "No listener has the destination --only ''."),
        (["--except", "ORDERS"], "No listener has the destination --except 'ORDERS'."),
        (["--only", "orders", "--except", "*"], "--only and --except leave no listener of queue://orders"),
    ],
)
def test_a_choice_of_no_listener_is_refused(listed: Any, options: list[str], reason: str) -> None:
    result = listed("listed_shop:app", "--list", *options)
    assert result.exit_code == 2
    assert reason in result.stderr


def test_an_application_that_cannot_be_imported_is_refused_with_its_traceback(listed: Any) -> None:
    result = listed("broken_shop:app", "--list")
    assert result.exit_code == 2
    assert "broken_shop.py" in result.stderr
    assert result.stderr.endswith("jmsql: broken_shop cannot be imported: ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize("reference", ["jobs", "jobs:", ":app"])
def test_a_reference_without_module_and_name_is_refused_before_a_process_starts(
    listed: Any, reference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Supervisor, "run", lambda _: pytest.fail("a process was started"))
    result = listed(reference)
    assert result.exit_code == 2
    assert f"Expected MODULE:NAME of an application, such as shop.messaging:app, got '{reference}'" in result.stderr


def test_json_alone_is_refused(listed: Any) -> None:
    result = listed("listed_shop:app", "--json")
    assert result.exit_code == 2
    assert "It goes with --list" in result.stderr
