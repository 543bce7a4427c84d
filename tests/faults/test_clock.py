"""The clock jumps, on the server or on a client: messages expire by the server's."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from jmsql import AcknowledgeMode, Connection, ConnectionFactory, Message, Queue, Topic
from jmsql.admin import Administration
from jmsql.testing import FAST_TIMINGS, receive_all, wait_for
from tests.background import Background
from tests.clocks import HOUR, require_servers_time
from tests.faults.clock import Clock
from tests.faults.faulty_server import FaultyServer, faulty_server
from tests.texts import receive, receive_texts, send_texts

ROOT = Path(__file__).parents[2]
QUEUE = Queue("orders")
DAY = 24 * HOUR
PATIENCE = 60.0


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    if not Clock.can_be_set():
        pytest.skip("libfaketime is not installed (Debian: apt-get install libfaketime)")
    for directory in (tmp_path, *tmp_path.parents):
        if directory == Path(tempfile.gettempdir()):
            break
        directory.chmod(0o711)  # for the server's account
    return Clock(tmp_path / "clock")


@pytest.fixture
def server(clock: Clock) -> Iterator[FaultyServer]:
    """A server that asks the clock."""
    with faulty_server() as server:
        clock.start(server)
        yield server


@pytest.fixture
def connection(server: FaultyServer) -> Iterator[Connection]:
    timings = dataclasses.replace(FAST_TIMINGS, clock_interval=0.05)
    with ConnectionFactory(server.url, timings=timings).create_connection() as connection:
        connection.start()
        yield connection


def send(connection: Connection, text: str, time_to_live: float = 0.0) -> Message:
    """Send a message by the server's clock."""
    session = connection.create_session()
    with session.create_producer(QUEUE) as producer:
        message = session.create_text_message(text)
        producer.send(message, time_to_live=time_to_live)
    return message


def expiring(server: FaultyServer) -> int:
    """Count the messages that have an expiration."""
    with psycopg.connect(server.url) as administrator:
        found = administrator.execute(
            "select count(*) from jmsql_internal.message where jms_expiration is not null"
        ).fetchone()
    assert found is not None
    return int(found[0])


@pytest.mark.timeout(120)
def test_messages_expire_by_the_servers_clock_when_it_jumps(
    server: FaultyServer, connection: Connection, clock: Clock
) -> None:
    number = connection._control.connection_id
    held = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT).create_consumer(QUEUE)
    send(connection, "held")
    message = receive(held)

    before = send(connection, "expires in an hour", HOUR).jms_timestamp
    send(connection, "stays")
    clock.set(2 * HOUR)
    wait_for(lambda: connection._client.clock.milliseconds() > before + HOUR * 1000)
    consumer = connection.create_session().create_consumer(QUEUE)
    assert receive_texts(consumer, 1) == ["stays"]
    assert receive_all(consumer) == []

    send(connection, "sent after the jump", 60.0)
    assert receive_texts(consumer, 1) == ["sent after the jump"]
    wait_for(lambda: expiring(server) == 0, timeout=60)  # by maintenance, before the clock says that it has not expired
    clock.set(-2 * HOUR)
    wait_for(lambda: connection._client.clock.milliseconds() < before)
    send(connection, "sent after the jump back", 60.0)
    assert receive_texts(consumer, 1) == ["sent after the jump back"]

    message.acknowledge()
    assert connection._control.connection_id == number, "the jumps have not made the client look dead"
    held.close()
    assert receive_all(consumer) == []


