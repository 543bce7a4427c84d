"""The console's connections to the database."""

from __future__ import annotations

from contextlib import closing

import psycopg

from jmsql import ConnectionFactory
from jmsql.console.database import Database
from jmsql.store.administration import overview
from tests.refused_threads import Refusal


def test_an_idle_connection_that_was_ended_is_not_used(jmsql_factory: ConnectionFactory, jmsql_clean_url: str) -> None:
    with closing(Database(jmsql_factory, patience=60.0)) as database:
        with database.runner() as runner:
            process = runner.connection.info.backend_pid
        with psycopg.connect(jmsql_clean_url, autocommit=True) as administrator:
            ended = administrator.execute("select pg_terminate_backend(%s, 10000)", [process]).fetchone()
        assert ended == (True,)
        with database.runner() as runner:
            runner.run(overview.store())


def test_a_connection_that_no_thread_will_close_is_closed_after_its_use(jmsql_factory: ConnectionFactory) -> None:
    with closing(Database(jmsql_factory, patience=60.0)) as database:
        with Refusal("jmsql console connections") as refusal, database.runner() as runner:
            runner.run(overview.store())
        assert refusal.names
        assert runner.connection.closed
        with database.runner() as runner:
            runner.run(overview.store())
        assert not runner.connection.closed
