"""The disk fills while clients work: they are told so, and go on once there is room, with nothing lost or doubled."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy

from jmsql import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    JMSException,
    Queue,
    ResourceAllocationException,
    TransactionRolledBackException,
)
from jmsql.client._sync.link.opening import open_runner
from jmsql.doctor import Health, Thresholds, examine
from jmsql.store.schema.migration import migrate
from jmsql.testing import receive_all, wait_for
from tests.faults.faulty_server import faulty_server
from tests.faults.full_disk import small_disk

QUEUE = Queue("orders")
DISK_FULL = "53100"
BODY = secrets.token_hex(5000)  # does not get much smaller by compression
INSERT = sqlalchemy.text("insert into shipment values (:number)")
MOST = 1000
"""So many transactions fill any of the disks."""

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount the small file system that is filled"),
    pytest.mark.timeout(240),
]


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A directory that the server's account can reach, whose path is short: that of a socket has a limit."""
    with tempfile.TemporaryDirectory(prefix="jmsql-disk-") as directory:
        Path(directory).chmod(0o711)
        yield Path(directory)


class Shop:
    """Sends messages and stores rows with them, in transactions."""

    def __init__(self, connection: Connection) -> None:
        self._session = connection.create_session(transacted=True)
        self._number = 0
        with self._session.database.begin_nested():
            self._session.database.execute(sqlalchemy.text("create table if not exists shipment (number int)"))
        self._session.commit()

    def ship(self) -> None:
        """Send and store, in one transaction."""
        with self._session.create_producer(QUEUE) as producer:
            for _ in range(5):
                self._number += 1
                self._session.database.execute(INSERT, {"number": self._number})
                message = self._session.create_text_message(BODY)
                message.set_int_property("number", self._number)
                producer.send(message)
        self._session.commit()

    def give_up(self) -> None:
        """Roll back."""
        self._session.rollback()


def failure_of(call: Callable[[], object]) -> Exception | None:
    """The error that a call raises, which is one of JMS, or one of SQLAlchemy for the caller's own statement."""
    try:
        call()
    except (JMSException, sqlalchemy.exc.OperationalError) as error:
        return error
    return None


def ship_until_it_fails(shop: Shop) -> Exception:
    for _ in range(MOST):
        error = failure_of(shop.ship)
        if error is not None:
            return error
    raise AssertionError("the disk does not fill")


def is_disk_full(error: Exception | None) -> bool:
    if isinstance(error, sqlalchemy.exc.OperationalError):
        return isinstance(error.orig, psycopg.errors.DiskFull)
    # What is sent with a commit fails there, and rolls the transaction back.
    kinds = ResourceAllocationException, TransactionRolledBackException
    return isinstance(error, kinds) and error.error_code == DISK_FULL


def check_accounts(url: str) -> None:
    """Each row has its message, and each message its row."""
    with ConnectionFactory(url).create_connection() as connection, psycopg.connect(url) as database:
        connection.start()
        messages = receive_all(connection.create_session().create_consumer(QUEUE))
        numbers = [message.get_int_property("number") for message in messages]
        rows = [number for (number,) in database.execute("select number from shipment")]
        assert sorted(numbers) == sorted(rows)
        assert len(numbers) == len(set(numbers)) > 0


def disk_health(url: str) -> Health:
    """Return what the doctor says of the disk."""
    with open_runner(url, "jmsql") as runner:
        return next(each.health for each in examine(runner, Thresholds()) if each.check == "disk")


def test_clients_are_told_that_the_disk_is_full_and_go_on_when_there_is_room(reachable: Path) -> None:
    with small_disk(reachable / "small", megabytes=64) as disk, faulty_server() as server:
        with psycopg.connect(server.url, autocommit=True) as administrator:
            administrator.execute(f"create tablespace small location '{disk.directory}'".encode())
            administrator.execute("create database shop tablespace small")
        url = server.url.replace("/postgres?", "/shop?")
        migrate(url)
        with (
            ConnectionFactory(url).create_connection() as connection,
            ConnectionFactory(url).create_connection() as other,
        ):
            other.start()
            connection_ids = connection._control.connection_id, other._control.connection_id
            shop = Shop(connection)
            shop.ship()
            disk.fill(free=3_000_000)
            assert is_disk_full(ship_until_it_fails(shop))
            shop.give_up()
            errors = [failure_of(shop.ship)]
            shop.give_up()
            sender = other.create_session()
            large = sender.create_text_message(BODY * 10)
            errors.append(failure_of(lambda: sender.create_producer(Queue("others")).send(large)))
            assert all(map(is_disk_full, errors)), errors
            assert disk_health(url) is Health.problem

            disk.make_room()
            assert disk_health(url) is Health.ok
            shop.ship()
            sender.create_producer(Queue("others")).send(large)
            received = other.create_session(acknowledge_mode=AcknowledgeMode.CLIENT).create_consumer(Queue("others"))
            assert received.receive(timeout=60) is not None
            assert connection_ids == (connection._control.connection_id, other._control.connection_id)
        check_accounts(url)


def test_nothing_is_lost_or_doubled_when_the_server_itself_runs_out_of_room(reachable: Path) -> None:
    with small_disk(reachable / "whole", megabytes=200) as disk, faulty_server(disk.directory) as server:
        with ConnectionFactory(server.url).create_connection() as connection:
            shop = Shop(connection)
            shop.ship()
            disk.fill(free=8_000_000)
            for _ in range(3):  # it refuses, or it ends, and cannot start again
                ship_until_it_fails(shop)
                shop.give_up()
            disk.make_room()
            server.start()
            server.wait_until_ready()

            def ships() -> bool:
                error = failure_of(shop.ship)
                if error is not None:
                    shop.give_up()
                return error is None

            wait_for(ships, timeout=60)
        check_accounts(server.url)
