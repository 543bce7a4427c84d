"""The administered object that connections for global transactions are made from (JMS 1.1, chapter 8.3)."""

from __future__ import annotations

from dataclasses import dataclass

from jmsql.client._async.connection.factory import ConnectionFactory
from jmsql.client._async.xa.xa import XAConnection, XASession
from jmsql.client._async.xa.xa_context import XAJMSContext
from jmsql.concurrency.tasks import opens
from jmsql.public_names import set_module

__all__ = ["XAConnectionFactory"]


@set_module("jmsql.asyncio.xa")
@dataclass(frozen=True, slots=True)
class XAConnectionFactory(ConnectionFactory):
    """Makes connections for global transactions, and all others that a `ConnectionFactory` makes."""

    @opens
    async def create_xa_connection(self, user: str | None = None, password: str | None = None) -> XAConnection:
        """Connect to the database; the connection is stopped.

        Args:
            user: The PostgreSQL role to connect as; None: the URL's.
            password: Its password.

        Raises:
            JMSException: As `create_connection`.
        """
        return await self._connect(XAConnection, user, password)

    @opens
    async def create_xa_context(self, user: str | None = None, password: str | None = None) -> XAJMSContext:
        """Connect to the database and make a session for global transactions, as one object.

        Args:
            user: The PostgreSQL role to connect as; None: the URL's.
            password: Its password.

        Raises:
            ResourceAllocationException: As [`create_xa_session`][jmsql.xa.XAConnection.create_xa_session].
            JMSException: As `create_connection`.
        """
        connection = await self.create_xa_connection(user, password)
        try:
            return XAJMSContext(await connection.open_xa_session(XASession), connection)
        except BaseException:
            await connection.close()
            raise
