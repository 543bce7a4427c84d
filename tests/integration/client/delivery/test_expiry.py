"""Messages that expire: JMS 1.1 chapter 3.4.9."""

from __future__ import annotations

import pytest

from jmsql import AcknowledgeMode, Message, Queue, Session
from jmsql.testing import receive_all, wait_for
from tests.integration.client.server import Server
from tests.slowness import scaled
from tests.texts import receive, receive_texts, send_texts, texts_of

MODES = pytest.mark.parametrize("mode", list(AcknowledgeMode))
LIVES_A_SECOND = pytest.mark.parametrize("time_to_live", [1.0])


@pytest.fixture
def time_to_live() -> float:
    """Seconds that the mortal message lives: a moment, unless something is to happen before it expires."""
    return 0.05


@pytest.fixture
def mortal(session: Session, queue: Queue, server: Server, time_to_live: float) -> Message:
    """A message that has expired after one that has not."""
    send_texts(session, queue, "immortal")
    message = session.create_text_message("mortal")
    message.set_string_property("colour", "blue")
    session.create_producer(queue).send(message, time_to_live=scaled(time_to_live))
    return message


def wait_until_expired(server: Server, message: Message) -> None:
    """Return when the message is past its time on the server."""
    wait_for(
        lambda: server.rows("select jmsql_internal.current_milliseconds() >= %s", message.jms_expiration) == [(True,)]
    )


def waiting_messages(server: Server, queue: Queue) -> int:
    count: int = server.rows(
        "select count(*) from jmsql_internal.message join jmsql_internal.queue using (queue_id) where name = %s",
        queue.name,
    )[0][0]
    return count


@MODES
def test_expired_message_is_not_delivered(mode_session: Session, queue: Queue, server: Server, mortal: Message) -> None:
    wait_until_expired(server, mortal)
    assert texts_of(mode_session.create_browser(queue)) == ["immortal"]
    assert texts_of(receive_all(mode_session.create_consumer(queue))) == ["immortal"]


def test_listener_does_not_hear_an_expired_message(
    session: Session, others: Session, queue: Queue, server: Server, mortal: Message
) -> None:
    wait_until_expired(server, mortal)
    heard: list[Message] = []
    session.create_consumer(queue).message_listener = heard.append
    send_texts(others, queue, "last")
    wait_for(lambda: heard and heard[-1].get_body(str) == "last")
    assert texts_of(heard) == ["immortal", "last"]


@LIVES_A_SECOND
@MODES
def test_message_that_expires_while_it_is_held_can_be_acknowledged(
    mode_session: Session, session: Session, queue: Queue, server: Server, mortal: Message, mode: AcknowledgeMode
) -> None:
    consumer = mode_session.create_consumer(queue)
    assert receive_texts(consumer, 1) == ["immortal"]
    received = receive(consumer)
    wait_until_expired(server, mortal)
    assert received.get_body(str) == "mortal"
    received.acknowledge()
    if mode is AcknowledgeMode.TRANSACTED:
        mode_session.commit()
    mode_session.close()
    assert waiting_messages(server, queue) == 0


@LIVES_A_SECOND
@pytest.mark.parametrize("mode", [AcknowledgeMode.TRANSACTED, AcknowledgeMode.CLIENT])
def test_message_that_expired_meanwhile_does_not_come_again(
    mode_session: Session, queue: Queue, server: Server, mortal: Message
) -> None:
    consumer = mode_session.create_consumer(queue)
    assert receive_texts(consumer, 2) == ["immortal", "mortal"]
    wait_until_expired(server, mortal)
    if mode_session.transacted:
        mode_session.rollback()
    else:
        mode_session.recover()
    assert texts_of(receive_all(consumer)) == ["immortal"]


def test_expired_message_is_destroyed(queue: Queue, server: Server, mortal: Message) -> None:
    wait_for(lambda: waiting_messages(server, queue) == 1)
    assert server.rows("select count(*) from jmsql_internal.delivery") == [(0,)]


@LIVES_A_SECOND
def test_expired_message_moves_to_the_expiry_queue(
    session: Session, queue: Queue, server: Server, mortal: Message
) -> None:
    expired = Queue("expired")
    waiting = session.create_consumer(expired)
    server.rows(
        "update jmsql_internal.queue set expiry_queue_id = (select e.queue_id "
        "from jmsql_internal.queue e where e.name = %s) "
        "where name = %s",
        expired.name,
        queue.name,
    )
    moved = receive(waiting)
    assert moved.get_body(str) == "mortal"
    assert moved.get_string_property("colour") == "blue"
    assert moved.jms_message_id == mortal.jms_message_id
    assert moved.jms_timestamp == mortal.jms_timestamp
    assert moved.jms_expiration == 0, "it does not expire again"
    assert not moved.jms_redelivered
    assert texts_of(receive_all(session.create_consumer(queue))) == ["immortal"]
