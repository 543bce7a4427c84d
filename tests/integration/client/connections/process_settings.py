"""A process whose application has changed psycopg, SQLAlchemy or Python for all of it, and uses jmsql in every way."""

from __future__ import annotations

import asyncio
import os
import select
import traceback
from collections.abc import Callable
from typing import Any

import psycopg
import sqlalchemy
from psycopg.adapt import Loader
from psycopg.types.json import JsonbDumper, set_json_dumps, set_json_loads
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import StrDumper
from sqlalchemy import event

import jmsql
import jmsql.asyncio as aio
from jmsql.admin import Administration
from jmsql.testing import FAST_TIMINGS
from jmsql.worker import Application
from tests.descriptors import LARGE_DESCRIPTOR, allow_descriptors

QUEUE = jmsql.Queue("orders")


class _Hexadecimal(Loader):
    def load(self, data: Any) -> str:
        return bytes(data).hex()


def adapters() -> None:
    """Other types for lists, texts and numbers."""
    psycopg.adapters.register_dumper(list, JsonbDumper)
    psycopg.adapters.register_dumper(str, StrDumper)
    psycopg.adapters.register_dumper(int, Int8Dumper)
    for name in ("int8", "jsonb"):
        psycopg.adapters.register_loader(name, _Hexadecimal)


def json_functions() -> None:
    """Other functions for JSON."""
    set_json_loads(lambda text: text)
    set_json_dumps(lambda _: '"replaced"')


def _run_statement(connection: Any, *_: object) -> None:
    if connection is not None:  # one that the pool has discarded, when it comes back
        with connection.cursor() as cursor:
            cursor.execute("set time zone 'Asia/Tokyo'")


def listeners_for_pools() -> None:
    """Statements on each new connection, and when the pool hands it out and takes it back."""
    for moment in ("connect", "checkout", "checkin"):
        event.listen(sqlalchemy.Pool, moment, _run_statement)


def listeners_for_engines() -> None:
    """A statement in each transaction, and a comment in each statement."""

    def begin(connection: sqlalchemy.Connection) -> None:
        connection.exec_driver_sql("set local time zone 'Asia/Tokyo'")

    def comment(_: object, __: object, statement: str, parameters: Any, *___: object) -> tuple[str, Any]:
        return f"{statement} /* shop */", parameters

    event.listen(sqlalchemy.Engine, "begin", begin)
    event.listen(sqlalchemy.Engine, "before_cursor_execute", comment, retval=True)


def no_poll() -> None:
    """A system whose `select` has no `poll`."""
    del select.poll


def many_descriptors() -> None:
    """More descriptors than `select.select` takes."""
    allow_descriptors()
    nowhere = os.open(os.devnull, os.O_RDONLY)
    while os.dup(nowhere) < LARGE_DESCRIPTOR:
        pass


SETTINGS: dict[str, Callable[[], None]] = {
    setting.__name__: setting
    for setting in (adapters, json_functions, listeners_for_pools, listeners_for_engines, no_poll, many_descriptors)
}


def use(url: str, setting: str) -> None:
    """Make a setting, and then use jmsql; print how that went."""
    SETTINGS[setting]()
    try:
        _use_threads(url)
        asyncio.run(_use_asyncio(url))
        _use_applications_own(url)
    except Exception:  # noqa: BLE001 - for the test to show
        outcome = traceback.format_exc().replace("\n", " | ")
    else:
        outcome = "all is well"
    print(outcome, flush=True)  # noqa: T201 - for the test to read


def _use_threads(url: str) -> None:
    with jmsql.ConnectionFactory(url, timings=FAST_TIMINGS).create_connection() as connection:
        connection.start()
        for transacted in (True, False, True, False):  # each has its connection from the pool
            with connection.create_session(transacted) as session:
                producer = session.create_producer(QUEUE)
                message = session.create_object_message([1, {"a": "b"}])
                message.properties["color"] = "blue"
                producer.send(message)
                if transacted:
                    session.database.execute(sqlalchemy.text("select 1"))
                    session.commit()
                producer.delivery_delay = 0.1  # which takes maintenance
                producer.send(session.create_map_message())
                if transacted:
                    session.commit()
                consumer = session.create_consumer(QUEUE, "color like 'bl%' or color is null")
                received = [consumer.receive(timeout=60) for _ in range(2)]
                assert received[0] is not None
                assert received[0].get_body(object) == [1, {"a": "b"}]
                assert received[1] is not None
                if transacted:
                    session.commit()
        session = connection.create_session()
        reader = session.create_shared_durable_consumer(jmsql.Topic("news"), "reader")
        session.create_producer(jmsql.Topic("news")).send(session.create_text_message("published"))
        assert reader.receive(timeout=60) is not None
    with Administration(url) as administration:
        assert QUEUE in {found.destination for found in administration.overview()}


async def _use_asyncio(url: str) -> None:
    async with aio.ConnectionFactory(url, timings=FAST_TIMINGS).create_connection() as connection:
        await connection.start()
        for transacted in (True, False, True, False):
            async with connection.create_session(transacted) as session, session.create_producer(QUEUE) as producer:
                await producer.send(session.create_text_message("a"))
                if transacted:
                    await (await session.get_database()).execute(sqlalchemy.text("select 1"))
                    await session.commit()
                async with session.create_consumer(QUEUE) as consumer:
                    assert await consumer.receive(timeout=60) is not None
                if transacted:
                    await session.commit()


def _use_applications_own(url: str) -> None:
    handled: list[Any] = []
    app = Application()

    @app.listener("mail")
    def handle(body: dict[str, Any]) -> None:
        handled.append(body)

    with psycopg.connect(url) as database:
        jmsql.enlist(database).create_producer().send(jmsql.Queue("mail"), {"to": ["a"]})
        app.drain(transaction=database)
    engine = sqlalchemy.create_engine(sqlalchemy.make_url(url).set(drivername="postgresql+psycopg"))
    with engine.begin() as shared:
        jmsql.enlist(shared).create_producer().send(jmsql.Queue("mail"), {"to": ["b"]})
        app.drain(transaction=shared)
    engine.dispose()
    assert handled == [{"to": ["a"]}, {"to": ["b"]}]
