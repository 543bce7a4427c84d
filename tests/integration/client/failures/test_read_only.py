"""The database is read-only for a while, as administrators and providers make it when the disk is nearly full."""

from __future__ import annotations

import pytest
import sqlalchemy

from jmsql import AcknowledgeMode, Connection, JMSException, Queue, Session
from jmsql.admin import Administration
from jmsql.testing import receive_all, wait_for
from tests.integration.client.server import SESSIONS, Database, Server
from tests.texts import receive_texts, send_texts, texts_of

pytestmark = pytest.mark.usefixtures("used_long_ago")


@pytest.mark.parametrize("mode", list(AcknowledgeMode))
def test_a_session_sends_again_once_the_database_takes_writes(
    mode_session: Session, others: Session, queue: Queue, server: Server, database: Database
) -> None:
    def send(text: str) -> None:
        send_texts(mode_session, queue, text)  # commits

    send("a")
    database.refuse_writes()
    assert server.terminate(SESSIONS)
    with pytest.raises(JMSException) as refused:
        send("refused")
    assert refused.value.error_code == "25006"
    database.take_writes()
    send("b")
    assert texts_of(receive_all(others.create_consumer(queue))) == ["a", "b"]


@pytest.mark.parametrize("mode", list(AcknowledgeMode))
def test_a_session_receives_again_once_the_database_takes_writes(
    mode_session: Session, others: Session, queue: Queue, server: Server, database: Database
) -> None:
    consumer = mode_session.create_consumer(queue)
    assert consumer.receive_no_wait() is None
    if mode_session.transacted:
        mode_session.commit()
    send_texts(others, queue, "a")
    database.refuse_writes()
    server.terminate(SESSIONS)
    with pytest.raises(JMSException) as refused:
        consumer.receive_no_wait()
    assert refused.value.error_code == "25006"
    if mode_session.transacted:
        mode_session.rollback()
    database.take_writes()
    assert receive_texts(consumer, 1) == ["a"]


def test_a_session_whose_database_was_used_sends_again(
    connection: Connection, others: Session, queue: Queue, database: Database
) -> None:
    send_texts(others, queue, "a")
    database.refuse_writes()
    session = connection.create_session(transacted=True)
    session.database.execute(sqlalchemy.text("select 1"))
    with pytest.raises(JMSException):
        send_texts(session, queue, "refused")
    session.rollback()
    database.take_writes()
    send_texts(session, queue, "b")
    assert receive_texts(others.create_consumer(queue), 2) == ["a", "b"]


def test_a_session_that_closes_leaves_no_connection_that_refuses_writes(
    connection: Connection, others: Session, queue: Queue, database: Database
) -> None:
    send_texts(others, queue, "a")
    database.refuse_writes()
    with connection.create_session() as session:
        assert len(list(session.create_browser(queue))) == 1
    database.take_writes()
    with connection.create_session() as session:
        send_texts(session, queue, "b")


def test_an_administration_writes_again(jmsql_clean_url: str, database: Database) -> None:
    database.refuse_writes()
    with Administration(jmsql_clean_url) as administration:
        with pytest.raises(JMSException) as refused:
            administration.create_queue("orders")
        assert refused.value.error_code == "25006"
        database.take_writes()
        administration.create_queue("orders")


def test_a_client_leaves_a_server_that_has_become_read_only_for_one_that_takes_writes(
    connection: Connection, queue: Queue, others: Session, database: Database
) -> None:
    control = connection._control
    service = control._service
    database.refuse_writes()
    # A change of the server's configuration does that on all connections.
    service.link.connection.execute("set default_transaction_read_only = on")
    wait_for(lambda: service._moving._next_attempt > 0)
    assert control._service is service
    assert not control.is_lost
    database.take_writes()
    wait_for(lambda: control._service is not service and not control.is_lost)
    send_texts(connection.create_session(), queue, "a")
    assert receive_texts(others.create_consumer(queue), 1) == ["a"]
