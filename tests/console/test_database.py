"""The console's connections to the database."""

from __future__ import annotations

from contextlib import closing

import psycopg

from jmsql import ConnectionFactory
from jmsql.console.database import Database
from jmsql.store.administration import overview


def test_an_idle_connection_that_was_ended_is_not_used(jmsql_factory: ConnectionFactory, jmsql_clean_url: str) -> None:
    with closing(Database(jmsql_factory, patience=60.0)) as database:
        with database.runner() as runner:
            process = runner.connection.info.backend_pid
        with psycopg.connect(jmsql_clean_url, autocommit=True) as administrator:
            ended = administrator.execute("select pg_terminate_backend(%s, 10000)", [process]).fetchone()
        assert ended == (True,)
        with database.runner() as runner:
            runner.run(overview.store())
