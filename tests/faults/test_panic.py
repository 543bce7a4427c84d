"""A server that cannot write its log ends all its processes; its recovery decides if the last commit took effect."""

from __future__ import annotations

import os
import subprocess
from functools import partial

import psycopg
import pytest

from jmsql import ConnectionFactory, JMSException, Queue, Session
from jmsql.testing import wait_for
from tests.faults.faulty_server import FaultyServer, faulty_server
from tests.texts import send_texts

QUEUE = Queue("orders")

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as the server's account"),
    pytest.mark.timeout(240),
]


def fail_to_write(server: FaultyServer) -> None:
    """Have the processes that serve clients write to no file from now on."""
    with psycopg.connect(server.url, autocommit=True) as administrator:
        clients = administrator.execute(
            "select pid from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
        ).fetchall()
    account = server.data.stat()
    for (process,) in clients:
        command = ["prlimit", f"--pid={process}", "--fsize=0:0"]
        subprocess.run(command, user=account.st_uid, group=account.st_gid, extra_groups=[], check=True)


def test_outcome_of_a_commit_in_which_the_server_panics_is_not_known() -> None:
    errors: list[JMSException | None] = []
    with faulty_server() as server, ConnectionFactory(server.url).create_connection() as connection:
        for is_transacted, is_lent in ((False, False), (True, False), (True, True)):
            with connection.create_session(transacted=is_transacted) as session:
                wait_for(partial(can_send, session), timeout=60)  # which makes the tables' files grow
                if is_lent:
                    session.database.exec_driver_sql("select")
                fail_to_write(server)
                errors.append(failure_to_send(session))
                server.wait_until_ready()
    assert [(type(each), each and each.error_code) for each in errors] == [(JMSException, "08007")] * 3


def can_send(session: Session) -> bool:
    """Send a message, and return whether that is possible again."""
    return failure_to_send(session) is None


def failure_to_send(session: Session) -> JMSException | None:
    """Send a message, and return the error if that fails."""
    try:
        send_texts(session, QUEUE, "c")
        if session.transacted:
            session.commit()
    except JMSException as error:
        if session.transacted:
            session.rollback()
        return error
    return None
