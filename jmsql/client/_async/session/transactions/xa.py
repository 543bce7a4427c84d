"""The transactions of a session that takes part in global ones, by two-phase commit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from jmsql.client._async.session.locks import Locks
from jmsql.client._async.session.transactions.local import LocalTransaction
from jmsql.client._async.session.transactions.transaction import session_lease
from jmsql.client.instrumentation import settling
from jmsql.concurrency.tasks import run_to_completion
from jmsql.exceptions import (
    IllegalStateException,
    JMSException,
    TransactionInProgressException,
    TransactionRolledBackException,
)
from jmsql.logs import contained_logger
from jmsql.store.global_transactions import Xid, commit_prepared, prepared_transactions, roll_back_prepared

if TYPE_CHECKING:
    from jmsql.client._async.session.session_state import SessionState
    from jmsql.client._async.shared.client_context import ClientContext
    from jmsql.client._async.shared.redelivery import Failure
    from jmsql.store.statement import Steps


logger = contained_logger("jmsql")


# A prepared transaction outlives its connection and its process, and any client may end it by its identifier. That has
# three consequences:
#
# - Its deliveries are counted before it is prepared, in a transaction of their own, as before a rollback: a transaction
#   manager that rolls back knows the identifier, and not the messages. After the commit the counts are of messages that
#   are gone, and are forgotten.
# - Its locks may last for days. So its session locks one message at a time, and no more than it delivers.
# - The session waits for the end, and refuses sends and receipts meanwhile (`is_usable`). If another client has ended
#   the transaction, `_finish_prepared` frees the session, and raises the error nevertheless.
#
# The phases, and the calls that lead from one to the next:
#
# - NONE: `tpc_begin` leads to ACTIVE.
# - ACTIVE: `tpc_commit`, in one phase, and `tpc_rollback` lead to NONE; `tpc_prepare` to PREPARED. A connection that
#   breaks during a preparation, or a commit in one phase, leads to UNKNOWN; any other error that rolls back, to
#   ROLLED_BACK.
# - PREPARED: `tpc_commit` and `tpc_rollback` lead to NONE, but for an error after which they can be called again. The
#   session's end leaves the transaction prepared.
# - ROLLED_BACK and UNKNOWN: only `tpc_rollback` leads on, to NONE. In UNKNOWN it asks the server if the identifier is
#   prepared, and handles both answers: see `_roll_back_own`.


class _Phase(Enum):
    """Where a session is with its global transaction."""

    NONE = auto()
    ACTIVE = auto()
    PREPARED = auto()
    ROLLED_BACK = auto()
    UNKNOWN = auto()
    """The connection broke while it was being prepared, or committed in one phase."""


class _Branch(NamedTuple):
    """A session's part of a global transaction.

    Args:
        phase: Its phase.
        xid: The identifier of the global transaction; None: the session is in none.
    """

    phase: _Phase
    xid: Xid | None


_NO_BRANCH = _Branch(_Phase.NONE, None)


class GlobalTransaction(LocalTransaction):
    """One transaction of PostgreSQL after another, which the session or a transaction manager ends."""

    def __init__(self, state: SessionState, client: ClientContext) -> None:
        database = session_lease(client, transacted=True)
        super().__init__(state, client, database, Locks(database, client.redelivery, is_frugal=True))
        self._branch = _NO_BRANCH
        """The session's part of a global transaction. Replaced whole by `_enter`, under the session's lock."""

    async def begin_branch(self, xid: Xid) -> None:
        """Begin a branch; see `XASession.tpc_begin`."""
        await self.complete("tpc_begin")
        checked = Xid.checked(*xid)
        async with self.state:
            self._check_none("Finish it before you begin another.")
            if self.work.is_used:
                raise TransactionInProgressException(
                    "The session has a transaction of its own open; commit() or rollback() it first."
                )
            self._enter(_Phase.ACTIVE, checked)

    async def prepare(self) -> None:
        """Prepare the branch; see `XASession.tpc_prepare`."""
        await self.complete("tpc_prepare")
        async with self.state:
            xid = self._require(_Phase.ACTIVE)
            async with self._connected(needed=True):
                await run_to_completion(self._prepare(xid))

    @asynccontextmanager
    async def _connected(self, *, needed: bool) -> AsyncIterator[None]:
        """Have the connection by which the transaction ends, as `_hold` does, for as long as a block runs."""
        await self._hold(needed=needed)
        try:
            yield
        finally:
            self.database.release()

    async def _prepare(self, xid: Xid) -> None:
        try:
            self.database.link.require_transaction()
            await self.work.insert()
            await self.work.locks.before_prepare()
            await self.database.prepare(xid.identifier)
        except JMSException as error:
            if error.error_code == "08007":
                self._enter(_Phase.UNKNOWN, xid)
            await self._roll_back_after(error)
        self._enter(_Phase.PREPARED, xid)

    async def commit_branch(self, xid: Xid | None) -> None:
        """Commit a branch; see `XASession.tpc_commit`."""
        await self.complete("tpc_commit")
        async with self.state:
            if xid is not None:
                self._check_none("Leave out the identifier to commit that one.")
                await self._client.run_beside(commit_prepared(Xid.checked(*xid)))
                return
            own = self._require(_Phase.ACTIVE, _Phase.PREPARED)
            async with self._connected(needed=bool(self.work.sends)):
                await run_to_completion(self._commit_own(own))

    async def _commit_own(self, own: Xid) -> None:
        if self._branch.phase is _Phase.ACTIVE:
            try:
                await self._commit()
            except JMSException as error:
                if error.error_code == "08007":
                    self._enter(_Phase.UNKNOWN, own)
                raise
        else:
            with settling(self.state.facts, "commit"):
                await self._finish_prepared(commit_prepared(own))
                await self._forget_deliveries()
                await self.work.committed()
        self._leave()

    async def roll_back_branch(self, xid: Xid | None) -> None:
        """Roll back a branch; see `XASession.tpc_rollback`."""
        await self.complete("tpc_rollback")
        async with self.state:
            if xid is not None:
                self._check_none("Leave out the identifier to roll that one back.")
                await self._client.run_beside(roll_back_prepared(Xid.checked(*xid)))
                return
            await run_to_completion(self._roll_back_own(self._require(*(set(_Phase) - {_Phase.NONE}))))

    async def _roll_back_own(self, own: Xid) -> None:
        with settling(self.state.facts, "rollback"):
            phase = self._branch.phase
            if phase is _Phase.PREPARED:
                await self._finish_prepared(roll_back_prepared(own))
            elif phase is _Phase.UNKNOWN and own in await self.prepared():
                await self._client.run_beside(roll_back_prepared(own))
            await self._undo()
        self._leave()

    async def prepared(self) -> list[Xid]:
        """Return the prepared branches; see `XASession.tpc_recover`."""
        return await self._client.run_beside(prepared_transactions())

    async def commit(self) -> None:
        self._check_none("End it with tpc_commit() or tpc_rollback().")
        await super().commit()

    async def rollback(self, error: BaseException | str | None) -> None:
        self._check_none("End it with tpc_commit() or tpc_rollback().")
        await super().rollback(error)

    @property
    def has_open_transaction(self) -> bool:
        return super().has_open_transaction or self._branch.phase is _Phase.PREPARED

    @property
    def ends_in_two_phases(self) -> bool:
        return self._branch.phase is _Phase.ACTIVE

    def _enter(self, phase: _Phase, xid: Xid | None) -> None:
        self._branch = _Branch(phase, xid)
        self.is_usable = phase in {_Phase.NONE, _Phase.ACTIVE}  # listeners wait until it is

    def check_usable(self) -> None:
        if not self.is_usable:
            calls = "tpc_commit() or tpc_rollback()" if self._branch.phase is _Phase.PREPARED else "tpc_rollback()"
            raise IllegalStateException(
                f"The session waits for the end of its global transaction, {self!r}; call {calls} first."
            )

    def __repr__(self) -> str:
        phase, xid = self._branch
        branch = "" if xid is None else f" {tuple(xid)} {phase.name.lower().replace('_', ' ')}"
        return f"<{self.state.kind}{branch}{' closed' if self.state.closed else ''}>"

    async def _end_rollback(self, failure: Failure | None = None) -> None:
        await super()._end_rollback(failure)
        phase, xid = self._branch
        if phase is _Phase.ACTIVE:
            self._enter(_Phase.ROLLED_BACK, xid)

    async def _finish_prepared(self, finish: Steps[None]) -> None:
        try:
            await self._client.run_beside(finish)
        except IllegalStateException:
            await self._end_rollback()
            self._leave()  # somebody else has finished it
            raise

    async def _forget_deliveries(self) -> None:
        """Forget the deliveries counted before the transaction was prepared; else maintenance does it later."""
        delivered = self.work.locks.delivered
        if delivered:
            try:
                side = self._client.side
                await side.run(side.recipient.forget_deliveries, delivered)
            except JMSException as error:
                logger.info("The deliveries of a committed transaction are forgotten a little later: %s", error)

    def _leave(self) -> None:
        self._enter(*_NO_BRANCH)
        self.state.notifications.notify()

    def _require(self, *phases: _Phase) -> Xid:
        phase, xid = self._branch
        if phase is _Phase.ROLLED_BACK and phase not in phases:
            raise TransactionRolledBackException("The global transaction was rolled back; call tpc_rollback().")
        if phase is _Phase.UNKNOWN and phase not in phases:
            raise IllegalStateException(
                f"The connection broke meanwhile, so it is not known if {self!r} was prepared or committed; call "
                "tpc_rollback(), which rolls it back if it was prepared, and undoes no commit."
            )
        if xid is None:
            raise IllegalStateException("The session is in no global transaction; call tpc_begin() first.")
        if phase not in phases:
            raise IllegalStateException(f"This is too late for {self!r}; call tpc_commit() or tpc_rollback().")
        return xid

    def _check_none(self, advice: str) -> None:
        self.state.check_open()
        xid = self._branch.xid
        if xid is not None:
            raise TransactionInProgressException(
                f"The session is part of the global transaction {tuple(xid)}. {advice}"
            )
