"""Session.commit: JMS 1.1 chapters 4.4.7 and 7.3."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
import sqlalchemy

from jmsql import Connection, Message, Queue, Session, TransactionRolledBackException
from jmsql.testing import receive_all
from tests.compliance.places import Place
from tests.texts import receive_texts, send_texts, texts_of

pytestmark = pytest.mark.usefixtures("shared_connection")

TEXTS = ["a", "b", "c"]


@pytest.fixture
def answers(queue: Queue) -> Queue:
    """Another queue without messages."""
    return Queue(f"{queue.name} answers")


@pytest.fixture
def transacted(connection: Connection) -> Session:
    return connection.create_session(transacted=True)


@pytest.mark.requirement("session.transactions")
@pytest.mark.case("session-commit-01")
def test_messages_are_seen_when_their_transaction_is_committed(
    transacted: Session, session: Session, place: Place
) -> None:
    others = place.consumer(session)
    producer = transacted.create_producer(place.destination)
    for _ in range(2):  # one transaction after another
        for text in TEXTS:
            producer.send(transacted.create_text_message(text))
            assert others.receive(timeout=0) is None
        transacted.commit()
        assert texts_of(receive_all(others)) == TEXTS


@pytest.mark.requirement("session.transactions")
@pytest.mark.case("session-commit-01")
def test_messages_received_in_a_transaction_are_gone_when_it_is_committed(
    connection: Connection, transacted: Session, session: Session, place: Place
) -> None:
    send_texts(session, place.destination, *TEXTS)
    consumer = place.consumer(transacted)
    for text in TEXTS:
        assert receive_texts(consumer, 1) == [text]
        transacted.commit()
    transacted.rollback()
    assert receive_all(consumer) == []
    transacted.close()
    assert receive_all(place.consumer(session)) == []
    assert receive_all(place.consumer(connection.create_session(transacted=True))) == []


@pytest.mark.requirement("session.transactions")
@pytest.mark.case("session-commit-01")
def test_sending_and_receiving_are_one_unit(
    transacted: Session, session: Session, place: Place, answers: Queue
) -> None:
    send_texts(session, place.destination, *TEXTS)
    consumer, producer = place.consumer(transacted), transacted.create_producer(answers)
    for text in receive_texts(consumer, 2):
        producer.send(transacted.create_text_message(f"answer to {text}"))
    assert receive_all(session.create_consumer(answers)) == []
    transacted.commit()
    assert texts_of(receive_all(session.create_consumer(answers))) == ["answer to a", "answer to b"]
    transacted.rollback()
    assert texts_of(receive_all(consumer)) == ["c"]


@pytest.mark.requirement("session.transactions")
@pytest.mark.case("session-commit-01")
def test_transaction_does_not_receive_its_own_messages(transacted: Session, place: Place) -> None:
    consumer = place.consumer(transacted)
    transacted.create_producer(place.destination).send(transacted.create_text_message("a"))
    assert consumer.receive(timeout=0) is None
    transacted.commit()
    assert receive_texts(consumer, 1) == ["a"]


@pytest.mark.requirement("session.ack.closedconsumer", "session.transactions")
@pytest.mark.case("session-commit-02")
def test_commit_covers_producers_and_consumers_that_are_closed(
    transacted: Session, session: Session, place: Place, answers: Queue
) -> None:
    send_texts(session, place.destination, *TEXTS)
    with place.consumer(transacted) as consumer:
        assert receive_texts(consumer, 2) == ["a", "b"]
    with transacted.create_producer(answers) as producer:
        producer.send(transacted.create_text_message("answer"))
    transacted.commit()
    transacted.close()
    assert texts_of(receive_all(session.create_consumer(answers))) == ["answer"]
    assert texts_of(receive_all(place.consumer(session))) == ["c"]


@pytest.mark.requirement("session.transactions")
def test_commit_of_nothing_changes_nothing(transacted: Session, session: Session, place: Place) -> None:
    transacted.commit()
    send_texts(session, place.destination, *TEXTS)
    transacted.commit()
    assert texts_of(receive_all(place.consumer(transacted))) == TEXTS


@pytest.mark.requirement("session.transactions")
def test_listener_commits(transacted: Session, session: Session, place: Place, answers: Queue) -> None:
    producer = transacted.create_producer(answers)

    def answer(message: Message) -> None:
        producer.send(transacted.create_text_message(f"answer to {message.get_body(str)}"))
        if message.get_body(str) == "c":
            transacted.commit()

    place.consumer(transacted).message_listener = answer
    send_texts(session, place.destination, *TEXTS)
    assert receive_texts(session.create_consumer(answers), 3) == ["answer to a", "answer to b", "answer to c"]
    transacted.close()
    assert receive_all(place.consumer(session)) == []


@pytest.fixture
def table(jmsql_url: str) -> Iterator[None]:
    """A table which finds at the commit that a row is there twice."""
    with psycopg.connect(jmsql_url, autocommit=True) as connection:
        connection.execute("create table delivered (number int unique deferrable initially deferred)")
        yield
        connection.execute("drop table delivered")


@pytest.mark.own_connection
@pytest.mark.requirement("session.transactions.commitrolledback", "message.redelivered.receive")
def test_commit_that_ends_in_a_rollback_says_so(
    transacted: Session, session: Session, place: Place, table: None, answers: Queue
) -> None:
    send_texts(session, place.destination, *TEXTS)
    consumer = place.consumer(transacted)
    assert receive_texts(consumer, 2) == ["a", "b"]
    transacted.create_producer(answers).send(transacted.create_text_message("answer"))
    transacted.database.execute(sqlalchemy.text("insert into delivered values (1), (1)"))
    with pytest.raises(TransactionRolledBackException, match="duplicate key") as failure:
        transacted.commit()
    assert failure.value.error_code == "23505"
    assert isinstance(failure.value.linked_exception, Exception)

    assert receive_all(session.create_consumer(answers)) == []
    again = receive_all(consumer)
    assert [(message.get_body(str), message.jms_redelivered) for message in again] == [
        ("a", True),
        ("b", True),
        ("c", False),
    ]
    transacted.commit()


@pytest.mark.own_connection
@pytest.mark.requirement("session.transactions.commitrolledback")
def test_commit_after_a_statement_failed_is_a_rollback(transacted: Session, session: Session, place: Place) -> None:
    send_texts(session, place.destination, *TEXTS)
    consumer = place.consumer(transacted)
    assert receive_texts(consumer, 1) == ["a"]
    with pytest.raises(sqlalchemy.exc.DataError):
        transacted.database.execute(sqlalchemy.text("select 1 / 0"))
    with pytest.raises(TransactionRolledBackException, match="failed before"):
        transacted.commit()
    assert texts_of(receive_all(consumer)) == TEXTS
    transacted.commit()
    assert receive_all(place.consumer(session)) == []
