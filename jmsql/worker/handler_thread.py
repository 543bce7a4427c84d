"""A session and its thread: receive a message, call the handler, commit."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from contextlib import ExitStack
from typing import Any, NamedTuple

import psycopg
import sqlalchemy

from jmsql.client._sync.connection.connection import Connection
from jmsql.client._sync.session.handler_session import HandlerSession
from jmsql.client.acknowledge_mode import AcknowledgeMode
from jmsql.exceptions import JMSException
from jmsql.messages import Message
from jmsql.policies import RedeliveryPolicy
from jmsql.store.subscription_change import SubscriptionChange
from jmsql.worker.application import Listener
from jmsql.worker.handler_counters import HandlerCounters
from jmsql.worker.parameters import HandlerCall
from jmsql.worker.timings import WorkerTimings

__all__ = ["DEFAULT_REDELIVERY", "HandlerThread", "Handling"]

logger = logging.getLogger("jmsql.worker")

DEFAULT_REDELIVERY = RedeliveryPolicy(
    maximum_deliveries=20, delay=1.0, multiplier=2.0, maximum_delay=4 * 3600.0, jitter=0.1
)
"""What holds for messages of which neither the listener nor the destination says anything: about a day in all."""


class Handling(NamedTuple):
    """A call of a handler that has not ended yet."""

    message_id: str | None
    started: float
    """When, on the monotonic clock."""
    database: sqlalchemy.Connection | None
    """The transaction, if the handler can do something in it."""


class HandlerThread(threading.Thread):
    """Calls the handler of one listener with one message after the other, in a session of its own.

    Args:
        connection: Where the session comes from.
        listener: The listener.
        number: Which of the listener's threads it is.
        timings: How long it pauses after a failure.
        changed_subscriptions: What happens to a durable subscription that the listener wants with another selector.

    Raises:
        JMSException: The session or its consumer cannot be made.
    """

    def __init__(
        self,
        connection: Connection,
        listener: Listener,
        number: int,
        timings: WorkerTimings,
        changed_subscriptions: SubscriptionChange = SubscriptionChange.REFUSE,
    ) -> None:
        super().__init__(name=f"{listener.name} {number}", daemon=True)
        self.listener = listener
        self._timings = timings
        self.counters = HandlerCounters()
        self.handling: Handling | None = None
        self._stopping = threading.Event()
        self._session = connection.open_session(HandlerSession, listener.transacted, AcknowledgeMode.CLIENT)
        self._consumer = listener.create_consumer(self._session, changed_subscriptions)
        self._consumer.redelivery_policy = listener.redelivery
        self._consumer.default_redelivery_policy = DEFAULT_REDELIVERY
        self._consumer.visibility_timeout = listener.visibility_timeout

    def run(self) -> None:
        """Handle messages until `stop`."""
        with ExitStack() as exits:
            runner = exits.enter_context(asyncio.Runner()) if self.listener.is_async else None
            while not self._stopping.is_set():
                message = self._receive()
                if message is not None:
                    self._handle(message, runner)
            self._close()

    def stop(self) -> None:
        """Take no more messages. The connection is stopped already, so that none comes meanwhile."""
        self._stopping.set()
        if self.handling is None or not self.listener.transacted:
            # A transaction that is open may hold what closing a subscription waits for; its thread closes it later.
            self._consumer.close()

    def cancel(self) -> None:
        """Interrupt the statement that the handler runs in the session's transaction, if there is one."""
        handling = self.handling
        if handling is None or handling.database is None:
            return
        try:
            driver_connection = handling.database.connection.driver_connection
            assert isinstance(driver_connection, psycopg.Connection)
            driver_connection.cancel_safe(timeout=self._timings.cancel_timeout)
        except (psycopg.Error, sqlalchemy.exc.SQLAlchemyError) as error:
            logger.warning("%s: its statement cannot be interrupted: %s", self.listener, error)

    def _receive(self) -> Message | None:
        try:
            return self._consumer.receive()
        except JMSException as error:
            if not self._stopping.is_set():
                logger.warning("%s: no message can be received: %s", self.listener, error)
                self._release()
                self._stopping.wait(self._timings.reconnect_pause)
            return None

    def _handle(self, message: Message, runner: asyncio.Runner | None) -> None:
        try:
            self.handling = Handling(message.jms_message_id, time.monotonic(), None)
            with self._session.processing(message):
                self._share_transaction()
                with self._session.extend_claims():
                    self._call(message, runner)
                if self.listener.transacted:
                    self._session.commit()
                else:
                    message.acknowledge()
            self._succeed(message)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises, sys.exit() too, is its failure
            self._fail(message, error)
        finally:
            self.handling = None

    def _share_transaction(self) -> None:
        if self.listener.shares_transaction and self.handling is not None:
            self.handling = self.handling._replace(database=self._session.begin())

    def _call(self, message: Message, runner: asyncio.Runner | None) -> None:
        with ExitStack() as exits:
            delivery = HandlerCall(message, self._session, exits)
            arguments = {parameter.name: parameter.value(delivery) for parameter in self.listener.parameters}
            result: Any = self.listener.handler(**arguments)
            if runner is not None:
                runner.run(result, context=contextvars.copy_context())

    def _succeed(self, message: Message) -> None:
        seconds = self._end(succeeded=True)
        logger.debug(
            "%s has handled the message %s in %.3f s.",
            self.listener,
            message.jms_message_id,
            seconds,
            extra=self._facts(message, seconds),
        )

    def _end(self, *, succeeded: bool) -> float:
        """Note that the call has ended, and return how many seconds it took."""
        assert self.handling is not None
        seconds = time.monotonic() - self.handling.started
        self.counters.ended(seconds, succeeded=succeeded)
        return seconds

    def _facts(self, message: Message, seconds: float) -> dict[str, object]:
        """Return what the log tells of a call beside its text."""
        return {
            "listener": self.listener.name,
            "destination": str(self.listener.destination),
            "message_id": message.jms_message_id,
            "delivery_count": message.get_int_property("JMSXDeliveryCount"),
            "seconds": round(seconds, 6),
        }

    def _fail(self, message: Message, error: BaseException) -> None:
        seconds = self._end(succeeded=False)
        count = message.get_int_property("JMSXDeliveryCount")
        logger.error(
            "%s failed with %s: %s. The message %s was delivered %d times by now.",
            self.listener,
            type(error).__name__,
            str(error).partition("\n")[0],
            message.jms_message_id,
            count,
            exc_info=error,
            extra=self._facts(message, seconds),
        )
        self._release(error)
        self.handling = None
        self._stopping.wait(self._timings.failure_pause)

    def _release(self, reason: BaseException | None = None) -> None:
        try:
            if self.listener.transacted:
                self._session.rollback(reason)
            else:
                self._session.recover(reason)
        except JMSException as error:  # also where the session was closed from outside, at the deadline
            logger.warning("%s: %s", self.listener, error)

    def _close(self) -> None:
        try:
            self._session.close()
        except JMSException as error:
            logger.warning("%s: %s", self.listener, error)
