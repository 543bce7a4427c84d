"""What the tests of global transactions send, and look for."""

from __future__ import annotations

from jmsql import Message, Queue, Session, Topic
from jmsql.testing import receive_all
from jmsql.xa import Xid
from tests.texts import texts_of

XID = Xid(7, "purchase 1", "messages")


PREPARED = "select gid from pg_prepared_xacts where database = current_database()"


def send(session: Session, queue: Queue | Topic, *texts: str) -> None:
    """Send, and leave the commit to the test."""
    with session.create_producer(queue) as producer:
        for text in texts:
            producer.send(session.create_text_message(text))


def messages_there(session: Session, queue: Queue) -> list[Message]:
    with session.create_consumer(queue) as consumer:
        return receive_all(consumer)


def texts_there(session: Session, queue: Queue) -> list[str]:
    return texts_of(messages_there(session, queue))
