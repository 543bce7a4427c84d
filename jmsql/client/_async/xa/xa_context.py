"""The simplified interface for global transactions (Jakarta Messaging 3.1, chapter 2.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jmsql.client._async.connection.context import JMSContext
from jmsql.public_names import set_module

if TYPE_CHECKING:
    from jmsql.client._async.xa.xa import XAConnection, XASession
    from jmsql.store.global_transactions import Xid

__all__ = ["XAJMSContext"]


@set_module("jmsql.asyncio.xa")
class XAJMSContext(JMSContext):
    """A connection and a session for global transactions in one.

    Made by [`XAConnectionFactory.create_xa_context`][jmsql.xa.XAConnectionFactory.create_xa_context]. Its `tpc_`
    methods are those of its [`XASession`][jmsql.xa.XASession], and so are `commit` and `rollback`, which it refuses
    within a global transaction.
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
        """Return what is prepared in the database; see [`XASession.tpc_recover`][jmsql.xa.XASession.tpc_recover]."""
        return await self._xa_session.tpc_recover()
