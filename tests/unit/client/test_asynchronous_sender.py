"""The thread that sends asynchronously, when an insertion ends by another exception than a failure of the server."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Sequence
from typing import cast

import pytest

from jmsql import JMSException, Message, Queue, TextMessage
from jmsql.client._sync.session.asynchronous_sender import AsynchronousSender
from jmsql.client.listeners import AsynchronousSend
from jmsql.store.rows.message_rows import OutgoingMessage
from tests.background import Background


@pytest.mark.parametrize("error", [SystemExit(3), CancelledError(), ValueError("a mistake")])
def test_an_insertion_that_raises_fails_its_messages_alone(error: BaseException) -> None:
    errors = [error]
    outcomes: list[JMSException | None] = []

    def insert(batch: Sequence[AsynchronousSend]) -> list[JMSException | None]:
        if errors:
            raise errors.pop()
        return [None] * len(batch)

    def completed(message: Message, error: JMSException | None) -> None:
        outcomes.append(error)

    send = AsynchronousSend(Queue("orders"), cast(OutgoingMessage, None), TextMessage("a"), completed, 1)
    sender = AsynchronousSender(insert)
    sender.start()
    for _ in range(2):
        sender.submit(send)
        Background(sender.wait_until_told).result(20)
    sender.close()
    failure, success = outcomes
    assert type(error).__name__ in str(failure)
    assert success is None
