"""Sessions inside the caller's own transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from jmsql.client._async.session.receiving import Receiving
from jmsql.client._async.session.session import Session
from jmsql.client._async.session.session_state import SessionState
from jmsql.client._async.session.transactions.enlisted import EnlistedTransaction
from jmsql.client._async.shared.client_context import Client
from jmsql.client.acknowledge_mode import AcknowledgeMode
from jmsql.client.instrumentation import SessionFacts
from jmsql.client.start_reminder import StartReminder
from jmsql.exceptions import IllegalStateException
from jmsql.store.control.server import ServerClock
from jmsql.timings import InternalTimings

if TYPE_CHECKING:
    from jmsql.client._async.session.transactions.caller import CallerTransaction
    from jmsql.client.listeners import MessageListener


class EnlistedSession(Session):
    """A session whose transaction is the caller's: it never commits, rolls back, or starts a thread."""

    def __init__(self, transaction: CallerTransaction, schema: str, timings: InternalTimings) -> None:
        client = Client(
            schema=schema,
            timings=timings,
            clock=ServerClock(timings),  # not asked: nothing is fetched ahead, and could expire here
            counters=None,
            start_reminder=StartReminder(timings.start_reminder_delay),
            started=True,
        )
        self._state = SessionState(client, AcknowledgeMode.TRANSACTED, SessionFacts(), type(self).__name__)
        self._transaction = EnlistedTransaction(self._state, transaction)
        self._receiving = Receiving(self._state, self._transaction)

    def _check_open(self) -> None:
        self._state.check_open()

    def set_message_listener(self, listener: MessageListener | None) -> NoReturn:  # noqa: ARG002 - always refused
        self._refuse_listeners()

    async def run(self) -> NoReturn:
        self._refuse_listeners()

    def _refuse_listeners(self) -> NoReturn:
        raise IllegalStateException("A session in your transaction has no listeners; call receive() instead.")

    async def close(self) -> None:
        """End the session; its sent and received messages stay part of the transaction."""
        self._state.close()
        self._state.notifications.notify()
