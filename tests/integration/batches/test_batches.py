"""Batches: which messages belong to one, and the message that follows when all have ended."""

from __future__ import annotations

from typing import Any

import pytest

import jmsql
from jmsql import (
    Batch,
    BatchProgress,
    Connection,
    IllegalStateException,
    JMSException,
    MessageFormatException,
    Queue,
    Session,
)
from jmsql.testing import receive_all
from tests.texts import send_texts

MOMENT = 0.05


def callbacks(connection: Connection, queue: str = "ends") -> list[Any]:
    """Receive the bodies of the callbacks."""
    with connection.create_session() as session:
        return [message.get_body(object) for message in receive_all(session.create_consumer(queue))]


def counts(**different: int) -> dict[str, Any]:
    """Return the body of a callback."""
    return {"batch": "import", "total": 0, "done": 0, "failed": 0, "expired": 0, "cancelled": 0, **different}


def progress(connection: Connection, batch: Batch) -> BatchProgress:
    return jmsql.batch_progress(connection, batch.id)


def end_next(session: Session, queue: str = "parts") -> None:
    """Receive a message, and end it with the transaction."""
    message = session.create_consumer(queue).receive(60)
    assert message is not None


def test_the_callback_is_sent_with_the_end_of_the_last_message(connection: Connection, sender: Session) -> None:
    with jmsql.batch(sender, "import", on_end="ends") as batch:
        for number in range(3):
            batch.send("parts", str(number))
    sender.commit()
    assert progress(connection, batch) == BatchProgress(3, 0, 0, 0, 0, 3, False, False)
    for _ in range(2):
        end_next(sender)
        sender.commit()
    assert progress(connection, batch) == BatchProgress(3, 2, 0, 0, 0, 1, False, False)
    end_next(sender)
    assert callbacks(connection) == []
    sender.rollback()
    assert callbacks(connection) == []
    end_next(sender)
    sender.commit()
    assert callbacks(connection) == [counts(total=3, done=3)]
    assert progress(connection, batch) == BatchProgress(3, 3, 0, 0, 0, 0, False, True)


def test_an_empty_batch_ends_with_the_openers_commit(connection: Connection, sender: Session) -> None:
    with jmsql.batch(sender, "import", on_end="ends", on_success="successes", on_failure="failures"):
        pass
    assert callbacks(connection) == []
    sender.commit()
    assert callbacks(connection) == [counts()]
    assert callbacks(connection, "successes") == [counts()]
    assert callbacks(connection, "failures") == []


def test_a_batch_that_is_rolled_back_never_was(connection: Connection, sender: Session) -> None:
    with jmsql.batch(sender, "import", on_end="ends") as batch:
        batch.send("parts", "one")
    sender.rollback()
    with pytest.raises(JMSException, match="no batch"):
        progress(connection, batch)
    assert callbacks(connection) == []


def test_no_callback_comes_while_the_block_is_open(connection: Connection, sender: Session) -> None:
    with jmsql.batch(sender, "import", on_end="ends") as batch:
        batch.send("parts", "one")
        sender.commit()
        with connection.create_session() as other:
            end_next(other)
        assert progress(connection, batch).is_open
        assert callbacks(connection) == []
    sender.commit()
    assert callbacks(connection) == [counts(total=1, done=1)]


def test_a_block_over_a_connection_is_a_transaction(connection: Connection) -> None:
    with pytest.raises(MessageFormatException), jmsql.batch(connection, "import", on_end="ends") as batch:
        batch.send_many("parts", ["one", object()])
    assert callbacks(connection, "parts") == []
    with jmsql.batch(connection, "import", on_end="ends") as batch:
        batch.send_many("parts", ["one", "two"])
        assert callbacks(connection, "parts") == []
    with pytest.raises(IllegalStateException, match="block"):
        batch.send("parts", "three")
    assert callbacks(connection, "parts") == ["one", "two"]
    assert callbacks(connection) == [counts(total=2, done=2)]


@pytest.mark.parametrize("end", ["close", "listener"])
def test_a_consumer_that_ends_its_fetches_undoes_nothing_of_the_batch(
    connection: Connection, sender: Session, end: str
) -> None:
    with connection.create_session() as session:
        send_texts(session, Queue("orders"), *"1234567")
    consumer = sender.create_consumer("orders")
    for _ in range(2):  # it fetches ahead then
        assert consumer.receive(60) is not None
    with jmsql.batch(sender, "import", on_end="ends") as batch:
        batch.send("parts", "one")
    if end == "close":
        consumer.close()
    else:
        consumer.message_listener = lambda _: None
        consumer.close()
    sender.commit()
    with connection.create_session() as session:
        end_next(session)
    assert progress(connection, batch).is_ended
    assert callbacks(connection) == [counts(total=1, done=1)]
