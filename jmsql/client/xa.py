"""Sessions that take part in global transactions, by two-phase commit (JMS 1.1, chapter 8.3)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeVar

from jmsql.client.acknowledge_mode import AcknowledgeMode
from jmsql.client.client_context import ClientContext
from jmsql.client.connection import Connection
from jmsql.client.frugal_delivery import FrugalDelivery
from jmsql.client.locked_delivery import LockedDelivery
from jmsql.client.observation import settling
from jmsql.client.session import Session, SessionOwner
from jmsql.exceptions import (
    IllegalStateException,
    JMSException,
    TransactionInProgressException,
    TransactionRolledBackException,
)
from jmsql.public_names import set_module
from jmsql.store.global_transactions import GlobalTransactions, Xid

if TYPE_CHECKING:
    import sqlalchemy

    from jmsql.client.completion import AsynchronousSend
    from jmsql.client.consumer_state import ConsumerState
    from jmsql.client.message_listener import MessageCheck
    from jmsql.destinations import Destination
    from jmsql.messages import Message
    from jmsql.selectors import Selector
    from jmsql.store.rows import MessageRow, OutgoingMessage

__all__ = ["XAConnection", "XASession"]

logger = logging.getLogger("jmsql")

AnyXASession = TypeVar("AnyXASession", bound="XASession")


@set_module("jmsql.xa")
class XAConnection(Connection):
    """A connection that makes sessions for global transactions.

    Made by [`XAConnectionFactory.create_xa_connection`][jmsql.xa.XAConnectionFactory.create_xa_connection].
    """

    def create_xa_session(self) -> XASession:
        """Make a session for global transactions.

        Raises:
            IllegalStateException: The connection is closed.
            ResourceAllocationException: The server has two-phase commit switched off: its `max_prepared_transactions`
                is 0, which it is unless somebody has set it.
        """
        return self._open_xa_session(XASession)

    def _open_xa_session(self, kind: type[AnyXASession]) -> AnyXASession:
        self._use()
        GlobalTransactions(self._client.pool).require_enabled()
        return self._open_session(kind, transacted=True, acknowledge_mode=AcknowledgeMode.TRANSACTED)


class _Phase(Enum):
    """Where a session is with its global transaction."""

    NONE = auto()
    ACTIVE = auto()
    PREPARED = auto()
    ROLLED_BACK = auto()
    UNKNOWN = auto()
    """The connection broke while it was being prepared."""


@set_module("jmsql.xa")
class XASession(Session):
    """A transacted session that can take part in global transactions.

    Made by [`XAConnection.create_xa_session`][jmsql.xa.XAConnection.create_xa_session]. Its methods are those of
    Python's database API for two-phase commit (PEP 249). Between `tpc_begin` and the end of the global transaction
    `commit` and `rollback` are refused; otherwise it is a transacted session like any other.
    """

    def __init__(self, client: ClientContext, acknowledge_mode: AcknowledgeMode, owner: SessionOwner) -> None:
        super().__init__(client, acknowledge_mode, owner)
        self._global = GlobalTransactions(client.pool)
        self._xid: Xid | None = None
        self._phase = _Phase.NONE

    def xid(self, format_id: int, global_transaction_id: str, branch_qualifier: str) -> Xid:
        """Make the identifier of a branch of a global transaction.

        Args:
            format_id: Says who makes such identifiers: 0 to 2,147,483,647.
            global_transaction_id: What the branches of one global transaction have in common: up to 64 bytes in UTF-8.
            branch_qualifier: What tells its branches apart: up to 64 bytes.

        Raises:
            ValueError: A part is out of these bounds.
        """
        return Xid.checked(format_id, global_transaction_id, branch_qualifier)

    def tpc_begin(self, xid: Xid) -> None:
        """Begin a branch of a global transaction: what the session does from now on is part of it.

        Args:
            xid: Its identifier. No two branches in the database have the same.

        Raises:
            IllegalStateException: The session is closed.
            TransactionInProgressException: The session is part of a global transaction already, or has sent or
                received something that it has neither committed nor rolled back.
        """
        self._check_open()
        self._complete_sends("tpc_begin")
        checked = Xid.checked(*xid)
        with self._state.lock:
            self._check_no_global_transaction("Finish it before you begin another.")
            if self._receiving.locked.has_delivered or self._sending.has_part_in_transaction:
                raise TransactionInProgressException(
                    "The session has a transaction of its own open; commit() or rollback() it first."
                )
            self._xid, self._phase = checked, _Phase.ACTIVE

    def tpc_prepare(self) -> None:
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
        self._complete_sends("tpc_prepare")
        with self._state.lock:
            xid = self._require(_Phase.ACTIVE)
            try:
                self._end_transaction(
                    self._receiving.locked.before_prepare, lambda: self._state.database.prepare(xid.identifier)
                )
            except JMSException as error:
                if error.error_code == "08007":
                    self._phase = _Phase.UNKNOWN
                raise
            self._phase = _Phase.PREPARED

    def tpc_commit(self, xid: Xid | None = None) -> None:
        """Commit a global transaction.

        Without an identifier, that of the session, which need not be prepared: if nobody else takes part in it, one
        phase will do. With one, any that is prepared; consumers that wait notice such a commit within a second or so.

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
        self._complete_sends("tpc_commit")
        with self._state.lock:
            if xid is not None:
                self._check_no_global_transaction("Leave out the identifier to commit that one.")
                self._global.commit(Xid.checked(*xid))
                return
            own = self._require(_Phase.ACTIVE, _Phase.PREPARED)
            with settling(self._facts, "commit"):
                if self._phase is _Phase.ACTIVE:
                    self._end_transaction(self._receiving.locked.before_commit, self._state.database.commit)
                else:
                    self._finish_prepared(self._global.commit, own)
                    self._forget_deliveries()
                self._committed()
            self._leave()

    def tpc_rollback(self, xid: Xid | None = None) -> None:
        """Roll a global transaction back; what was received in it is delivered again, with its redelivered flag.

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
        self._complete_sends("tpc_rollback")
        with self._state.lock:
            if xid is not None:
                self._check_no_global_transaction("Leave out the identifier to roll that one back.")
                self._global.rollback(Xid.checked(*xid))
                return
            own = self._require(*(set(_Phase) - {_Phase.NONE}))
            with settling(self._facts, "rollback"):
                if self._phase is _Phase.PREPARED:
                    self._finish_prepared(self._global.rollback, own)
                elif self._phase is _Phase.UNKNOWN and own in self._global.recover():
                    self._global.rollback(own)
                self._roll_back()
            self._leave()

    def tpc_recover(self) -> list[Xid]:
        """Return the identifiers of all transactions that are prepared in the database, the oldest first.

        Those whose `format_id` is that of your transaction manager are yours to commit or to roll back.

        Raises:
            IllegalStateException: The session is closed.
        """
        self._check_open()
        return self._global.recover()

    def commit(self) -> None:
        """Commit the session's own transaction, as every transacted session does.

        Raises:
            TransactionInProgressException: The session is part of a global transaction; call `tpc_commit`.
            JMSException: As [`Session.commit`][jmsql.Session.commit].
        """
        self._check_no_global_transaction("End it with tpc_commit() or tpc_rollback().")
        super().commit()

    def rollback(self, error: BaseException | str | None = None) -> None:
        """Roll the session's own transaction back, as every transacted session does.

        Args:
            error: Why, as for [`Session.rollback`][jmsql.Session.rollback].

        Raises:
            TransactionInProgressException: The session is part of a global transaction; call `tpc_rollback`.
            JMSException: As [`Session.rollback`][jmsql.Session.rollback].
        """
        self._check_no_global_transaction("End it with tpc_commit() or tpc_rollback().")
        super().rollback(error)

    def get_database(self) -> sqlalchemy.Connection:
        self._check_not_ended()
        return super().get_database()

    def __repr__(self) -> str:
        state = "" if self._xid is None else f" {tuple(self._xid)} {self._phase.name.lower().replace('_', ' ')}"
        return f"<{type(self).__name__}{state}{' closed' if self._state.closed else ''}>"

    # Within

    def _send(self, destination: Destination, message: OutgoingMessage) -> None:
        self._check_not_ended()
        super()._send(destination, message)

    def _send_asynchronously(self, send: AsynchronousSend) -> None:
        self._check_not_ended()
        super()._send_asynchronously(send)

    def _receive(
        self, consumer: ConsumerState, timeout: float | None, check: MessageCheck | None = None
    ) -> Message | None:
        self._check_not_ended()
        return super()._receive(consumer, timeout, check)

    def _browse(self, queue_id: int, selector: Selector | None, after: tuple[int, int], limit: int) -> list[MessageRow]:
        self._check_not_ended()
        return super()._browse(queue_id, selector, after, limit)

    def _locked_delivery(self) -> LockedDelivery:
        return FrugalDelivery(self._state.database, self._sending.lock, self._client.redelivery)

    def _end_rollback(self) -> None:
        super()._end_rollback()
        if self._phase is _Phase.ACTIVE:
            self._phase = _Phase.ROLLED_BACK

    def _finish_prepared(self, finish: Callable[[Xid], None], xid: Xid) -> None:
        try:
            finish(xid)
        except IllegalStateException:
            self._end_rollback()
            self._leave()  # somebody else has finished it
            raise

    def _forget_deliveries(self) -> None:
        """Forget the deliveries that were counted before the transaction was prepared; else upkeep does it later."""
        delivered = self._receiving.locked.delivered
        if delivered:
            try:
                side = self._client.side
                side.run(side.recipient.forget_deliveries, delivered)
            except JMSException as error:
                logger.info("The deliveries of a committed transaction are forgotten a little later: %s", error)

    def _leave(self) -> None:
        self._xid, self._phase = None, _Phase.NONE
        self._wake()

    def _require(self, *phases: _Phase) -> Xid:
        if self._phase is _Phase.ROLLED_BACK and self._phase not in phases:
            raise TransactionRolledBackException("The global transaction was rolled back; call tpc_rollback().")
        if self._xid is None:
            raise IllegalStateException("The session is in no global transaction; call tpc_begin() first.")
        if self._phase not in phases:
            raise IllegalStateException(f"This is too late for {self!r}; call tpc_commit() or tpc_rollback().")
        return self._xid

    @property
    def _is_usable(self) -> bool:
        # Listeners wait until it is.
        return self._phase in {_Phase.NONE, _Phase.ACTIVE}

    def _check_not_ended(self) -> None:
        if not self._is_usable:
            raise IllegalStateException(
                f"The session waits for the end of its global transaction, {self!r}; call tpc_commit() or "
                "tpc_rollback() first."
            )

    def _check_no_global_transaction(self, advice: str) -> None:
        self._check_open()
        if self._xid is not None:
            raise TransactionInProgressException(
                f"The session is part of the global transaction {tuple(self._xid)}. {advice}"
            )
