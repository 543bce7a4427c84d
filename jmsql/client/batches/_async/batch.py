"""A batch of messages, as a block that sends them."""

from __future__ import annotations

from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from jmsql.client._async.connection.connection import Connection
from jmsql.client._async.connection.context import JMSContext
from jmsql.client._async.connection.simplified import message_of
from jmsql.client._async.session.session import Session
from jmsql.client.asynchronous_enlistment import enlist
from jmsql.client.destination_of import body_for
from jmsql.client.sending._async.send import send, send_many
from jmsql.client.sending.options import SendOptions
from jmsql.exceptions import IllegalStateException, InvalidDestinationException, MessageFormatException
from jmsql.messages import Message
from jmsql.messages.properties import BATCH
from jmsql.messages.types.values import Long
from jmsql.public_names import set_module
from jmsql.store.sending.batches import Callback, close_batch, hold_batch, open_batch, read_progress
from jmsql.values.destinations import AnyDestination, Queue, TemporaryQueue, require_destination
from jmsql.values.duration import seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jmsql.client.asynchronous_enlistment import Enlistable
    from jmsql.values.batches import BatchProgress

# The end of a batch is found in the database, by triggers on the messages (decision 88). This class only opens it,
# names it in the property `JMS_jmsql_Batch` of each message, and closes it.
#
# The open block counts as a member that has not ended, so no callback comes before it closes. A handler adds messages
# while its own message is such a member. That may be purged meanwhile: `hold_batch` keeps the batch from its end until
# the transaction ends. In a session without transactions each send needs a hold of its own.


_LONGEST_NAME = 255
_EXAMPLE = dict.fromkeys(("total", "done", "failed", "expired", "cancelled"), 1)
"""The counts in the body of a callback."""
_LOCK_TIMEOUT = 10.0


