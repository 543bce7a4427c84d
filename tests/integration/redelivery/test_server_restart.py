"""The server dies, as if its power were cut, while clients hold messages: those deliveries count too."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from jmsql import AcknowledgeMode, ConnectionFactory, JMSException, Message, MessageConsumer
from jmsql.admin import Administration
from jmsql.embedded import start_server
from jmsql.testing import wait_for
from tests.prepared_data import prepare_data
from tests.texts import send_texts

PATIENCE = 60.0
MODES = (AcknowledgeMode.TRANSACTED, AcknowledgeMode.CLIENT)


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="jmsql-restart-") as directory:
        Path(directory).chmod(0o711)  # for root: the server's account must pass through
        yield Path(directory) / "server"


def kill_immediately(administrator: psycopg.Connection[Any]) -> None:
    """Do what `pg_ctl stop -m immediate` does, once what was written so far is on the disk."""
    administrator.execute("create table flushed ()")  # its commit waits for the disk, and with it for all before it
    rows = administrator.execute("select pg_read_file('postmaster.pid')").fetchall()
    postmaster = int(rows[0][0].split()[0])
    os.kill(postmaster, signal.SIGQUIT)
    wait_for(lambda: not Path(f"/proc/{postmaster}").exists() or _is_zombie(postmaster), PATIENCE)


def _is_zombie(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def receive_after_all(consumer: MessageConsumer) -> Message:
    """Receive a message, whatever happens to the connection meanwhile."""

    def attempt() -> Message | None:
        try:
            return consumer.receive(timeout=1.0)
        except JMSException:
            return None

    message = wait_for(attempt, PATIENCE)
    assert message is not None
    return message


def test_deliveries_that_a_crash_of_the_server_has_ended_count(directory: Path) -> None:
    prepare_data(directory)
    with ExitStack() as clients:
        with start_server(directory) as server:
            connection = clients.enter_context(ConnectionFactory(server.url).create_connection())
            connection.start()
            consumers = {}
            with Administration(server.url) as administration:
                for mode in MODES:
                    queue = administration.create_queue(mode.name, maximum_deliveries=3)
                    send_texts(connection.create_session(), queue, "a")
                    session = connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode)
                    consumers[mode] = session.create_consumer(queue)
                    first = receive_after_all(consumers[mode])
                    assert first.get_int_property("JMSXDeliveryCount") == 1
            with psycopg.connect(server.url, autocommit=True) as administrator:
                kill_immediately(administrator)
        with start_server(directory) as server, psycopg.connect(server.url, autocommit=True) as administrator:
            counts = "select delivery_count from jmsql.messages where state = 'ready'"
            wait_for(lambda: administrator.execute(counts).fetchall() == [(1,), (1,)], PATIENCE)
            other = clients.enter_context(ConnectionFactory(server.url).create_connection())
            other.start()
            for mode in MODES:
                session = other.create_session(transacted=True)
                again = receive_after_all(session.create_consumer(session.create_queue(mode.name)))
                assert again.jms_redelivered
                assert again.get_int_property("JMSXDeliveryCount") == 2
                session.commit()
            assert administrator.execute("select count(*) from jmsql_internal.message").fetchall() == [(0,)]
            clients.close()
