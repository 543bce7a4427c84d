"""Costs of a batch with a callback: its messages beside messages of no batch, on 50 handlers."""

from __future__ import annotations

import time
from typing import Any

import psycopg

import jmsql
from benchmarks.database import BenchmarkDatabase, database_on
from benchmarks.measurement import BenchmarkResult, Target, at_least
from benchmarks.setting import Setting
from jmsql import ConnectionFactory
from jmsql.worker import Application, HandlerCall
from jmsql.worker.handlers.handler_groups import HandlersInThreads
from jmsql.worker.settings import HandlerSettings

_AT_A_TIME = 50
_ADDED = 9
_FIRST = 300
"""The rate is taken after so many messages: connections are opened meanwhile."""
_LAST = 100
"""The rate is taken up to so many messages before the end."""


def batch_callback(setting: Setting) -> list[BenchmarkResult]:
    """Handle messages of a batch with a callback, beside messages of none: sent before, or by handlers."""
    messages = setting.effort.handled * 4
    return [
        *_compare(setting, "batch-callback, sent before", ["insert"] * messages, messages, at_least(0.9)),
        *_compare(setting, "batch-callback, sent by handlers", ["add"] * (messages // (_ADDED + 1)), messages, None),
    ]


def _compare(
    setting: Setting, name: str, bodies: list[str], messages: int, target: Target | None
) -> list[BenchmarkResult]:
    rates: dict[bool, list[float]] = {True: [], False: []}
    for number in range(min(setting.effort.rounds, 6)):
        setting.tell(f"round {number}: {name}")
        for is_batch in rates if number % 2 else reversed(rates):
            # A new database each: dead rows of the round before would cost the next one.
            with database_on(setting.database.url) as database:
                rates[is_batch].append(_rate(database, bodies, messages, is_batch=is_batch))
    return [BenchmarkResult(name, "in a batch", "in none", "messages/s", rates[True], rates[False], target)]


def _rate(database: BenchmarkDatabase, bodies: list[str], messages: int, *, is_batch: bool) -> float:
    database.execute("create table handled (number integer)")
    app = Application(ConnectionFactory(database.url))

    @app.listener("orders")
    def handle(body: str, call: HandlerCall, session: jmsql.Session, connection: psycopg.Connection[Any]) -> None:
        connection.execute("insert into handled values (1)")
        if body == "add":
            for _ in range(_ADDED):
                if call.batch is not None:
                    call.batch.send("orders", "insert")
                else:
                    jmsql.send(session, "orders", "insert")

    with database.factory.create_connection() as sending, sending.create_session(transacted=True) as session:
        if is_batch:
            with jmsql.batch(session, "import", on_end="ended") as batch:
                batch.send_many("orders", bodies)
        else:
            for body in bodies:
                jmsql.send(session, "orders", body)
        session.commit()
    database.execute("vacuum (analyze) jmsql_internal.message")
    database.execute("checkpoint")
    group = HandlersInThreads.open(database.factory, app.listeners, HandlerSettings(concurrency=_AT_A_TIME))
    group.start()
    first, began = _wait_for(database, _FIRST)
    last, ended = _wait_for(database, messages - _LAST)
    group.end(30.0).result()
    return (last - first) / (ended - began)


def _wait_for(database: BenchmarkDatabase, number: int) -> tuple[int, float]:
    """Wait until so many messages were handled; return how many, and the time."""
    deadline = time.monotonic() + 120.0
    while (handled := database.count("handled")) < number:
        if time.monotonic() > deadline:
            raise SystemExit(f"{handled} messages of {number} were handled in two minutes.")
        time.sleep(0.05)
    return handled, time.monotonic()
