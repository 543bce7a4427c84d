"""Sessions: where messages are sent and received, in transactions or without."""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

import sqlalchemy

from jmsql.client.abstract_session import AbstractSession
from jmsql.client.acknowledge_mode import AcknowledgeMode
from jmsql.client.consumer import MessageConsumer, MessageListener, TopicSubscriber, call_listener, require_listener
from jmsql.client.delivery import ClaimedDelivery, Delivery, ImmediateDelivery, LockedDelivery
from jmsql.client.inbox import Inbox
from jmsql.client.listener_thread import ListenerThread
from jmsql.client.polling import PollInterval
from jmsql.client.sending import Sending
from jmsql.client.session_load import ListenerRun, SessionLoad
from jmsql.destinations import Destination, TemporaryQueue, TemporaryTopic, Topic
from jmsql.exceptions import (
    IllegalStateException,
    InvalidDestinationException,
    JMSException,
    TransactionRolledBackException,
)
from jmsql.messages import Message
from jmsql.selectors import Selector
from jmsql.store.session_connection import SessionConnection

if TYPE_CHECKING:
    from jmsql.client.completion import AsynchronousSend
    from jmsql.client.connection import Connection
    from jmsql.destinations import Queue
    from jmsql.store.reader import Fetch
    from jmsql.store.rows import MessageRow, OutgoingMessage
    from jmsql.store.subscriptions import SubscriptionDefinition

__all__ = ["Session"]

logger = logging.getLogger("jmsql")

_LONGEST_ERROR = 10_000
"""Characters kept of a listener's traceback."""


