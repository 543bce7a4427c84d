"""The ways to read how messages have ended: beside a client's sessions, or in the caller's transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from jmsql.client.transaction_of_caller import open_transaction
from jmsql.concurrency.tasks import Notifications
from jmsql.exceptions import IllegalStateException

if TYPE_CHECKING:
    from jmsql.client._async.shared.client_context import ClientContext
    from jmsql.store.control.listening import ListeningConnection
    from jmsql.store.statement import Query, Steps


T = TypeVar("T")


# A read beside the client's sessions sees commits alone; a read in the caller's transaction sees its own changes, too.
# The kind of read decides, too, how the caller hears of a result: by its client's control connection, or by a jmsql
# connection of this process to the same database, if there is one.


class Endings(ABC):
    """Reads how messages have ended, and knows who hears of it."""

    @abstractmethod
    async def read(self, find: Callable[[str], Query[T]] | Callable[[str], Steps[T]], message_uuid: str) -> T:
        """Run the statements that `find` returns for a message."""

    @abstractmethod
    async def listening_connection(self) -> ListeningConnection | None:
        """Return a connection that hears of results; None: there is none, and the caller polls."""

    @property
    def transaction(self) -> str | None:
        """The open transaction in which the caller must not wait; None: none is known."""
        return open_transaction()

    def notifications(self) -> Notifications:
        """Make the object that wakes the waiting caller."""
        return Notifications()


class ClientEndings(Endings):
    """Reads beside the sessions of a client.

    Args:
        client: The client.
    """

    def __init__(self, client: ClientContext) -> None:
        self._client = client

    async def read(self, find: Callable[[str], Query[T]] | Callable[[str], Steps[T]], message_uuid: str) -> T:
        if self._client.closed:
            raise IllegalStateException("The connection is closed.")
        return await self._client.side.run(find, message_uuid)

    async def listening_connection(self) -> ListeningConnection | None:
        return self._client.control
