"""Sessions whose messages a worker gives to the handlers of an application."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from jmsql.client import observation
from jmsql.client.session import Session

if TYPE_CHECKING:
    import sqlalchemy

    from jmsql.client.acknowledge_mode import AcknowledgeMode
    from jmsql.client.connection import Connection
    from jmsql.client.consumer_state import ConsumerState
    from jmsql.client.message_listener import MessageCheck
    from jmsql.messages import Message

__all__ = ["HandlerSession", "open_handler_session"]


class HandlerSession(Session):
    """A session that is watched while a handler works in it."""

    def _follow_receive(
        self, consumer: ConsumerState, timeout: float | None, check: MessageCheck | None
    ) -> Message | None:
        # No observer is told of the wait: the call of the handler tells of the message.
        return self._receive(consumer, timeout, check)

    def processing(self, message: Message) -> AbstractContextManager[object]:
        """Let the observer, if there is one, follow the call of a handler."""
        return observation.processing(self._facts, message)

    @property
    def transaction(self) -> sqlalchemy.Connection:
        """The connection on which the transaction runs, to interrupt its statement; handlers get `database`."""
        return self._state.database.sqlalchemy


def open_handler_session(connection: Connection, transacted: bool, acknowledge_mode: AcknowledgeMode) -> HandlerSession:
    """Make a session of a connection, as `Connection.create_session` does."""
    return connection.open_session(HandlerSession, transacted, acknowledge_mode)
