"""How many calls lie between the application and PostgreSQL."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import psycopg
import pytest

from jmsql import AcknowledgeMode, Connection, MessageConsumer, MessageProducer, Queue, Session

pytestmark = pytest.mark.usefixtures("shared_connection")

_TO_SEND = 7
_TO_RECEIVE = 8

# A round in which a statement is prepared goes deeper, and which statement is run depends on what the queue holds.
_ROUNDS = 5


class CallDepth:
    """Counts the calls of jmsql's functions that are open while PostgreSQL is waited for."""

    def __init__(self) -> None:
        self.deepest: list[str] = []
        self._open: list[str] = []
        self._waits = 0

    def measure(self, function: Callable[[], object]) -> None:
        """Call a function, and note where it was deepest."""
        sys.setprofile(self._note)
        try:
            function()
        finally:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, value: Any) -> None:
        if frame.f_code is psycopg.Connection.wait.__code__:
            self._waits += {"call": 1, "return": -1}.get(event, 0)
        elif frame.f_globals["__name__"].startswith("jmsql."):
            if event == "call":
                self._open.append(frame.f_code.co_name)
            elif event == "return":
                # What a generator yields to psycopg is what it waits for.
                yields = frame.f_code.co_flags & inspect.CO_GENERATOR and isinstance(value, int)
                if self._waits and yields and len(self._open) > len(self.deepest):
                    self.deepest = list(self._open)
                self._open.pop()


def _round(session: Session, producer: MessageProducer, consumer: MessageConsumer) -> tuple[CallDepth, CallDepth]:
    """Send a message and receive it, and return what lay in between each time."""
    sending, receiving = CallDepth(), CallDepth()
    if not session.transacted:
        list(session.create_browser(Queue("another")))  # so that the commit of the round before is answered
    sending.measure(lambda: producer.send(session.create_text_message("x")))
    if session.transacted:
        sending.measure(session.commit)
    receiving.measure(lambda: consumer.receive(5))
    if session.transacted:
        session.commit()
    else:
        session.acknowledge()
    return sending, receiving


@pytest.mark.parametrize("mode", AcknowledgeMode)
def test_message_goes_to_its_row_in_seven_calls_and_comes_back_in_eight(
    connection: Connection, queue: Queue, mode: AcknowledgeMode
) -> None:
    connection.start()
    transacted = mode is AcknowledgeMode.TRANSACTED
    acknowledge_mode = AcknowledgeMode.AUTO if transacted else mode
    with connection.create_session(transacted, acknowledge_mode) as session:
        producer, consumer = session.create_producer(queue), session.create_consumer(queue)
        rounds = [_round(session, producer, consumer) for _ in range(_ROUNDS)]
    for depths, most in zip(zip(*rounds, strict=True), (_TO_SEND, _TO_RECEIVE), strict=True):
        shallowest = min((depth.deepest for depth in depths), key=len)
        assert 0 < len(shallowest) <= most, shallowest
