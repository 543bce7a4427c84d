"""Connections, sessions and contexts for global transactions, by two-phase commit (JMS 1.1, chapter 8.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from jmsql.client._async.connection.connection import Connection
from jmsql.client._async.connection.context import JMSContext
from jmsql.client._async.connection.factory import ConnectionFactory
from jmsql.client._async.domains import (
    QueueConnection,
    QueueConnectionFactory,
    QueueSession,
    TopicConnection,
    TopicConnectionFactory,
    TopicSession,
)
from jmsql.client._async.session.session import Session
from jmsql.client._async.session.transactions.xa import GlobalTransaction
from jmsql.client._async.shared.client_context import ClientContext
from jmsql.client.acknowledge_mode import AcknowledgeMode
from jmsql.concurrency.tasks import async_resource
from jmsql.public_names import set_module
from jmsql.store.global_transactions import Xid, require_prepared_transactions

# XA adds to sessions the end of their transactions in two phases; sending and receiving are as in any transacted
# session (`GlobalTransaction`). The identifier of a branch becomes PostgreSQL's name of the prepared transaction. So
# any session can end a branch that it has not prepared, also after its client or the server was restarted.


AnyXASession = TypeVar("AnyXASession", bound="XASession")


@set_module("jmsql.asyncio.xa")
class XAConnection(Connection):
    """A connection that makes sessions for global transactions.

    Made by [`XAConnectionFactory.create_xa_connection`][jmsql.xa.XAConnectionFactory.create_xa_connection].
    """

    async def create_xa_session(self) -> XASession:
        """Make a session for global transactions.

        Raises:
            IllegalStateException: The connection is closed.
            ResourceAllocationException: The server has two-phase commit switched off: its `max_prepared_transactions`
                is 0, the default.
        """
        self._use()
        return await self.open_xa_session(XASession)

    async def open_xa_session(self, kind: type[AnyXASession]) -> AnyXASession:
        """Create an XA session of another class; the client identifier can still be set afterwards."""
        await self._client.run_beside(require_prepared_transactions())
        return self.open_session(kind, AcknowledgeMode.TRANSACTED)


@set_module("jmsql.asyncio.xa")
class XASession(Session):
    """A transacted session that can take part in global transactions.

    Made by [`XAConnection.create_xa_session`][jmsql.xa.XAConnection.create_xa_session]. Its methods follow Python's
    database API for two-phase commit (PEP 249). Between `tpc_begin` and the end of the global transaction `commit` and
    `rollback` are refused; otherwise it is a transacted session like any other.
    """

    _transaction: GlobalTransaction

    def _create_transaction(self, client: ClientContext) -> GlobalTransaction:
        return GlobalTransaction(self._state, client)

    def xid(self, format_id: int, global_transaction_id: str, branch_qualifier: str) -> Xid:
        """Make the identifier of a branch of a global transaction.

        Args:
            format_id: Identifies the transaction manager: 0 to 2,147,483,647.
            global_transaction_id: The same for all branches of one global transaction: up to 64 bytes in UTF-8.
            branch_qualifier: Different for each of its branches: up to 64 bytes.

        Raises:
            ValueError: A part is out of these bounds.
        """
        return Xid.checked(format_id, global_transaction_id, branch_qualifier)

    async def tpc_begin(self, xid: Xid) -> None:
        """Begin a branch of a global transaction: all that the session does from now on is part of it.

        Args:
            xid: Its identifier. No two branches in the database have the same.

        Raises:
            IllegalStateException: The session is closed.
            TransactionInProgressException: The session is part of a global transaction already, or has sent or
                received something that it has neither committed nor rolled back.
        """
        self._check_open()
        await self._transaction.begin_branch(xid)

    async def tpc_prepare(self) -> None:
        """Do all that may fail of the commit: the transaction then waits on the disk for `tpc_commit`.

        Until then, or until `tpc_rollback`, its messages stay locked and the session is of no other use. Both can be
        called on any session of the database, given the identifier, even if this client and the server die meanwhile.

        Raises:
            IllegalStateException: The session is closed, or in no global transaction, or has prepared it.
            TransactionRolledBackException: The transaction was rolled back instead; `tpc_rollback` then frees the
                session.
            JMSException: The connection was cut meanwhile, and the outcome is not known (`error_code` "08007").
        """
        self._check_open()
        await self._transaction.prepare()

    async def tpc_commit(self, xid: Xid | None = None) -> None:
        """Commit a global transaction.

        Without an identifier, the session's. It need not be prepared: if it is the only branch, one phase will do. With
        an identifier, any transaction that is prepared; consumers notice such a commit within a second or so.

        Args:
            xid: The identifier, if it is not the session's own transaction.

        Raises:
            IllegalStateException: The session is closed, or in no global transaction, or none of that identifier is
                prepared.
            TransactionInProgressException: An identifier was given while the session is part of a global transaction.
            TransactionRolledBackException: The transaction was rolled back; `tpc_rollback` then frees the session.
            JMSException: The connection was cut meanwhile, and the outcome is not known (`error_code` "08007"). If it
                was prepared, call `tpc_commit` again: IllegalStateException then says that it is done.
        """
        self._check_open()
        await self._transaction.commit_branch(xid)

    async def tpc_rollback(self, xid: Xid | None = None) -> None:
        """Roll a global transaction back; messages that were received in it are delivered again, as redelivered.

        Args:
            xid: The identifier of one that is prepared, if it is not the session's own.

        Raises:
            IllegalStateException: The session is closed, or in no global transaction, or none of that identifier is
                prepared.
            TransactionInProgressException: An identifier was given while the session is part of a global transaction.
            JMSException: The connection was cut meanwhile, and the outcome is not known (`error_code` "08007"); call it
                again.
        """
        self._check_open()
        await self._transaction.roll_back_branch(xid)

    async def tpc_recover(self) -> list[Xid]:
        """Return the identifiers of all transactions that are prepared in the database, the oldest first.

        Commit or roll back the ones with your transaction manager's `format_id`.

        Raises:
            IllegalStateException: The session is closed.
        """
        self._check_open()
        return await self._transaction.prepared()

    def __repr__(self) -> str:
        return repr(self._transaction)


@set_module("jmsql.asyncio.xa")
class XAJMSContext(JMSContext):
    """A connection and a session for global transactions in one.

    Made by [`XAConnectionFactory.create_xa_context`][jmsql.xa.XAConnectionFactory.create_xa_context]. Its `tpc_`
    methods, `commit` and `rollback` call its [`XASession`][jmsql.xa.XASession]; it refuses the last two within a global
    transaction.
    """

    def __init__(self, session: XASession, connection: XAConnection) -> None:
        super().__init__(session, connection)
        self._xa_session = session

    @property
    def session(self) -> XASession:
        """The session, whose `database` takes part in its transactions, for one."""
        return self._xa_session

    def xid(self, format_id: int, global_transaction_id: str, branch_qualifier: str) -> Xid:
        """Make the identifier of a branch of a global transaction; see [`XASession.xid`][jmsql.xa.XASession.xid]."""
        return self._xa_session.xid(format_id, global_transaction_id, branch_qualifier)

    async def tpc_begin(self, xid: Xid) -> None:
        """Begin a branch of a global transaction; see [`XASession.tpc_begin`][jmsql.xa.XASession.tpc_begin]."""
        await self._xa_session.tpc_begin(xid)

    async def tpc_prepare(self) -> None:
        """Do all that may fail of the commit; see [`XASession.tpc_prepare`][jmsql.xa.XASession.tpc_prepare]."""
        await self._xa_session.tpc_prepare()

    async def tpc_commit(self, xid: Xid | None = None) -> None:
        """Commit a global transaction; see [`XASession.tpc_commit`][jmsql.xa.XASession.tpc_commit]."""
        await self._xa_session.tpc_commit(xid)

    async def tpc_rollback(self, xid: Xid | None = None) -> None:
        """Roll a global transaction back; see [`XASession.tpc_rollback`][jmsql.xa.XASession.tpc_rollback]."""
        await self._xa_session.tpc_rollback(xid)

    async def tpc_recover(self) -> list[Xid]:
        """Return the prepared transactions; see [`XASession.tpc_recover`][jmsql.xa.XASession.tpc_recover]."""
        return await self._xa_session.tpc_recover()


@set_module("jmsql.asyncio.xa")
@dataclass(frozen=True, slots=True)
class XAConnectionFactory(ConnectionFactory):
    """Makes connections for global transactions, and all others that a `ConnectionFactory` makes."""

    @async_resource
    async def create_xa_connection(self, user: str | None = None, password: str | None = None) -> XAConnection:
        """Connect to the database; the connection is stopped.

        Args:
            user: The PostgreSQL role to connect as; None: the URL's.
            password: Its password.

        Raises:
            JMSException: As `create_connection`.
        """
        return await self._connect(XAConnection, user, password)

    @async_resource
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


@set_module("jmsql.asyncio.xa")
@dataclass(frozen=True, slots=True)
class XAQueueConnectionFactory(XAConnectionFactory, QueueConnectionFactory):
    """Makes connections for global transactions on queues, and all others that its base classes make."""

    @async_resource
    async def create_xa_queue_connection(
        self, user: str | None = None, password: str | None = None
    ) -> XAQueueConnection:
        """Connect to the database; the connection is stopped.

        Args:
            user: The PostgreSQL role to connect as; None: the URL's.
            password: Its password.

        Raises:
            JMSException: As `create_connection`.
        """
        return await self._connect(XAQueueConnection, user, password)


@set_module("jmsql.asyncio.xa")
class XAQueueConnection(XAConnection, QueueConnection):
    """A connection that makes sessions for global transactions on queues.

    Made by
    [`XAQueueConnectionFactory.create_xa_queue_connection`][jmsql.xa.XAQueueConnectionFactory.create_xa_queue_connection].
    """

    async def create_xa_queue_session(self) -> XAQueueSession:
        """Make a session for global transactions on queues.

        Raises:
            IllegalStateException: The connection is closed.
            ResourceAllocationException: The server has two-phase commit switched off.
        """
        self._use()
        return await self.open_xa_session(XAQueueSession)


@set_module("jmsql.asyncio.xa")
class XAQueueSession(XASession, QueueSession):
    """A session for queues, as a [`QueueSession`][jmsql.domains.QueueSession] is, and for global transactions.

    Made by [`XAQueueConnection.create_xa_queue_session`][jmsql.xa.XAQueueConnection.create_xa_queue_session].
    """


@set_module("jmsql.asyncio.xa")
@dataclass(frozen=True, slots=True)
class XATopicConnectionFactory(XAConnectionFactory, TopicConnectionFactory):
    """Makes connections for global transactions on topics, and all others that its base classes make."""

    @async_resource
    async def create_xa_topic_connection(
        self, user: str | None = None, password: str | None = None
    ) -> XATopicConnection:
        """Connect to the database; the connection is stopped.

        Args:
            user: The PostgreSQL role to connect as; None: the URL's.
            password: Its password.

        Raises:
            JMSException: As `create_connection`.
        """
        return await self._connect(XATopicConnection, user, password)


@set_module("jmsql.asyncio.xa")
class XATopicConnection(XAConnection, TopicConnection):
    """A connection that makes sessions for global transactions on topics.

    Made by
    [`XATopicConnectionFactory.create_xa_topic_connection`][jmsql.xa.XATopicConnectionFactory.create_xa_topic_connection].
    """

    async def create_xa_topic_session(self) -> XATopicSession:
        """Make a session for global transactions on topics.

        Raises:
            IllegalStateException: The connection is closed.
            ResourceAllocationException: The server has two-phase commit switched off.
        """
        self._use()
        return await self.open_xa_session(XATopicSession)


@set_module("jmsql.asyncio.xa")
class XATopicSession(XASession, TopicSession):
    """A session for topics, as a [`TopicSession`][jmsql.domains.TopicSession] is, and for global transactions.

    Made by [`XATopicConnection.create_xa_topic_session`][jmsql.xa.XATopicConnection.create_xa_topic_session].
    """