@set_module("jmsql.asyncio")
class Batch:
    """A set of messages with a callback: a message that is sent when all of them have ended.

    Made by [`batch`][jmsql.asyncio.batch], as a block, or by [`batch_of`][jmsql.asyncio.batch_of] in a handler.

    Attributes:
        name: Its name.
    """

    def __init__(
        self,
        target: Session | JMSContext | Connection | Enlistable,
        name: str,
        schema: str,
        callbacks: Sequence[Callback] = (),
        keep: float = 0.0,
    ) -> None:
        self.name = name
        self._target = target
        self._schema = schema
        self._context: JMSContext | None = None
        self._id: int | None = None
        self._is_closed = False
        self._callbacks = callbacks
        self._keep = keep
        self._needs_hold = False
        """True if a handler adds to its message's batch, which its transaction does not keep yet."""

    @classmethod
    def of_member(cls, context: JMSContext, number: int, schema: str, *, is_held: bool = False) -> Self:
        """Return the batch of a message that a session has received, which its transaction may keep already."""
        found = cls(context, f"batch {number}", schema)
        found._id, found._context, found._needs_hold = number, context, not is_held
        return found

    @property
    def id(self) -> int:
        """Its number, by which the view `batches`, the command and the console show it.

        Raises:
            IllegalStateException: The block has not begun.
        """
        if self._id is None:
            raise IllegalStateException("The batch is opened by its block: with jmsql.batch(…) as batch.")
        return self._id

    async def send(self, destination: AnyDestination, body: object, **options: Unpack[SendOptions]) -> str:
        """Send a message that belongs to the batch, and return its identifier.

        A send that is dropped, by `deduplication_id` or `coalesce`, adds no message to the batch. A message to a topic
        is one message, which has ended once each subscription's copy has; without subscriptions it does not count.

        Args:
            destination: Where to: a queue, a topic, the name of one, or a handler.
            body: As for [`send`][jmsql.asyncio.send].
            options: The options of [`send`][jmsql.asyncio.send].

        Raises:
            IllegalStateException: The block is over, or the batch of the handler's message has ended.
            InvalidDestinationException: It does not exist, or is not a destination.
            MessageFormatException: The body or a property cannot be encoded, or the handler would refuse it.
            MessageNotWriteableException: The body is a received message.
            JMSException: It was not sent; the message says why.
        """
        context = await self._require_context()
        return await send(context, destination, body, **self._with_batch(options))

    async def send_many(
        self,
        destination: AnyDestination,
        bodies: Iterable[object],
        **options: Unpack[SendOptions],
    ) -> list[str]:
        """Send many messages that belong to the batch, a hundred in one exchange, and return their identifiers.

        Args:
            destination: As for `send`.
            bodies: The bodies, or messages.
            options: The options of [`send`][jmsql.asyncio.send].

        Raises:
            IllegalStateException: The block is over, or the batch of the handler's message has ended.
            JMSException: As for `send`.
        """
        context = await self._require_context()
        return await send_many(context, destination, bodies, schema=self._schema, **self._with_batch(options))

    async def progress(self) -> BatchProgress:
        """Return the counts of its messages, as the session's transaction sees them.

        Messages that a transaction has sent and not committed may not be counted.

        Raises:
            IllegalStateException: The block has not begun, or its target is closed.
            JMSException: There is no such batch: it was rolled back, or its time is over.
        """
        if self._context is None:
            return await batch_progress(self._target, self.id, schema=self._schema)
        return await self._context.run_steps(read_progress(self.id))

    def _with_batch(self, options: SendOptions) -> SendOptions:
        properties = {**(options.get("properties") or {}), BATCH: Long(self.id)}
        return {**options, "properties": properties}

    async def _require_context(self) -> JMSContext:
        """Return where to send, with the batch kept from its end."""
        if self._context is None or self._is_closed:
            _ = self.id
            raise IllegalStateException(
                f"The block of the batch {self.name!r} is over. Its handlers may still add to it: call.batch.send(…)."
            )
        if self._needs_hold:
            if not await self._context.run_steps(hold_batch(self.id)):
                raise IllegalStateException(f"The batch {self.id} has ended.", "JMS02")
            self._needs_hold = not self._context.transacted
        return self._context

    async def __aenter__(self) -> Self:
        if self._context is not None or self._is_closed:
            raise IllegalStateException("A batch is opened once.")
        target = self._target
        if isinstance(target, Connection):
            self._context = JMSContext(target.create_session(transacted=True))
        else:
            self._context = _context(target, self._schema)
        try:
            for callback in self._callbacks:
                await self._context.make_queue(Queue(callback.queue))
            opening = open_batch(self.name, self._keep, self._callbacks, _LOCK_TIMEOUT)
            self._id = await self._context.run_steps(opening)
        except BaseException:
            await self._release()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_closed = True
        context = self._context
        assert context is not None
        try:
            if error is None:
                await context.run_steps(close_batch(self.id))
                if isinstance(self._target, Connection):
                    await context.commit()
        finally:
            await self._release()

    async def _release(self) -> None:
        """Close the session of a block over a connection."""
        if isinstance(self._target, Connection) and self._context is not None:
            context, self._context = self._context, None
            await context.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {'' if self._id is None else self._id}>"


