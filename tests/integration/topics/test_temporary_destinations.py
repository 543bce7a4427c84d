"""Temporary queues and topics: JMS 1.1 chapter 4.4.3."""

from __future__ import annotations

import pickle

import pytest

from jmsql import (
    Connection,
    Destination,
    IllegalStateException,
    InvalidDestinationException,
    Message,
    Session,
    TemporaryQueue,
    TemporaryTopic,
    TransactionRolledBackException,
)
from jmsql.testing import receive_all, wait_for
from tests.integration.client.server import Server
from tests.integration.topics.rows import wait_until_empty
from tests.texts import receive, receive_texts, send_texts, texts_of

Temporary = TemporaryQueue | TemporaryTopic
KINDS = pytest.mark.parametrize("kind", [TemporaryQueue, TemporaryTopic])
TRANSACTED = pytest.mark.parametrize("transacted", [False, True], ids=["at once", "transacted"])


REFUSALS = (InvalidDestinationException, TransactionRolledBackException)
"""A transaction sends with its commit, which is then a rollback."""
GONE = "is gone|does not exist"


def create(session: Session, kind: type[Temporary]) -> Temporary:
    return session.create_temporary_queue() if kind is TemporaryQueue else session.create_temporary_topic()


@KINDS
def test_each_is_another(session: Session, kind: type[Temporary]) -> None:
    first, second = create(session, kind), create(session, kind)
    assert type(first) is kind
    assert first != second


@KINDS
def test_all_sessions_of_the_connection_receive_from_it(connection: Connection, kind: type[Temporary]) -> None:
    destination = create(connection.create_session(), kind)
    session = connection.create_session()
    consumer = session.create_consumer(destination)
    send_texts(session, destination, "a")
    assert texts_of(receive_all(consumer)) == ["a"]


@KINDS
def test_outlives_the_session_that_made_it(connection: Connection, session: Session, kind: type[Temporary]) -> None:
    with connection.create_session() as making:
        destination = create(making, kind)
    consumer = session.create_consumer(destination)
    send_texts(session, destination, "a")
    assert texts_of(receive_all(consumer)) == ["a"]


@KINDS
def test_other_connections_send_to_it_and_do_not_receive(
    session: Session, others: Session, kind: type[Temporary]
) -> None:
    destination = create(session, kind)
    with pytest.raises(InvalidDestinationException, match="Only the connection"):
        others.create_consumer(destination)
    if isinstance(destination, TemporaryTopic):
        with pytest.raises(InvalidDestinationException, match="Only the connection"):
            others.create_shared_consumer(destination, "shared")
    consumer = session.create_consumer(destination)
    send_texts(others, destination, "a")
    assert receive_texts(consumer, 1) == ["a"]


@KINDS
def test_is_not_deleted_while_it_has_a_consumer(
    connection: Connection, session: Session, kind: type[Temporary]
) -> None:
    destination = create(session, kind)
    consumer = connection.create_session().create_consumer(destination)
    with pytest.raises(IllegalStateException, match="has a consumer"):
        destination.delete()
    send_texts(session, destination, "a")
    assert receive_texts(consumer, 1) == ["a"]
    consumer.close()
    destination.delete()


@KINDS
@TRANSACTED
def test_sending_to_a_deleted_one_is_refused(
    connection: Connection, other_connection: Connection, kind: type[Temporary], transacted: bool
) -> None:
    """A session that has sent to it before, with a producer for it alone or for any destination, gets an error."""
    destination = create(connection.create_session(), kind)
    for client in (connection, other_connection):
        session = client.create_session(transacted)
        own, any_destination = session.create_producer(destination), session.create_producer()
        own.send(Message())
        any_destination.send(Message(), destination)
        if transacted:
            session.commit()
    destination.delete()
    for client in (connection, other_connection):
        session = client.create_session(transacted)
        with pytest.raises(REFUSALS, match=GONE):
            send_texts(session, destination, "lost")


