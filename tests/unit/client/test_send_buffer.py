"""The statements that a transaction's messages travel by."""

from __future__ import annotations

import pytest

from jmsql import Queue, TextMessage
from jmsql.client.send_buffer import SendBuffer
from jmsql.messages.encoded_message import SendConditions
from jmsql.store.rows.message_rows import OutgoingMessage
from jmsql.store.sending.conditional import ConditionalMessage
from jmsql.store.sending.send import Publisher, insertion
from jmsql.store.statement import Result

ORDERS = Queue("orders")
OUTGOING = OutgoingMessage(
    "orders", 5, "00000000-0000-4000-8000-000000000001", 1, None, 2, *TextMessage("text").encode()
)


def test_messages_without_conditions_are_inserted_as_ever() -> None:
    send_buffer = SendBuffer()
    send_buffer.add(ORDERS, OUTGOING, 4)
    send_buffer.add(ORDERS, OUTGOING, 4)
    assert send_buffer.can_go_with_commit
    steps = send_buffer.flush(Publisher())
    query = next(steps)
    assert query.statement is insertion([OUTGOING, OUTGOING]).statement
    with pytest.raises(StopIteration):
        steps.send(query.statement.decode(Result([], 2)))
    assert not send_buffer


def test_messages_under_conditions_ask_first_and_do_not_go_with_the_commit() -> None:
    send_buffer = SendBuffer()
    send_buffer.add(ORDERS, ConditionalMessage.of(OUTGOING, SendConditions("a", None, replaces=False), ORDERS), 4)
    assert not send_buffer.can_go_with_commit
    assert next(send_buffer.flush(Publisher())).statement.name == "admit"
