"""What the parts of a session share."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from jmsql.client.acknowledge_mode import AcknowledgeMode
from jmsql.client.client_context import ClientContext
from jmsql.client.observation import SessionFacts
from jmsql.client.wake_ups import WakeUps
from jmsql.store.session_connection import SessionConnection

if TYPE_CHECKING:
    from jmsql.client.message_listener import MessageListener

__all__ = ["SessionState"]


class SessionState:
    """How a session works, and where it is.

    Args:
        client: The session's connection.
        acknowledge_mode: How it acknowledges what it receives.
        kind: What the session is called, for the log.
    """

    def __init__(self, client: ClientContext, acknowledge_mode: AcknowledgeMode, kind: str) -> None:
        self.client = client
        self.acknowledge_mode = acknowledge_mode
        self.kind = kind
        url = client.pool.url
        self.facts = SessionFacts(acknowledge_mode, url.host, url.port, lambda: client.client_id)
        self.database = SessionConnection(
            client.pool,
            client.schema,
            transacted=self.transacted,
            client=client.control,
            restricted=client.is_restricted,
        )
        self.lock = threading.RLock()
        """Held while the session is in use: by a call, or by a listener for as long as it runs."""
        self.wake_ups = WakeUps()
        self.message_listener: MessageListener | None = None
        self.closed = False

    @property
    def transacted(self) -> bool:
        """Whether the session works in transactions."""
        return self.acknowledge_mode is AcknowledgeMode.TRANSACTED

    def __repr__(self) -> str:
        return f"<{self.kind} {self.acknowledge_mode.name}{' closed' if self.closed else ''}>"