@set_module("jmsql.asyncio")
def batch(
    target: Session | JMSContext | Connection | Enlistable,
    name: str,
    *,
    on_end: AnyDestination | None = None,
    on_success: AnyDestination | None = None,
    on_failure: AnyDestination | None = None,
    body: object = None,
    keep: float | timedelta = timedelta(days=7),
    schema: str = "jmsql",
) -> Batch:
    """Open a batch of messages, for an `async with` block that sends them, and one that follows when all have ended.

    The transaction that ends the last message sends the callback: exactly once, also after crashes. It does so after
    the end of the block, and after the commit if the block is in a transaction. A block that raises leaves the batch
    open: roll the transaction back, or no callback comes.

    Args:
        target: A session or context of jmsql, in whose transaction the batch is opened; a connection, on which the
            block is a transaction of its own; or any transaction that
            [`jmsql.asyncio.enlist`][jmsql.asyncio.enlist] takes.
        name: A name of 1 to 255 characters, for people. Several batches may have the same.
        on_end: The queue, or handler, that gets a message when all messages of the batch have ended.
        on_success: The one that gets a message then if all are done.
        on_failure: The one that gets a message then if some have failed, have expired or were cancelled.
        body: The body of that message; None: a map of `batch` (the name), `total`, `done`, `failed`, `expired` and
            `cancelled`. Its JMSCorrelationID is "batch " and the batch's number.
        keep: For how long the counts are kept after the end: seconds, or a `timedelta`.
        schema: The PostgreSQL schema of jmsql's tables, for a transaction of the caller's.

    Raises:
        TypeError: The name is not a `str`.
        ValueError: The name is empty or too long, or `keep` is negative.
        InvalidDestinationException: A callback's destination is not a queue with a name.
        MessageFormatException: The body cannot be encoded, or a handler would refuse it.
    """
    if not isinstance(name, str):
        raise TypeError(f"Expected the name of a batch as a str, got {name!r}.")
    if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise ValueError(f"The name of a batch has 1 to {_LONGEST_NAME} printable characters, not {name[:300]!r}.")
    callbacks = []
    for event, destination in (("end", on_end), ("success", on_success), ("failure", on_failure)):
        if destination is not None:
            queue = require_destination(destination)
            if not isinstance(queue, Queue) or isinstance(queue, TemporaryQueue):
                raise InvalidDestinationException(f"The end of a batch is told to a queue with a name, not to {queue}.")
            # A handler that cannot read the counts is refused now: its callback would be a dead letter.
            try:
                carried = body_for(destination, _EXAMPLE | {"batch": name} if body is None else body)
            except MessageFormatException as error:
                raise MessageFormatException(
                    f"{queue} cannot take the callback of the batch {name!r}: {error}"
                ) from error
            callbacks.append(Callback(event, queue.name, None if body is None else message_of(carried).encode()))
    return Batch(target, name, schema, callbacks, seconds(keep, "keep"))


@set_module("jmsql.asyncio")
def batch_of(session: Session | JMSContext, message: Message, *, schema: str = "jmsql") -> Batch | None:
    """Return the batch that a received message belongs to, for its handler to send more messages in it.

    Args:
        session: The session, or context, that has received the message.
        message: The message, which has not ended.
        schema: The PostgreSQL schema of jmsql's tables.

    Returns:
        The batch; None: the message belongs to none.
    """
    number = message.get_object_property(BATCH) if message.property_exists(BATCH) else None
    if not isinstance(number, int) or message.jms_message_id is None:
        return None
    return Batch.of_member(_context(session, schema), number, schema)


async def batch_of_next_step(session: Session, message: Message) -> Batch | None:
    """Return the batch that the next step of a message is added to, kept from its end.

    Returns:
        The batch; None: the message belongs to none, or the batch has ended or was deleted.

    Raises:
        JMSException: A transaction is ending the batch, or the server cannot be asked.
    """
    found = batch_of(session, message)
    if found is None or not await session.run_steps(hold_batch(found.id)):
        return None
    return Batch.of_member(_context(session, "jmsql"), found.id, "jmsql", is_held=True)


@set_module("jmsql.asyncio")
async def batch_progress(
    target: Session | JMSContext | Connection | Enlistable, batch_id: int, *, schema: str = "jmsql"
) -> BatchProgress:
    """Return the counts of a batch, given its number.

    All members of the batch are read for them: 10,000 take a few milliseconds. A role sees the batches that it has
    opened, and all if it may browse all destinations.

    Args:
        target: A session, context or connection of jmsql, or any transaction that
            [`jmsql.asyncio.enlist`][jmsql.asyncio.enlist] takes.
        batch_id: The number: `Batch.id`.
        schema: The PostgreSQL schema of jmsql's tables, for a transaction of the caller's.

    Raises:
        IllegalStateException: The target is closed.
        JMSException: There is no such batch: it was rolled back, or its time is over.
    """
    if isinstance(target, Connection):
        async with target.create_session() as session:
            return await session.run_steps(read_progress(batch_id))
    return await _context(target, schema).run_steps(read_progress(batch_id))


def _context(target: Session | JMSContext | Enlistable, schema: str) -> JMSContext:
    if isinstance(target, Session):
        return JMSContext(target)
    return target if isinstance(target, JMSContext) else enlist(target, schema=schema)