@KINDS
@TRANSACTED
def test_producer_of_a_deleted_one_sends_no_more(
    session: Session, other_connection: Connection, kind: type[Temporary], transacted: bool
) -> None:
    destination = create(session, kind)
    sending = other_connection.create_session(transacted)
    producer = sending.create_producer(destination)
    destination.delete()
    with pytest.raises(REFUSALS, match=GONE):  # noqa: PT012 - a transaction sends with its commit
        producer.send(Message())
        if transacted:
            sending.commit()


@KINDS
def test_receiving_from_a_deleted_one_is_refused(session: Session, kind: type[Temporary]) -> None:
    destination = create(session, kind)
    destination.delete()
    with pytest.raises(InvalidDestinationException):
        session.create_consumer(destination)


@KINDS
def test_goes_with_its_connection(
    connection: Connection, session: Session, others: Session, server: Server, kind: type[Temporary]
) -> None:
    destination = create(session, kind)
    session.create_consumer(destination)
    send_texts(others, destination, "a", "b")
    connection.close()
    with pytest.raises(InvalidDestinationException):
        send_texts(others, destination, "c")
    wait_until_empty(server, "topic", "subscription", "message", "queue")


@KINDS
def test_only_its_own_object_deletes_it(session: Session, kind: type[Temporary]) -> None:
    destination = create(session, kind)
    copy = pickle.loads(pickle.dumps(destination))
    assert copy == destination
    assert type(copy) is kind
    assert hash(copy) == hash(destination)
    with pytest.raises(IllegalStateException):
        copy.delete()
    consumer = session.create_consumer(copy)
    send_texts(session, copy, "a")
    assert receive_texts(consumer, 1) == ["a"]


@KINDS
@pytest.mark.parametrize("by_bytes", [False, True], ids=["text", "bytes"])
def test_request_and_reply_between_two_connections(
    session: Session, other_connection: Connection, kind: type[Temporary], by_bytes: bool
) -> None:
    requests = session.create_queue("requests")
    replies = create(session, kind)
    consumer = session.create_consumer(replies)
    answering = other_connection.create_session()
    answers = answering.create_producer()
    replied_to: list[Destination | None] = []

    def answer(request: Message) -> None:
        reply = answering.create_text_message(f"answer to {request.get_body(str)}")
        if by_bytes:
            reply.jms_correlation_id_as_bytes = request.jms_correlation_id_as_bytes
        else:
            reply.jms_correlation_id = request.jms_correlation_id
        replied_to.append(request.jms_reply_to)
        answers.send(reply, request.jms_reply_to)

    answering.create_consumer(requests).message_listener = answer
    producer = session.create_producer(requests)
    for number, identifier in enumerate([b"plain", "größe".encode(), b"\xff\x00\x80"]):
        request = session.create_text_message(str(number))
        request.jms_reply_to = replies
        request.jms_correlation_id_as_bytes = identifier
        producer.send(request)
        reply = receive(consumer)
        assert reply.get_body(str) == f"answer to {number}"
        assert reply.jms_correlation_id_as_bytes == identifier
        assert reply.jms_correlation_id == request.jms_correlation_id
        assert reply.jms_destination == replies
    assert replied_to == [replies] * 3
    assert type(replied_to[0]) is kind


@KINDS
def test_listener_answers_on_it(session: Session, others: Session, kind: type[Temporary]) -> None:
    heard: list[Message] = []
    destination = create(session, kind)
    session.create_consumer(destination).message_listener = heard.append
    send_texts(others, destination, "a", "b")
    wait_for(lambda: len(heard) == 2)
    assert texts_of(heard) == ["a", "b"]


@KINDS
@pytest.mark.parametrize("named", [False, True], ids=["by the producer", "with each send"])
def test_a_transaction_is_refused_sends_to_one_that_was_gone_at_its_last_commit(
    connection: Connection, kind: type[Temporary], *, named: bool
) -> None:
    transacted = connection.create_session(transacted=True)
    destination = create(connection.create_session(), kind)
    producer = transacted.create_producer(None if named else destination)
    sent = destination if named else None
    producer.send(transacted.create_message(), sent)
    destination.delete()
    with pytest.raises(TransactionRolledBackException, match=GONE):
        transacted.commit()
    for _ in range(2):
        with pytest.raises(InvalidDestinationException, match=GONE):
            producer.send(transacted.create_message(), sent)
        transacted.commit()
