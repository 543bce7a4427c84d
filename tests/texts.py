"""Text messages, sent and received in a word."""

from __future__ import annotations

from collections.abc import Iterable

from jmsql import ConnectionFactory, Destination, Message, MessageConsumer, Queue, Session
from jmsql.testing import receive_all

_PATIENCE = 60.0


def send_texts(session: Session, destination: Destination, *texts: str, priority: int | None = None) -> None:
    """Send a message for each text, and commit them if the session is transacted."""
    with session.create_producer(destination) as producer:
        for text in texts:
            producer.send(session.create_text_message(text), priority=priority)
    if session.transacted:
        session.commit()


def receive(consumer: MessageConsumer) -> Message:
    """Receive a message that is sure to come."""
    message = consumer.receive(timeout=_PATIENCE)
    assert message is not None, "no message came"
    return message


def receive_texts(consumer: MessageConsumer, count: int) -> list[str]:
    """Receive so many messages, which are sure to come."""
    return texts_of(receive(consumer) for _ in range(count))


def texts_of(messages: Iterable[Message]) -> list[str]:
    """The messages' texts."""
    return [str(message.get_body(str)) for message in messages]


def messages_left(factory: ConnectionFactory, queue: Queue) -> list[Message]:
    """Receive all that can be had from the queue by a client of its own."""
    with factory.create_connection() as connection:
        connection.start()
        return receive_all(connection.create_session().create_consumer(queue))


def texts_left(factory: ConnectionFactory, queue: Queue) -> list[str]:
    """The texts of the messages that can be had from the queue by a client of its own."""
    return texts_of(messages_left(factory, queue))
