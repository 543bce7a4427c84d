"""Sessions: where messages are sent and received, in transactions or without."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from jmsql.client import instrumentation
from jmsql.client._async.session.abstract_session import AbstractSession
from jmsql.client._async.session.dispatcher import Dispatcher
from jmsql.client._async.session.receiving import Receiving
from jmsql.client._async.session.sending import Sending
from jmsql.client._async.session.session_state import SessionState
from jmsql.client._async.session.sessions import Sessions
from jmsql.client._async.session.transaction import LocalTransaction, NoTransaction, Transaction
from jmsql.client._async.shared.client_context import ClientContext
from jmsql.client.acknowledge_mode import AcknowledgeMode
from jmsql.client.listeners import MessageListener, require_listener
from jmsql.concurrency import ASYNC
from jmsql.concurrency.tasks import detached
from jmsql.exceptions import IllegalStateException, JMSException
from jmsql.public_names import set_module
from jmsql.values.destinations import TemporaryQueue, TemporaryTopic

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from jmsql.messages import Message


logger = logging.getLogger("jmsql")


@set_module("jmsql.asyncio")
class Session(AbstractSession):
    """A single-threaded context for sending and receiving (JMS 1.1, chapter 4.4).

    Made by [`Connection.create_session`][jmsql.Connection.create_session]. A transacted session wraps one transaction
    of PostgreSQL after another: what it sends and receives, and what the application does through
    [`database`][jmsql.Session.database], takes effect together with `commit`, or not at all.

    A session and what it makes are for one thread; only `close` may be called from another.
    """

    _sending: Sending
    _receiving: Receiving

    def __init__(self, client: ClientContext, acknowledge_mode: AcknowledgeMode, sessions: Sessions) -> None:
        self._client = client
        self._sessions = sessions
        self._state = SessionState(client, acknowledge_mode, type(self).__name__)
        self._transaction = self._create_transaction()
        self._dispatcher = Dispatcher(self._state, self._transaction)
        self._sending = self._transaction.sending
        self._receiving = Receiving(self._state, self._transaction, self._dispatcher)
        sessions.add(self, self._dispatcher)

    def _create_transaction(self) -> Transaction:
        """Choose how the session works in transactions, if it does."""
        return LocalTransaction(self._state) if self._state.transacted else NoTransaction(self._state)

    @property
    def closed(self) -> bool:
        return self._state.closed and not self._state.is_used_by_listener

    @property
    def transacted(self) -> bool:
        """Whether the session works in transactions."""
        self._state.check_open()
        return self._state.transacted

    @property
    def acknowledge_mode(self) -> AcknowledgeMode:
        """How the session acknowledges what it has received."""
        self._state.check_open()
        return self._state.acknowledge_mode

    if not ASYNC:

        @property
        def database(self) -> AsyncConnection:
            """The SQLAlchemy connection of the session's transaction, for the application's SQL: `get_database()`."""
            return self.get_database()

    async def get_database(self) -> AsyncConnection:
        """Return the SQLAlchemy connection of the session's transaction, for the application's own SQL.

        It is taken when it is first needed. What the session has sent and received so far is visible through it.
        Savepoints take back what is sent and received after them. Leave committing, rolling back and closing it to the
        session.

        Raises:
            IllegalStateException: The session is not transacted, or is closed.
            TransactionRolledBackException: It was closed, or rolled back, with what the session had done.
        """
        self._check_open()
        self._transaction.check_usable()
        return await self._transaction.share()

    # For application servers

    @property
    def message_listener(self) -> MessageListener | None:
        """What `run` gives the messages to that a connection consumer has loaded (JMS 1.1, chapter 8.2.1).

        Setting it is the same as `set_message_listener`.

        Raises:
            IllegalStateException: The session is closed.
        """
        self._check_open()
        return self._state.message_listener

    @message_listener.setter
    def message_listener(self, listener: MessageListener | None) -> None:
        self.set_message_listener(listener)

    def set_message_listener(self, listener: MessageListener | None) -> None:
        """Have `run` call a listener with the messages that a connection consumer has loaded (JMS 1.1, chapter 8.2.1).

        Only who makes the sessions of a [`ServerSessionPool`][jmsql.connection_consumers.ServerSessionPool] needs it;
        others set the listeners of consumers. While it is set, the session's consumers neither receive nor have
        listeners.

        Args:
            listener: A callable, or an object with `on_message`; None: no listener.

        Raises:
            IllegalStateException: The session is closed, or one of its consumers has a listener.
            TypeError: The listener is no callable and has no `on_message`.
        """
        self._check_open()
        if listener is not None:
            require_listener(listener)
            if self._state.listening_consumers:
                raise IllegalStateException("A consumer of the session has a listener; remove that one first.")
        self._state.message_listener = listener

    async def run(self) -> None:
        """Give the messages that a connection consumer has loaded to the session's listener, one after the other.

        They are acknowledged as those of a consumer's listener are; with transactions, the caller of `run` commits or
        rolls back afterwards, or the listener does. When the connection is stopped meanwhile, or the session closed,
        those not delivered yet are released.

        Raises:
            IllegalStateException: The session is closed, or has consumers with listeners.
        """
        self._check_open()
        await self._dispatcher.run()

    # Transactions

    async def commit(self) -> None:
        """Commit: what was sent goes out, what was received is acknowledged, and the application's SQL takes effect.

        Raises:
            IllegalStateException: The session is not transacted, or is closed.
            TransactionRolledBackException: The transaction was rolled back instead; nothing took effect.
            JMSException: The connection was cut during the commit, and the outcome is not known.
        """
        self._check_open()
        await self._transaction.commit()

    async def rollback(self, error: BaseException | str | None = None) -> None:
        """Roll back: what was sent is forgotten, what was received is delivered again, the application's SQL undone.

        Args:
            error: Why. It is kept with the messages that were received, up to 10,000 characters of an exception's
                traceback; and where no [redelivery policy](redelivery.md) says otherwise, they come again at once
                after their first error, and then after ever longer pauses. `Reject` and `RetryAfter` of `jmsql.worker`
                say what becomes of them instead.

        Raises:
            IllegalStateException: The session is not transacted, or is closed.
        """
        self._check_open()
        await self._transaction.rollback(error)

    async def recover(self, error: BaseException | str | None = None) -> None:
        """Deliver what was received and not acknowledged again, from the first message on.

        Args:
            error: Why, as for `rollback`.

        Raises:
            IllegalStateException: The session is transacted, or is closed.
        """
        self._check_open()
        await self._transaction.recover(error)

    def extend_claims(self) -> AbstractContextManager[None]:
        """Extend, for as long as a `with` block runs, the claims on what was received and not acknowledged.

        Where claims have a visibility timeout, a message that takes longer to handle would be taken away meanwhile.
        Listeners need not ask for it.

        Raises:
            IllegalStateException: The session is closed.
        """
        self._check_open()
        return self._transaction.acknowledgement.extend_claims()

    async def acknowledge(self) -> None:
        self._check_open()
        await self._transaction.acknowledgement.acknowledge()

    async def create_temporary_queue(self) -> TemporaryQueue:
        self._check_open()
        return await self._client.destinations.create_temporary(TemporaryQueue, self._sessions.check_unused)

    async def create_temporary_topic(self) -> TemporaryTopic:
        self._check_open()
        return await self._client.destinations.create_temporary(TemporaryTopic, self._sessions.check_unused)

    async def unsubscribe(self, name: str) -> None:
        self._check_open()
        await self._transaction.acknowledgement.settle()
        await self._client.destinations.unsubscribe(name, self._client.client_id)

    async def close(self) -> None:
        """Close the session and all that it made. An open transaction is rolled back; closing again does nothing.

        It waits for a listener that is running, which keeps the use of the session until it returns. Called from that
        listener, it does not wait: the session closes when the listener returns. A `receive` that waits ends with None.
        It waits until asynchronous sends are complete and their listeners have returned.

        Messages stay usable; only `acknowledge` on received ones raises IllegalStateException.

        Raises:
            IllegalStateException: It is called from a completion listener of the session's; or from a listener of
                another session for which this session's listener waits, since it stops the connection, say.
        """
        if self._state.closed:
            return
        if ASYNC:
            self._state.home.check("session")
        self._state.check_no_completion("close")
        await detached(self._close())

    async def _close(self) -> None:
        with self._sessions.waiting_for_listeners("close", self._state):
            self._state.closed = True
            self._state.notifications.notify()
            await self._dispatcher.end(self._release)

    def __repr__(self) -> str:
        return repr(self._state)

    async def _release(self) -> None:
        """Release what the session holds, and its connection."""
        await self._sending.close()
        await self._transaction.acknowledgement.end()
        async with self._state.lock:
            try:
                await self._transaction.close()
            except JMSException as error:
                logger.warning("Closing %r: %s", self, error)
            finally:
                await self._receiving.part_with_all()
                await self._state.database.close()
                await self._sessions.remove(self)

    def _check_open(self) -> None:
        self._state.check_open()
        self._client.used = True  # and its client identifier is not set any more


class HandlerSession(Session):
    """A session that is watched while a handler works in it."""

    def __init__(self, client: ClientContext, acknowledge_mode: AcknowledgeMode, sessions: Sessions) -> None:
        super().__init__(client, acknowledge_mode, sessions)
        # The call of the handler tells the instrumentation of the message; the wait for it does not.
        self._receiving.followed = None
        self._state.database.share_connections()

    def processing(self, message: Message) -> AbstractContextManager[object]:
        """Let the instrumentation, if there is any, follow the call of a handler."""
        return instrumentation.processing(self._state.facts, message)

    async def interrupt(self, timeout: float) -> None:
        """Interrupt the statement that runs in the transaction, if one does; may be called from another thread.

        Args:
            timeout: How many seconds that may take.

        Raises:
            JMSException: The server could not be told.
        """
        await self._state.database.interrupt(timeout)
