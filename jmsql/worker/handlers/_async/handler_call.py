"""A message on its way to a handler, and what the handler can ask for beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from jmsql.client._async.connection.context import JMSContext
from jmsql.client._async.session.session import Session
from jmsql.concurrency import ASYNC
from jmsql.messages import Message

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    if ASYNC:
        from sqlalchemy.ext.asyncio import AsyncSession as DatabaseSession
    else:
        from sqlalchemy.orm import Session as DatabaseSession

__all__ = ["HandlerCall"]

AnySession = TypeVar("AnySession", bound="DatabaseSession")


class HandlerCall:
    """A message on its way to a handler.

    Args:
        message: The message.
        session: The session that has received it.
        exits: Ends what was made for the handler, when it has returned or failed.
    """

    def __init__(self, message: Message, session: Session, exits: AsyncExitStack) -> None:
        self.message = message
        self.session = session
        self._exits = exits

    def context(self) -> JMSContext:
        """Return the session as a context."""
        return JMSContext(self.session)

    async def database(self) -> AsyncConnection:
        """Return the connection of the message's transaction."""
        return await self.session.get_database()

    async def orm_session(self, kind: type[AnySession]) -> AnySession:
        """Return a session of SQLAlchemy's in the message's transaction, which is flushed when the handler returns.

        Args:
            kind: Its class.
        """
        return await self._exits.enter_async_context(_orm_session(kind, await self.database()))


@asynccontextmanager
async def _orm_session(kind: type[AnySession], connection: AsyncConnection) -> AsyncIterator[AnySession]:
    # Its commit and rollback end at a savepoint: a handler that calls them does not touch the message.
    async with kind(bind=connection, join_transaction_mode="create_savepoint") as database:
        yield database
        await database.commit()