@pytest.mark.timeout(240)
def test_delays_are_the_servers_and_waits_are_the_clients_when_the_clock_jumps(
    server: FaultyServer, connection: Connection, clock: Clock
) -> None:
    session = connection.create_session(transacted=True)
    producer, consumer = session.create_producer(QUEUE), session.create_consumer(QUEUE)
    with Administration(server.url) as administration:
        administration.create_queue("retried", redelivery_delay=HOUR)
    retried = session.create_consumer(Queue("retried"))

    producer.delivery_delay = HOUR
    producer.send(session.create_text_message("in an hour"))
    session.create_producer(Queue("retried")).send(session.create_text_message("again in an hour"))
    session.commit()
    assert receive(retried).get_body(str) == "again in an hour"
    session.rollback()
    assert (consumer.receive(timeout=0.2), retried.receive(timeout=0.2)) == (None, None)

    began = time.monotonic()
    waiting = Background(lambda: connection.create_session().create_consumer(Queue("empty")).receive(timeout=1.0))
    clock.set(HOUR + 60)
    assert receive(consumer).get_body(str) == "in an hour"
    assert receive(retried).get_body(str) == "again in an hour"
    session.commit()
    assert waiting.result(PATIENCE) is None
    assert 1.0 <= time.monotonic() - began < PATIENCE

    clock.set(-HOUR)
    then = time.time() * 1000 - HOUR * 1000 + 60_000
    wait_for(lambda: connection._client.clock.milliseconds() < then, PATIENCE)
    producer.delivery_delay = 0.5
    producer.send(session.create_text_message("soon"))
    session.commit()
    assert receive(consumer).get_body(str) == "soon", "the maintenance goes on"
    session.commit()


CLIENT = """
import sys, time
from pathlib import Path
import jmsql
from jmsql import AcknowledgeMode, ConnectionFactory, Queue

url, clock, offset = sys.argv[1:]
with ConnectionFactory(url).create_connection() as connection:
    connection.start()
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.DUPS_OK)
    before = time.time()
    Path(f"{clock}.new").write_text(f"{float(offset):+}s\\n")
    Path(f"{clock}.new").replace(clock)
    assert abs(time.time() - before) > 3600, "the clock has not jumped"
    with session.create_producer(Queue("answers")) as producer:
        for message in iter(session.create_consumer(Queue("orders")).receive, None):
            text = message.get_body(str)
            producer.send(session.create_text_message(text), time_to_live=60.0)
            if text == "stop":
                break
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("offset", [DAY, -DAY])
def test_clients_whose_clock_jumps_lose_nothing(jmsql_factory: ConnectionFactory, clock: Clock, offset: float) -> None:
    texts = ["a", "b", "stop"]
    with jmsql_factory.create_connection() as connection:
        connection.start()
        session = connection.create_session()
        with session.create_producer(QUEUE) as producer:
            producer.time_to_live = 60.0
            for text in texts:
                producer.send(session.create_text_message(text))
        assert jmsql_factory.url is not None
        subprocess.run(
            [sys.executable, "-c", CLIENT, jmsql_factory.url, str(clock._file), str(offset)],
            env=os.environ | clock.environment,
            check=True,
            timeout=60,
        )
        assert receive_texts(session.create_consumer(Queue("answers")), 3) == texts
        send_texts(session, QUEUE)
        assert receive_all(session.create_consumer(QUEUE)) == []


ENLISTING = """
import asyncio, os, time
import asyncpg, psycopg, sqlalchemy
import jmsql, jmsql.asyncio
from sqlalchemy import orm

url = os.environ["JMSQL_URL"]
assert abs(time.time() - psycopg.connect(url).execute("select extract(epoch from now())::float8").fetchone()[0]) > 3000


def send(transaction):
    jmsql.enlist(transaction).create_producer(time_to_live=60).send(jmsql.Queue("orders"), "an order")


async def send_by_a_task():
    connection = await asyncpg.connect(url)
    await jmsql.asyncio.enlist(connection).create_producer(time_to_live=60).send(jmsql.Queue("orders"), "an order")
    await connection.close()


with psycopg.connect(url) as connection:
    send(connection)
engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:", 1))
with orm.Session(engine) as session, session.begin():
    send(session)
asyncio.run(send_by_a_task())
"""

ANSWERING = """
import jmsql
from jmsql.worker import Application

app = Application()


@app.listener("orders")
def answer(message, session):
    producer = session.create_producer(message.jms_reply_to)
    producer.send(session.create_text_message("an answer"), time_to_live=60)
