"""Handlers whose annotations say what their bodies are, and messages from Python, SQL and the command."""

from __future__ import annotations

import dataclasses
import json
from decimal import Decimal
from pathlib import Path

import pydantic
import pytest
from typer.testing import CliRunner

from jmsql import ConnectionFactory
from jmsql.cli.application import app
from jmsql.testing import wait_for
from tests.integration.worker.conftest import PATIENCE, StartWorker, WorkerDatabase
from tests.integration.worker.test_handlers import send

HANDLERS = """
import dataclasses, json
from decimal import Decimal
import msgspec, pydantic


class Order(pydantic.BaseModel):
    number: int = pydantic.Field(alias="orderNumber")
    price: Decimal


@dataclasses.dataclass
class Refund:
    number: int
    price: Decimal


class Parcel(msgspec.Struct):
    number: int
    price: Decimal


def note(body):
    with Path("bodies").open("a") as bodies:
        bodies.write(json.dumps([type(body).__name__, body.number, str(body.price)]) + "\\n")


@app.listener("orders", transacted={transacted})
{prefix}def order(body: Order):
    note(body)


@app.listener("others", transacted={transacted})
{prefix}def others(body: Refund):
    note(body)


@app.listener("parcels", transacted={transacted})
{prefix}def parcel(parcel: Parcel | None):
    note(parcel)
"""


class Order(pydantic.BaseModel):
    """An order, as a program that only sends describes it."""

    number: int = pydantic.Field(serialization_alias="orderNumber")
    price: Decimal


@dataclasses.dataclass
class Refund:
    """A refund."""

    number: int
    price: Decimal


@pytest.mark.parametrize(("prefix", "transacted"), [("", True), ("", False), ("async ", True), ("async ", False)])
def test_bodies_come_from_python_sql_and_the_command_without_registration(
    start_worker: StartWorker,
    jmsql_factory: ConnectionFactory,
    jmsql_clean_url: str,
    database: WorkerDatabase,
    prefix: str,
    transacted: bool,
) -> None:
    worker = start_worker(HANDLERS.replace("{prefix}", prefix).replace("{transacted}", str(transacted)))
    large, exact = 2**70 + 1, Decimal("0.12345678901234567890123")
    send(jmsql_factory, "orders", Order(number=large, price=exact))
    send(jmsql_factory, "others", Refund(large, exact), {"number": 4, "price": "1.50"})
    database.rows(f"""select jmsql.send('orders', '{{"orderNumber": 2, "price": {exact}}}'::text)""")
    command = ["send", "parcels", f'{{"number": {large}, "price": {exact}}}']
    assert CliRunner().invoke(app, command, env={"JMSQL_URL": jmsql_clean_url}).exit_code == 0
    send(jmsql_factory, "orders", '{"orderNumber": "none"}')

    def bodies() -> list[list[object]]:
        found = Path(worker.directory, "bodies")
        return sorted(map(json.loads, found.read_text().splitlines())) if found.exists() else []

    wait_for(lambda: len(bodies()) == 5, PATIENCE)
    assert bodies() == [
        ["Order", 2, str(exact)],
        ["Order", large, str(exact)],
        ["Parcel", large, str(exact)],
        ["Refund", 4, "1.50"],
        ["Refund", large, str(exact)],
    ]
    wait_for(lambda: database.rows("select from jmsql.dead_letters"), PATIENCE)
    [(reason, deliveries, error)] = database.rows("select reason, deliveries, error from jmsql.dead_letters")
    assert (reason, deliveries) == ("unreadable", 1)
    assert error == (
        "jmsql.MessageFormatException: The body is not Order: orderNumber: Input should be a valid integer, unable to "
        "parse string as an integer; price: Field required."
    )
    wait_for(lambda: database.queued() == 1, PATIENCE)
    assert worker.stop() == 0
