"""A session's listeners run one at a time: JMS 1.1 chapter 4.4.14."""

from __future__ import annotations

import threading

import pytest

from jmsql import AcknowledgeMode, Connection, Message, Queue, Session
from jmsql.testing import wait_for
from tests.compliance.held_listener import HeldListener
from tests.texts import send_texts

pytestmark = pytest.mark.routes
MODES = pytest.mark.parametrize("mode", list(AcknowledgeMode))
QUEUES = [Queue("first"), Queue("second"), Queue("third")]


class MeetingListener:
    """Waits in each call for a moment, to see whether it meets another call."""

    def __init__(self) -> None:
        self._barrier = threading.Barrier(2)
        self.calls = 0
        self.meetings = 0

    def on_message(self, message: Message) -> None:
        """Take a message."""
        try:
            self._barrier.wait(timeout=0.02)
            self.meetings += 1
        except threading.BrokenBarrierError:
            self._barrier.reset()
        self.calls += 1


@pytest.mark.requirement("session.listener.serialization")
@pytest.mark.case("session-listener-serial-01")
@MODES
def test_listeners_of_one_session_never_meet(connection: Connection, session: Session, mode: AcknowledgeMode) -> None:
    listening = connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode)
    listener = MeetingListener()
    for queue in [*QUEUES, QUEUES[0]]:
        listening.create_consumer(queue).message_listener = listener
    for queue in QUEUES:
        send_texts(session, queue, "a", "b", "c")
    wait_for(lambda: listener.calls == 9)
    assert listener.meetings == 0


@pytest.mark.requirement("session.listener.serialization")
@pytest.mark.case("session-listener-serial-01")
def test_other_deliveries_wait_while_a_listener_runs(connection: Connection, session: Session) -> None:
    listening = connection.create_session()
    held, waiting = HeldListener(), HeldListener()
    waiting.release()
    listening.create_consumer(QUEUES[0]).message_listener = held
    listening.create_consumer(QUEUES[1]).message_listener = waiting
    send_texts(session, QUEUES[0], "a")
    held.wait_until_called()
    # Another session's listener is called: so there was time to call the one that waits.
    other = HeldListener()
    other.release()
    connection.create_session().create_consumer(QUEUES[2]).message_listener = other
    send_texts(session, QUEUES[1], "b")
    send_texts(session, QUEUES[2], "c")
    other.wait_until_called()
    assert waiting.messages == []
    assert not held.has_returned
    held.release()
    waiting.wait_until_called()
    assert held.has_returned


@pytest.mark.requirement("session.listener.serialization")
def test_listeners_of_two_sessions_run_side_by_side(connection: Connection, session: Session) -> None:
    both_run = threading.Barrier(2)
    met: list[Message] = []

    def meet(message: Message) -> None:
        both_run.wait(timeout=60)
        met.append(message)

    for queue in QUEUES[:2]:
        connection.create_session().create_consumer(queue).message_listener = meet
        send_texts(session, queue, "a")
    wait_for(lambda: len(met) == 2)