"""


@pytest.fixture(params=[-HOUR, HOUR], ids=["slow", "fast"])
def wrong(clock: Clock, request: pytest.FixtureRequest, jmsql_clean_url: str) -> dict[str, str]:
    """The environment of processes whose clock is wrong."""
    clock.set(request.param)
    return os.environ | clock.environment | {"JMSQL_URL": jmsql_clean_url, "PYTHONPATH": str(ROOT)}


@pytest.mark.timeout(120)
def test_transactions_of_applications_with_a_wrong_clock_go_by_the_servers(
    wrong: dict[str, str], jmsql_clean_url: str
) -> None:
    subprocess.run([sys.executable, "-c", ENLISTING], env=wrong, check=True, timeout=60)
    require_servers_time(jmsql_clean_url, count=3)


@pytest.mark.timeout(120)
def test_the_command_goes_by_the_servers_clock(wrong: dict[str, str], jmsql_clean_url: str) -> None:
    command = [sys.executable, "-m", "jmsql", "send", "orders", "an order", "--time-to-live", "60"]
    subprocess.run(command, env=wrong, check=True, timeout=60, stdout=subprocess.DEVNULL)
    require_servers_time(jmsql_clean_url, count=1)


@pytest.mark.timeout(120)
def test_ages_that_the_command_shows_go_by_the_servers_clock(
    wrong: dict[str, str], jmsql_factory: ConnectionFactory, jmsql_clean_url: str
) -> None:
    with Administration(jmsql_clean_url) as administration:
        administration.subscribe("news", "letter", shared=True)
        administration.create_queue("dead")
        administration.create_queue("orders", dead_letter_queue="dead", maximum_deliveries=1)
    with jmsql_factory.create_context(AcknowledgeMode.TRANSACTED) as context:
        context.create_producer().send(QUEUE, "a failure")
        context.commit()
        assert context.create_consumer(QUEUE).receive(PATIENCE) is not None
        context.rollback()
        for destination in (QUEUE, Topic("news")):
            context.create_producer().send(destination, "an order")
        context.commit()
        for arguments in ("queues", "subscriptions", "clients", "browse orders", "dead-letters dead"):
            command = [sys.executable, "-m", "jmsql", *arguments.split()]
            shown = subprocess.run(command, env=wrong, check=True, timeout=60, stdout=subprocess.PIPE, text=True).stdout
            assert re.search(r" \d+ (s|min)\b", shown), shown
            assert not re.search(r" \d+ (h|d)\b", shown), shown


@pytest.mark.timeout(120)
def test_handlers_sends_go_by_the_servers_clock(
    wrong: dict[str, str], jmsql_factory: ConnectionFactory, jmsql_clean_url: str, tmp_path: Path
) -> None:
    (tmp_path / "messaging.py").write_text(ANSWERING)
    answers = Queue("answers")
    with jmsql_factory.create_context() as context:
        context.create_producer(jms_reply_to=answers).send(QUEUE, "an order")
        worker = subprocess.Popen(
            [sys.executable, "-m", "jmsql", "worker", "messaging:app"],
            cwd=tmp_path,
            env=wrong,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_for(lambda: len(list(context.create_browser(answers))) == 1, timeout=60)
        finally:
            worker.terminate()
            worker.wait(60)  # not its exit code: libfaketime refuses to sleep until a moment of the monotonic clock
    require_servers_time(jmsql_clean_url, count=1)


@pytest.mark.timeout(240)
def test_ticks_are_sent_once_when_the_servers_clock_jumps(server: FaultyServer, clock: Clock) -> None:
    timings = dataclasses.replace(FAST_TIMINGS, schedule_interval=0.1)
    with Administration(server.url) as administration:
        administration.set_schedule("hourly", "0 * * * *", "reports", missed="all")

        def times(number: int) -> list[str]:
            wait_for(lambda: administration.schedule("hourly").sent >= number, PATIENCE)
            with psycopg.connect(server.url) as database:
                query = "select properties ->> 'JMS_jmsql_ScheduledTime' from jmsql.messages where queue = 'reports'"
                return [row[0] for row in database.execute(query).fetchall()]

        with ConnectionFactory(server.url, timings=timings).create_connection() as connection:
            connection.create_session().create_consumer("others")
            clock.set(3 * HOUR)
            assert len(times(3)) in (3, 4)  # the fourth if an hour ends now
            clock.set(-3 * HOUR)
            administration.set_schedule("soon", timedelta(seconds=1), "others")
            wait_for(lambda: administration.schedule("soon").sent >= 1, PATIENCE)
            clock.set(5 * HOUR)
            found = times(5)
    assert len(set(found)) == len(found) in (5, 6)
