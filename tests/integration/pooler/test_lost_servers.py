"""The server's process ends while a client works behind a pooler."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy

from jmsql import Connection, JMSException, Queue
from jmsql.testing import wait_for
from tests.background import Background
from tests.integration.client.server import Server


@pytest.fixture
def slow_check(server: Server) -> Iterator[None]:
    """A table of the application's, whose rows are checked in COMMIT, which takes long."""
    server.rows("create table checked (number integer)")
    server.rows(
        "create function check_number() returns trigger language plpgsql "
        "as 'begin perform pg_sleep(60); return null; end'"
    )
    server.rows(
        "create constraint trigger late after insert on checked deferrable initially deferred "
        "for each row execute function check_number()"
    )
    yield
    server.rows("drop table checked")
    server.rows("drop function check_number")


@pytest.mark.routes
@pytest.mark.usefixtures("slow_check")
@pytest.mark.parametrize("sends", [True, False])
def test_outcome_of_a_commit_whose_server_process_ends_is_unknown(
    connection: Connection, server: Server, sends: bool
) -> None:
    with connection.create_session(transacted=True) as session:
        database = session.database
        database.exec_driver_sql("insert into checked values (1)")
        process = database.scalar(sqlalchemy.text("select pg_backend_pid()"))
        if sends:
            session.create_producer(Queue("orders")).send(session.create_text_message("a"))
        committing = Background(session.commit)
        is_checked = "select from pg_stat_activity where pid = %s and wait_event = 'PgSleep'"
        wait_for(lambda: server.rows(is_checked, process))
        server.rows("select pg_terminate_backend(%s)", process)
        with pytest.raises(JMSException) as raised:
            committing.result()
        assert (type(raised.value), raised.value.error_code) == (JMSException, "08007")
        session.rollback()
        assert session.database.scalar(sqlalchemy.text("select count(*) from checked")) == 0
