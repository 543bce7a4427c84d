"""What an application server gives to a connection consumer (JMS 1.1, chapters 8.2.2 and 8.2.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from jmsql.public_names import set_module

if TYPE_CHECKING:
    from jmsql.client._async.session.session import Session

__all__ = ["ServerSession", "ServerSessionPool"]


@set_module("jmsql.asyncio.connection_consumers")
class ServerSession(Protocol):
    """A session and the thread that runs it."""

    @property
    def session(self) -> Session:
        """The session, whose `message_listener` is set. It is loaded with messages before `start`."""

    async def start(self) -> object:
        """Have a thread call `session.run()` once, and return without waiting for it.

        It is called for each server session taken from the pool, also when there was nothing left to load.
        """


@set_module("jmsql.asyncio.connection_consumers")
class ServerSessionPool(Protocol):
    """Hands out server sessions."""

    async def get_server_session(self) -> ServerSession:
        """Return a server session that is not in use, waiting for one if need be."""
