from __future__ import annotations

import psycopg
import pytest

from jmsql.store.autocommit_connection import AutocommitConnection


def test_connection_that_the_server_has_ended_closes_without_an_error(jmsql_url: str) -> None:
    with AutocommitConnection(jmsql_url) as connection, AutocommitConnection(jmsql_url) as other:
        [[process]] = connection.rows("select pg_backend_pid()")
        assert other.rows("select pg_terminate_backend(%(process)s, 10000)", process=process) == [(True,)]
        with pytest.raises(psycopg.OperationalError):
            connection.rows("select 1")
    assert connection.psycopg.closed
