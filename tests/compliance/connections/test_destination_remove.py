"""A queue that is removed and made again: implied by JMS 1.1 chapter 4.2."""

from __future__ import annotations

import pytest
import sqlalchemy

from jmsql import Connection, ConnectionFactory, Queue
from jmsql.testing import receive_all
from tests.texts import send_texts, texts_of


def remove(connection: Connection, queue: Queue) -> None:
    """Remove a queue, as an administrator does by SQL."""
    with connection.create_session(transacted=True) as session:
        session.database.execute(
            sqlalchemy.text("delete from jmsql_internal.queue where name = :name"), {"name": queue.name}
        )
        session.commit()


@pytest.mark.requirement("destination.remove")
def test_messages_of_a_removed_queue_are_gone(jmsql_factory: ConnectionFactory, queue: Queue) -> None:
    other = Queue("other")
    with jmsql_factory.create_connection() as connection:
        session = connection.create_session()
        send_texts(session, queue, "a", "b", "c")
        send_texts(session, other, "kept")
        remove(connection, queue)
    with jmsql_factory.create_connection() as connection:
        connection.start()
        session = connection.create_session()
        assert receive_all(session.create_consumer(queue)) == []
        send_texts(session, queue, "new")
        assert texts_of(session.create_browser(queue)) == ["new"]
        assert texts_of(receive_all(session.create_consumer(queue))) == ["new"]
        assert texts_of(receive_all(session.create_consumer(other))) == ["kept"]
