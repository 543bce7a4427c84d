"""Producers as applications have them: they check and encode a message, and the session's transaction sends it."""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from jmsql.client import instrumentation
from jmsql.client._async.session.send_batch import SendBatch
from jmsql.client.listeners import AsynchronousSend, CompletionListener, completion_functions
from jmsql.client.message_ids import MessageIds
from jmsql.exceptions import (
    IllegalStateException,
    JMSException,
    UnsupportedOperationException,
)
from jmsql.messages import DeliveryMode, ForeignMessage, Message, as_jms_message
from jmsql.messages.encoded_message import ConditionalEncodedMessage
from jmsql.public_names import set_module
from jmsql.store.rows.message_rows import OutgoingMessage
from jmsql.store.sending.conditional import ConditionalMessage
from jmsql.values.destinations import AnyDestination, Destination
from jmsql.values.duration import LONGEST, seconds

if TYPE_CHECKING:
    from jmsql.client._async.session.transactions.transaction import Transaction


_DEFAULT_PRIORITY = 4
_HIGHEST_PRIORITY = 9


@set_module("jmsql.asyncio")
class MessageProducer:
    """Sends messages to a destination (JMS 1.1, chapter 4.6).

    Made by [`Session.create_producer`][jmsql.Session.create_producer].
    """

    settles_sends = False
    """True if a send under conditions returns when it is known whether the message was sent; for the provider."""

    def __init__(
        self,
        transaction: Transaction,
        require_destination: Callable[[object], Destination],
        destination: AnyDestination | None,
    ) -> None:
        self._transaction = transaction
        self._require_destination = require_destination
        self._destination = None if destination is None else require_destination(destination)
        self._closed = False
        self._sent_asynchronously = 0
        self._delivery_mode = DeliveryMode.PERSISTENT
        self._priority = _DEFAULT_PRIORITY
        self._time_to_live = 0.0
        self._delivery_delay = 0.0
        self._disable_message_timestamp = False
        self._message_ids: MessageIds | None = transaction.message_ids
        """The session's source of message ids; None: there are none."""

    @classmethod
    async def open(
        cls,
        transaction: Transaction,
        require_destination: Callable[[object], Destination],
        destination: AnyDestination | None,
    ) -> Self:
        """Make a producer, and its destination if need be."""
        producer = cls(transaction, require_destination, destination)
        if producer._destination is not None:
            await transaction.will_send_to(producer._destination)
        return producer

    @property
    def destination(self) -> Destination | None:
        """Where messages go; None if each send names its own destination."""
        self._check_open()
        return self._destination

    @property
    def delivery_mode(self) -> DeliveryMode:
        """Default delivery mode, PERSISTENT unless set.

        A NON_PERSISTENT message that is sent outside a transaction does not wait for the disk: if the server crashes
        within the next fraction of a second, the message may be lost.
        """
        self._check_open()
        return self._delivery_mode

    @delivery_mode.setter
    def delivery_mode(self, delivery_mode: int) -> None:
        self._check_open()
        self._delivery_mode = _delivery_mode(delivery_mode)

    @property
    def priority(self) -> int:
        """Default priority, 0 (lowest) to 9; 4 unless set."""
        self._check_open()
        return self._priority

    @priority.setter
    def priority(self, priority: int) -> None:
        self._check_open()
        self._priority = _priority(priority)

    @property
    def time_to_live(self) -> float:
        """Default time to live in seconds; 0, unless set, means messages never expire.

        It can be set to seconds or a `timedelta`. More than a hundred years, such as `math.inf`, mean for ever, too.
        """
        self._check_open()
        return self._time_to_live

    @time_to_live.setter
    def time_to_live(self, time_to_live: float | timedelta) -> None:
        self._check_open()
        self._time_to_live = _time_to_live(time_to_live)

    @property
    def delivery_delay(self) -> float:
        """Default delivery delay in seconds; 0, unless set, means messages are delivered at once.

        It can be set to seconds or a `timedelta`. The time to live counts from the send, too (Jakarta Messaging 3.1,
        chapter 7.9).
        """
        self._check_open()
        return self._delivery_delay

    @delivery_delay.setter
    def delivery_delay(self, delivery_delay: float | timedelta) -> None:
        self._check_open()
        self._delivery_delay = seconds(delivery_delay, "delivery_delay")

    @property
    def disable_message_id(self) -> bool:
        """True if messages get no message id (a hint of JMS, which saves a little work)."""
        self._check_open()
        return self._message_ids is None

    @disable_message_id.setter
    def disable_message_id(self, disable: bool) -> None:
        self._check_open()
        self._message_ids = None if disable else self._transaction.message_ids

    @property
    def disable_message_timestamp(self) -> bool:
        """True if messages get no timestamp (a hint of JMS, which saves a little work)."""
        self._check_open()
        return self._disable_message_timestamp

    @disable_message_timestamp.setter
    def disable_message_timestamp(self, disable: bool) -> None:
        self._check_open()
        self._disable_message_timestamp = bool(disable)

    async def send(
        self,
        message: Message | ForeignMessage,
        destination: AnyDestination | None = None,
        *,
        delivery_mode: int | None = None,
        priority: int | None = None,
        time_to_live: float | timedelta | None = None,
        completion_listener: CompletionListener | None = None,
    ) -> None:
        """Send a message: at once, or with the commit of a transacted session.

        The message is copied: it may be changed and sent again. Its headers JMSDestination, JMSDeliveryMode,
        JMSExpiration, JMSPriority, JMSMessageID, JMSTimestamp and JMSDeliveryTime are set by the send (JMS 1.1, chapter
        3.4.11).

        With a completion listener the message is sent asynchronously: the method returns before the server has it, and
        the listener is called with the outcome, on a thread of the session's (Jakarta Messaging 3.1, chapter 7.3). It
        gets the message itself: a BytesMessage or StreamMessage is reset, to be read. Messages that are sent so go out
        in batches, in their order, each with one commit. The method waits while 10,000 messages or 64 MiB are on their
        way.

        Args:
            message: A jmsql message, or another provider's with the same attributes.
            destination: Where to send it, for a producer that was made without a destination; a string is a queue's
                name, ``queue://NAME`` or ``topic://NAME``.
            delivery_mode: PERSISTENT or NON_PERSISTENT; None: the producer's.
            priority: 0 (lowest) to 9; None: the producer's.
            time_to_live: After how many seconds (or a `timedelta`) it expires, 0 and all above a hundred years: never;
                None: the producer's.
            completion_listener: Called when the message was sent, or could not be sent: a callable that takes the
                message and None or the error, or an object with `on_completion` and `on_exception`. None: wait.

        Raises:
            UnsupportedOperationException: The producer has a destination and one is given, or neither.
            InvalidDestinationException: The destination does not exist, or is not a destination.
            MessageFormatException: The message is not a `Message`.
            JMSException: It was not sent: it is larger than 256 MiB, or for another reason, which the error names. If
                the `error_code` is ``08007``, the connection broke on the way, and it may have been sent.
        """
        state = self._transaction.state
        if self._closed or state.closed or state.guard is not None:
            self._check_open()
        target = self._destination
        if target is None or destination is not None:
            target = await self._target(destination)
        elif self._transaction.missing and target in self._transaction.missing:
            await self._transaction.will_send_to(target)
        mode = self._delivery_mode if delivery_mode is None else _delivery_mode(delivery_mode)
        urgency = self._priority if priority is None else _priority(priority)
        lifetime = self._time_to_live if time_to_live is None else _time_to_live(time_to_live)

        if completion_listener is not None:
            completion_functions(completion_listener)
        encoded = (message if isinstance(message, Message) else as_jms_message(message)).encode()
        conditions = encoded.conditions if isinstance(encoded, ConditionalEncodedMessage) else None
        clock = self._transaction.clock
        now = await self._transaction.server_time() if clock is None else clock.milliseconds()
        expiration = now + round(lifetime * 1000) if 0 < lifetime <= LONGEST else 0
        uuid = None if self._message_ids is None else next(self._message_ids.following)
        timestamp = 0 if self._disable_message_timestamp else now
        delay = round(self._delivery_delay * 1000)
        delivery_time = now + delay if delay else timestamp  # which is all that consumers know then
        outgoing = OutgoingMessage(
            target.name,
            _HIGHEST_PRIORITY - urgency,
            uuid,
            timestamp or None,
            expiration or None,
            int(mode),
            *encoded,
            delivery_time if delay else None,
        )
        size = outgoing.checked_size()
        sent: Any = message
        follower = instrumentation.active
        with nullcontext(outgoing) if follower is None else follower.sending(state.facts, target, outgoing) as given:
            followed = given if conditions is None else ConditionalMessage.of(given, conditions, target)
            if completion_listener is None:
                if conditions is not None and self.settles_sends:
                    await self._transaction.send_settled(target, followed, size)
                else:
                    await self._transaction.send(target, followed, size)
                if isinstance(followed, ConditionalMessage):
                    uuid = followed.known_id
            sent.jms_message_id = None if uuid is None else "ID:" + uuid
            sent.jms_timestamp = timestamp
            sent.jms_expiration = expiration
            sent.jms_delivery_time = delivery_time
            sent.jms_priority = urgency
            sent.jms_delivery_mode = mode
            sent.jms_destination = target
            if completion_listener is not None:
                self._sent_asynchronously += 1
                if hasattr(sent, "reset"):
                    sent.reset()  # now: after the send it belongs to the listener
                send = AsynchronousSend(target, followed, sent, completion_listener, size)
                await self._transaction.send_asynchronously(send)

    @asynccontextmanager
    async def in_batches(self) -> AsyncIterator[None]:
        """Send the messages of an ``async with`` block up to a hundred at a time, each batch in one exchange.

        Without a transaction each batch takes effect by itself. If the block raises, messages that are still collected
        are not sent.
        """
        transaction = self._transaction
        batch: Any = SendBatch(transaction)
        self._transaction = batch
        try:
            yield
            await batch.flush()
        finally:
            self._transaction = transaction

    async def close(self) -> None:
        """Send no more. Messages that it sent in a transaction are committed with it. Closing again does nothing.

        It waits until its completion listeners have returned.

        Raises:
            IllegalStateException: It is called from such a listener.
        """
        if self._closed:
            return
        if self._sent_asynchronously:
            await self._transaction.complete("close")
        self._closed = True

    async def _target(self, destination: AnyDestination | None) -> Destination:
        if self._destination is not None:
            if destination is not None:
                raise UnsupportedOperationException(
                    f"The producer sends to {self._destination}; to name a destination with each send, "
                    "make it with create_producer(None)."
                )
            return self._destination
        if destination is None:
            raise UnsupportedOperationException("The producer has no destination of its own; name one with the send.")
        target = self._require_destination(destination)
        await self._transaction.will_send_to(target)
        return target

    def _check_open(self) -> None:
        self._transaction.state.check_open()
        if self._closed:
            raise IllegalStateException("The producer is closed.")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._destination or 'any destination'}{' closed' if self._closed else ''}>"


def _delivery_mode(delivery_mode: int) -> DeliveryMode:
    try:
        return DeliveryMode(delivery_mode)
    except ValueError as error:
        raise JMSException(
            f"Expected a delivery mode, PERSISTENT or NON_PERSISTENT of DeliveryMode, got {delivery_mode!r}."
        ) from error


def _priority(priority: int) -> int:
    try:
        if 0 <= (number := operator.index(priority)) <= _HIGHEST_PRIORITY:
            return number
    except TypeError:
        pass
    raise JMSException(f"Expected a priority from 0 (lowest) to 9, got {priority!r}.")


def _time_to_live(time_to_live: float | timedelta) -> float:
    """Return the seconds; more than `LONGEST` are kept as they are, and mean for ever."""
    duration = time_to_live.total_seconds() if isinstance(time_to_live, timedelta) else time_to_live
    if isinstance(duration, int | float) and duration > LONGEST:
        return duration
    return seconds(time_to_live, "time_to_live")