class Session(AbstractSession):
    """A single-threaded context for sending and receiving (JMS 1.1, chapter 4.4).

    Made by [`Connection.create_session`][jmsql.Connection.create_session]. A transacted session wraps one transaction
    of PostgreSQL after another: what it sends and receives, and what the application does through
    [`database`][jmsql.Session.database], takes effect together with `commit`, or not at all.

    A session and what it makes are for one thread; only `close` may be called from another.
    """

    def __init__(self, connection: Connection, acknowledge_mode: AcknowledgeMode) -> None:
        self._connection = connection
        self._acknowledge_mode = acknowledge_mode
        self._is_transacted = acknowledge_mode is AcknowledgeMode.TRANSACTED
        self._database = SessionConnection(connection._engine, connection._schema, transacted=self._is_transacted)
        self._locked = LockedDelivery(self._database, connection._record_attempts)
        self._claimed = ClaimedDelivery(self._database, lambda: connection._control.connection_id)
        self._consumers: set[MessageConsumer] = set()
        self._listener_thread: ListenerThread | ListenerRun | None = None
        self._message_listener: MessageListener | None = None
        self._load = SessionLoad(self)
        self._closed_by_listener = False
        # Held while the session is in use: by a call, or by a listener for as long as it runs.
        self._lock = threading.RLock()
        self._sending = Sending(connection, self._database, self._lock, transacted=self._is_transacted)
        self._news = threading.Condition()
        self._news_count = 0

    @property
    def transacted(self) -> bool:
        """Whether the session works in transactions."""
        self._check_open()
        return self._is_transacted

    @property
    def acknowledge_mode(self) -> AcknowledgeMode:
        """How the session acknowledges what it has received."""
        self._check_open()
        return self._acknowledge_mode

    @property
    def database(self) -> sqlalchemy.Connection:
        """The SQLAlchemy connection of the session's transaction, for the application's own SQL.

        What the session has sent and received so far is visible through it. Leave committing and rolling back to the
        session.

        Raises:
            IllegalStateException: The session is not transacted, or is closed.
        """
        self._check_open()
        if not self._is_transacted:
            raise IllegalStateException("Only a transacted session has a transaction to share.")
        with self._lock:
            return self._sending.share(self._flush)

    # For application servers

    @property
    def message_listener(self) -> MessageListener | None:
        """What `run` gives the messages to that a connection consumer has loaded (JMS 1.1, chapter 8.2.1).

        Only who makes the sessions of a [`ServerSessionPool`][jmsql.ServerSessionPool] needs it; others set the
        listeners of consumers.

        Raises:
            IllegalStateException: The session is closed.
            TypeError: The listener is no callable and has no `on_message`.
        """
        self._check_open()
        return self._message_listener

    @message_listener.setter
    def message_listener(self, listener: MessageListener | None) -> None:
        self._check_open()
        if listener is not None:
            require_listener(listener)
        self._message_listener = listener

    def run(self) -> None:
        """Give the messages that a connection consumer has loaded to the session's listener, one after the other.

        They are acknowledged as those of a consumer's listener are; with transactions, whoever calls `run` commits or
        rolls back afterwards, or the listener does. When the connection is stopped meanwhile, or the session closed,
        those not delivered yet are given back.

        Raises:
            IllegalStateException: The session is closed, or has consumers with listeners.
        """
        self._check_open()
        self._load.run()

    # Transactions

    def commit(self) -> None:
        """Commit: what was sent goes out, what was received is acknowledged, and the application's SQL takes effect.

        Raises:
            IllegalStateException: The session is not transacted, or is closed.
            TransactionRolledBackException: The transaction was rolled back instead; nothing took effect.
            JMSException: The connection was cut during the commit, and the outcome is not known.
        """
        self._check_transacted("commit")
        self._complete_sends("commit")
        with self._lock:
            self._end_transaction(self._locked.before_commit, self._database.commit)
            self._committed()

    def _end_transaction(self, before: Callable[[], None], end: Callable[[], None]) -> None:
        """Insert what is to be sent, then call both; roll back if anything fails."""
        try:
            if self._database.is_lost:
                raise TransactionRolledBackException(
                    "The connection to PostgreSQL was lost, and with it the transaction. Do it again.", "08006"
                )
            self._sending.flush()
            before()
            end()
        except JMSException as error:
            self._roll_back()
            if isinstance(error, TransactionRolledBackException) or error.error_code == "08007":
                raise
            raise TransactionRolledBackException(
                f"The transaction was rolled back: {error}", error.error_code
            ) from error

    def _committed(self) -> None:
        self._connection._returned(self._locked.committed())
        self._connection._sent(self._sending.transaction_ended())

    def rollback(self) -> None:
        """Roll back: what was sent is forgotten, what was received is delivered again, the application's SQL undone.

        Raises:
            IllegalStateException: The session is not transacted, or is closed.
        """
        self._check_transacted("rollback")
        self._complete_sends("rollback")
        with self._lock:
            self._roll_back()

    def recover(self) -> None:
        """Deliver what was received and not acknowledged again, from the first message on.

        Raises:
            IllegalStateException: The session is transacted, or is closed.
        """
        self._check_open()
        if self._is_transacted:
            raise IllegalStateException("A transacted session is not recovered; call rollback() instead.")
        with self._lock:
            given_back = self._claimed.give_back()
            for consumer in self._consumers:
                given_back += self._claimed.closed(consumer._inbox)
            self._connection._returned(given_back)

    def create_temporary_queue(self) -> TemporaryQueue:
        self._check_open()
        return self._connection._destinations.create_temporary(TemporaryQueue, self._connection._check_unused)

    def create_temporary_topic(self) -> TemporaryTopic:
        self._check_open()
        return self._connection._destinations.create_temporary(TemporaryTopic, self._connection._check_unused)

    def unsubscribe(self, name: str) -> None:
        self._check_open()
        self._connection._destinations.unsubscribe(name, self._connection._client_id)

    def close(self) -> None:
        """Close the session and all that it made. An open transaction is rolled back; closing again does nothing.

        It waits for a listener that is running, which keeps the use of the session until it returns. Called from that
        listener, it does not wait: the session closes when the listener returns. A `receive` that waits ends with None.
        It waits until asynchronous sends are complete and their listeners have returned.

        Messages stay usable; only `acknowledge` on received ones raises IllegalStateException.

        Raises:
            IllegalStateException: It is called from a completion listener of the session's.
        """
        if self._closed:
            return
        self._sending.check_no_completion("close")
        self._closed = True
        self._wake()
        thread = self._listener_thread
        if thread is not None and thread.is_current:
            self._closed_by_listener = True
            thread.finally_call(self._release)
            return
        if thread is not None:
            thread.join()
        self._release()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._acknowledge_mode.name}{' closed' if self._closed else ''}>"

    def _release(self) -> None:
        """Give back what the session holds, and its connection."""
        self._sending.close()
        with self._lock:
            try:
                if self._is_transacted:
                    self._roll_back()
                else:
                    self._release_claims()
            except JMSException as error:
                logger.warning("Closing %r: %s", self, error)
            finally:
                while self._consumers:
                    self._part_with(self._consumers.pop())
                self._database.close()
                self._connection._session_closed(self)

    def _release_claims(self) -> None:
        if self._acknowledge_mode is AcknowledgeMode.DUPS_OK:
            self._claimed.acknowledge()
        given_back = self._claimed.give_back()
        for consumer in self._consumers:
            given_back += self._claimed.closed(consumer._inbox)
        self._connection._returned(given_back)

    def _flush(self) -> None:
        """Bring the store, in the open transaction, to where the session is."""
        self._sending.flush()
        self._locked.flush()

    def _roll_back(self) -> None:
        try:
            self._locked.before_rollback()
        except JMSException as error:
            logger.warning("The deliveries that are rolled back could not be counted: %s", error)
        self._end_rollback()

    def _end_rollback(self) -> None:
        with self._sending.lock:
            self._database.rollback()
            self._sending.transaction_ended()
        self._connection._returned(self._locked.rolled_back())

    # Sending and receiving, for producers and consumers

    def _queue_id(self, queue: Queue) -> int:
        self._connection._destinations.require_own(queue)
        return self._connection._destinations.look_up(queue)

    def _will_send_to(self, destination: Destination) -> None:
        self._connection._destinations.find(destination)

    def _client_id(self) -> str | None:
        self._check_open()
        return self._connection._client_id

    def _subscribe(self, topic: Topic, subscription: SubscriptionDefinition) -> TopicSubscriber:
        self._check_open()
        destinations = self._connection._destinations
        destinations.require_own(topic)
        if subscription.durable and isinstance(topic, TemporaryTopic):
            raise InvalidDestinationException(f"{topic} is temporary; a durable subscription would outlive it.")
        queue_id = destinations.join(subscription)
        inbox = Inbox(queue_id, None, self._fetch_operation(), self._wake, destinations.find(topic))
        subscriber = TopicSubscriber(self, topic, inbox, subscription)
        self._consumer_opened(subscriber)
        return subscriber

    def _receives_from(self, destination: Destination) -> bool:
        return any(consumer._destination == destination for consumer in list(self._consumers))

    def _subscribers(self) -> list[TopicSubscriber]:
        return [consumer for consumer in list(self._consumers) if isinstance(consumer, TopicSubscriber)]

    def _part_with(self, consumer: MessageConsumer) -> None:
        """Hear no more of what comes in for a consumer, and leave its subscription."""
        self._connection._unlisten(consumer._inbox)
        if isinstance(consumer, TopicSubscriber):
            try:
                self._connection._destinations.leave(consumer._inbox.source)
            except JMSException as error:
                logger.warning("Closing %r: %s", consumer, error)

    def _send(self, destination: Destination, message: OutgoingMessage) -> None:
        self._sending.send(destination, message)

    def _send_asynchronously(self, send: AsynchronousSend) -> None:
        self._sending.send_asynchronously(send)

    def _complete_sends(self, method: str) -> None:
        self._sending.complete(method)

    def _delivery(self, consumer: MessageConsumer | None) -> Delivery:
        if self._is_transacted:
            return self._locked
        if self._acknowledge_mode is AcknowledgeMode.AUTO and (consumer is None or consumer._listener is None):
            return ImmediateDelivery(self._database)
        return self._claimed

    def _fetch_operation(self) -> Fetch:
        return self._delivery(None).operation

    def _receive(self, consumer: MessageConsumer, timeout: float | None) -> Message | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        poll = PollInterval()
        while True:
            news = self._news_count
            with self._lock:
                if consumer._closed or (self._closed and not self._is_used_by_listener):
                    return None
                started = self._connection._started
                message = self._next(consumer) if started else None
            if message is not None:
                return message
            if self._closed or self._connection._closed:
                return None  # a listener gets what is there, and does not make close() wait for what may come
            remaining = None if deadline is None else deadline - time.monotonic()
            if remaining is not None and remaining <= 0:
                return None
            pause = poll.next() if started else None
            self._wait(news, remaining if pause is None or (remaining is not None and remaining < pause) else pause)

    def _next(self, consumer: MessageConsumer) -> Message | None:
        """Return the consumer's next message as delivered, if there is one now."""
        try:
            return self._deliver_next(consumer)
        finally:
            if self._is_transacted:
                self._end_unused_transaction()

    def _end_unused_transaction(self) -> None:
        """Keep no transaction open, while the session waits, in which nothing has happened."""
        if not (self._locked.has_delivered or self._sending.has_part_in_transaction):
            self._database.end_unused()
            self._connection._returned(self._locked.committed())

    def _deliver_next(self, consumer: MessageConsumer) -> Message | None:
        if self._acknowledge_mode is AcknowledgeMode.DUPS_OK and self._claimed.acknowledgement_due:
            self._claimed.acknowledge()
        row = self._delivery(consumer).next(consumer._inbox)
        if row is None:
            if self._acknowledge_mode is AcknowledgeMode.DUPS_OK:
                self._claimed.acknowledge()
            return None
        return row.message(consumer._destination, self._acknowledge_received)

    def _acknowledge_received(self) -> None:
        """Do what `Message.acknowledge` means in this session."""
        self._check_open()
        if self._acknowledge_mode is AcknowledgeMode.CLIENT:
            with self._lock:
                self._claimed.acknowledge()

    def _browse(self, queue_id: int, selector: Selector | None, after: tuple[int, int], limit: int) -> list[MessageRow]:
        with self._lock:
            if self._is_transacted:
                self._locked.flush()
            return self._database.store.browse(queue_id, selector, after, limit)

    def _consumer_opened(self, consumer: MessageConsumer) -> None:
        with self._lock:
            self._consumers.add(consumer)
        self._connection._listen(consumer._inbox)

    def _consumer_closed(self, consumer: MessageConsumer) -> None:
        self._wake()
        with self._lock:
            if consumer not in self._consumers:
                return  # the session has closed, and parted with it
            self._consumers.remove(consumer)
            if not self._closed:
                self._connection._returned(self._delivery(consumer).closed(consumer._inbox))
            self._part_with(consumer)

    # Listeners

    def _set_listener(self, consumer: MessageConsumer, listener: MessageListener | None) -> None:
        with self._lock:
            self._connection._returned(self._delivery(consumer).closed(consumer._inbox))
            consumer._listener = listener
            consumer._inbox.fetch_by(self._delivery(consumer).operation)
            if listener is not None and self._listener_thread is None:
                self._listener_thread = ListenerThread(self)
        self._wake()

    def _listening_consumers(self) -> list[MessageConsumer]:
        with self._lock:
            return [consumer for consumer in self._consumers if consumer._listener is not None and not consumer._closed]

    def _call_listener(self, listener: MessageListener, message: Message) -> None:
        """Give a listener a message, and settle it."""
        error: str | None = "The listener's thread was ended."
        try:
            error = _failure(listener, message)
        finally:
            self._delivered_to_listener(error)

    def _delivered_to_listener(self, error: str | None) -> None:
        """Acknowledge what a listener has handled, or give it back if it failed."""
        if self._acknowledge_mode not in {AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK}:
            return
        if error is not None:
            self._connection._returned(self._claimed.give_back(error))
        elif self._acknowledge_mode is AcknowledgeMode.AUTO:
            self._claimed.acknowledge()

    def _delivery_failed(self, error: JMSException) -> None:
        """Tell of an error between listeners, and begin anew if it has cost the session its transaction."""
        if self._is_transacted and self._database.is_lost:
            with self._lock:
                self._roll_back()
            lost = TransactionRolledBackException(
                "The connection to PostgreSQL was lost, and with it the transaction; its messages are delivered again.",
                error.error_code,
            )
            lost.__cause__ = error
            error = lost
        logger.warning("The listeners of %r wait: %s", self, error)
        self._connection._failed(error)

    @property
    def _is_used_by_listener(self) -> bool:
        """Whether the caller is the session's running listener, for which even close() waits."""
        thread = self._listener_thread
        return thread is not None and thread.is_current and not self._closed_by_listener

    # Waiting

    def _wake(self) -> None:
        with self._news:
            self._news_count += 1
            self._news.notify_all()

    def _wait(self, news: int, timeout: float | None) -> None:
        """Wait until something has happened since the count was `news`, at most `timeout` seconds."""
        with self._news:
            self._news.wait_for(lambda: self._news_count != news, timeout)

    def _check_open(self) -> None:
        if self._closed and not self._is_used_by_listener:
            raise IllegalStateException("The session is closed.")

    def _check_transacted(self, method: str) -> None:
        self._check_open()
        if not self._is_transacted:
            raise IllegalStateException(
                f"{method}() is for transacted sessions; this one is {self._acknowledge_mode.name}."
            )


def _failure(listener: MessageListener, message: Message) -> str | None:
    """Call a listener; return its traceback if it fails."""
    try:
        call_listener(listener, message)
    except Exception:
        logger.exception("The listener %r failed with %r.", listener, message)
        return traceback.format_exc()[-_LONGEST_ERROR:]
    return None
