"""A connection that the server has ended, and that nobody has closed, is dropped with one warning."""

from __future__ import annotations

import gc
import threading

import pytest
import sqlalchemy

from jmsql import ConnectionFactory
from jmsql.testing import wait_for
from tests.integration.client.server import SESSIONS, Server


def hold_a_transaction(factory: ConnectionFactory, server: Server) -> None:
    session = factory.create_connection().create_session(transacted=True)
    session.database.execute(sqlalchemy.text("select 1"))
    assert server.terminate(SESSIONS) == 1


def drop_a_connection(factory: ConnectionFactory, server: Server) -> None:
    before = set(threading.enumerate())
    hold_a_transaction(factory, server)
    wait_for(lambda: gc.collect() >= 0 and before.issuperset(threading.enumerate()))


def test_sqlalchemy_says_nothing_of_it(
    factory: ConnectionFactory, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.warns(ResourceWarning, match="was not closed"):
        drop_a_connection(factory, server)
    assert [record.name for record in caplog.records if record.name.startswith("sqlalchemy")] == []
