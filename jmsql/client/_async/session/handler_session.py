"""Sessions whose messages a worker gives to the handlers of an application."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from jmsql.client import instrumentation
from jmsql.client._async.session.session import Session

if TYPE_CHECKING:
    from jmsql.client._async.session.sessions import Sessions
    from jmsql.client._async.shared.client_context import ClientContext
    from jmsql.client.acknowledge_mode import AcknowledgeMode
    from jmsql.messages import Message

__all__ = ["HandlerSession"]


class HandlerSession(Session):
    """A session that is watched while a handler works in it."""

    def __init__(self, client: ClientContext, acknowledge_mode: AcknowledgeMode, sessions: Sessions) -> None:
        super().__init__(client, acknowledge_mode, sessions)
        # The call of the handler tells the instrumentation of the message; the wait for it does not.
        self._receiving.followed = None
        self._state.database.share_connections()

    def processing(self, message: Message) -> AbstractContextManager[object]:
        """Let the instrumentation, if there is any, follow the call of a handler."""
        return instrumentation.processing(self._state.facts, message)

    async def interrupt(self, timeout: float) -> None:
        """Interrupt the statement that runs in the transaction, if one does; may be called from another thread.

        Args:
            timeout: How many seconds that may take.

        Raises:
            JMSException: The server could not be told.
        """
        await self._state.database.interrupt(timeout)
