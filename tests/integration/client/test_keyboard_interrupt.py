"""Ctrl-C in the midst of a call, in a program that goes on: what the call may have claimed comes again."""

from __future__ import annotations

from typing import Any

import pytest

from jmsql import AcknowledgeMode, ConnectionFactory, Queue
from jmsql.admin import Administration
from jmsql.store.wire._sync.runner import WireConnection

ORDERS = Queue("orders")


class Interruption:
    """Raises KeyboardInterrupt after one of the exchanges with the server, when that has done what it is to do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        exchange = WireConnection.exchange

        def interrupted(connection: WireConnection, *arguments: Any, **options: Any) -> Any:
            outcome = exchange(connection, *arguments, **options)
            if self.left is not None:
                if self.left == 0:
                    self.left = None
                    raise KeyboardInterrupt
                self.left -= 1
            return outcome

        monkeypatch.setattr(WireConnection, "exchange", interrupted)


@pytest.mark.parametrize("mode", [AcknowledgeMode.TRANSACTED, AcknowledgeMode.CLIENT])
@pytest.mark.parametrize("exchanges", [0, 1, 2])
def test_a_message_whose_receive_is_interrupted_comes_again(
    jmsql_factory: ConnectionFactory,
    jmsql_clean_url: str,
    monkeypatch: pytest.MonkeyPatch,
    mode: AcknowledgeMode,
    exchanges: int,
) -> None:
    with Administration(jmsql_clean_url) as administration:
        administration.create_queue("orders", maximum_deliveries=5)
    interruption = Interruption(monkeypatch)
    with jmsql_factory.create_connection() as connection:
        connection.start()
        session = connection.create_session(mode)
        with jmsql_factory.create_context() as context:
            context.create_producer().send(ORDERS, "a")
        consumer = session.create_consumer(ORDERS)
        interruption.left = exchanges
        try:
            received = consumer.receive(timeout=0.2)
        except KeyboardInterrupt:
            received = None
        interruption.left = None
        if received is None:
            received = consumer.receive(timeout=20)
        assert received is not None
        assert received.get_body(str) == "a"
        if session.transacted:
            session.commit()
        else:
            received.acknowledge()
        assert consumer.receive(timeout=0) is None
