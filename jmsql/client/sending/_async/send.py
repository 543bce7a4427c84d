"""One call that sends a message: in a session, over a connection, or in the caller's own transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Unpack

from jmsql.client._async.connection.connection import Connection
from jmsql.client._async.connection.context import JMSContext
from jmsql.client._async.connection.simplified import JMSProducer, message_of
from jmsql.client._async.session.session import Session
from jmsql.client.asynchronous_enlistment import enlist
from jmsql.client.destination_of import bodies_for, body_for
from jmsql.client.sending.options import SendOptions
from jmsql.client.sending.steps import Step, steps_as_text
from jmsql.messages import Message
from jmsql.messages.properties import COALESCE, COALESCE_BODY, DEDUPLICATION_ID, THEN
from jmsql.public_names import set_module
from jmsql.values.destinations import AnyDestination, Destination, require_destination

if TYPE_CHECKING:
    from jmsql.client.asynchronous_enlistment import Enlistable


# A connection may be shared by threads, and a session may not: so a send over a connection makes a session for itself.
# It is a few objects, and takes its connection to the server from the pool with the first statement. `send_many` over a
# connection is one transaction: all of the messages are sent, or none.


@set_module("jmsql.asyncio")
async def send(
    target: Session | JMSContext | Connection | Enlistable,
    destination: AnyDestination,
    body: object,
    *,
    priority: int = 4,
    delivery_delay: float | timedelta = 0.0,
    time_to_live: float | timedelta = 0.0,
    group: str | None = None,
    properties: Mapping[str, Any] | None = None,
    reply_to: AnyDestination | None = None,
    correlation_id: str | None = None,
    deduplication_id: str | None = None,
    coalesce: str | None = None,
    coalesce_body: Literal["first", "latest"] = "first",
    then: Sequence[Step] = (),
    schema: str = "jmsql",
) -> str:
    """Send a message, and return its identifier.

    In a transaction, of a transacted session or context or the caller's, the message appears with the commit. Over a
    connection, which threads may share, or in a session without transactions it is there when this returns.

    Args:
        target: A session, context or connection of jmsql; or any transaction that
            [`jmsql.asyncio.enlist`][jmsql.asyncio.enlist] takes.
        destination: Where to: a queue, a topic, or the handler of its messages, which checks the body; a string is a
            queue's name, ``queue://NAME`` or ``topic://NAME``.
        body: A `str`, bytes, a mapping, an object or a message, as for
            [`JMSProducer.send`][jmsql.asyncio.JMSProducer.send].
        priority: 0 (lowest) to 9.
        delivery_delay: Seconds, or a `timedelta`, before the message is delivered.
        time_to_live: After how many seconds (or a `timedelta`) it expires; 0: never.
        group: The message's group, its property `JMSXGroupID`: the messages of a group are delivered in order.
        properties: Properties of the message.
        reply_to: Where an answer should be sent, as JMSReplyTo; a string or a handler is read like the destination.
        correlation_id: JMSCorrelationID, a link to another message.
        deduplication_id: A name for the message, such as "payment 17", of 1 to 255 characters. A second send of the
            same name to the destination within its `deduplication_window` (a day) sends nothing.
        coalesce: A key, such as "customer 5", of 1 to 255 characters: nothing is sent while a message of this key waits
            in the queue, which is then handled after the commit of this transaction, too. Not for topics.
        coalesce_body: "latest": the message replaces the one that waits, in its place.
        then: The next steps of a chain: registered handlers, or destinations; a send to one that does not exist makes
            it. Where a worker's handler returns, its result is sent to the first of them, in the transaction of its
            message; None: the body of its message. `reply_to` gets the reply of the last step.
        schema: The PostgreSQL schema of jmsql's tables, for a transaction of the caller's.

    Returns:
        JMSMessageID, which begins with "ID:". Where nothing is sent, of the message that was sent before, or waits.

    Raises:
        TypeError: The target is none of these; or `then` is a text, or a step can read nothing that the one before
            returns.
        IllegalStateException: The target is closed.
        InvalidDestinationException: It is not a destination, or the destination does not exist.
        MessageFormatException: The body or a property cannot be encoded, or the handler would refuse it; the message
            shows where.
        MessageNotWriteableException: The body is a received message, and properties are given.
        TransactionRolledBackException: Transactions wait for each other that send several deduplication ids, or keys,
            in different orders (SQLSTATE 40P01).
        JMSException: It was not sent; the message says why.
    """
    options = _options(
        destination,
        priority=priority,
        delivery_delay=delivery_delay,
        time_to_live=time_to_live,
        group=group,
        properties=properties,
        reply_to=reply_to,
        correlation_id=correlation_id,
        deduplication_id=deduplication_id,
        coalesce=coalesce,
        coalesce_body=coalesce_body,
        then=then,
    )
    message = message_of(body if isinstance(destination, Destination | str) else body_for(destination, body))
    if isinstance(target, Connection):
        async with target.create_session() as session:
            await _producer(JMSContext(session), options).send(destination, message)
    else:
        await _producer(_context(target, schema), options).send(destination, message)
    return _identifier(message)


async def send_many(
    target: Session | JMSContext | Connection | Enlistable,
    destination: AnyDestination,
    bodies: Iterable[object],
    *,
    schema: str,
    **options: Unpack[SendOptions],
) -> list[str]:
    """Send messages as `send` does, a hundred at a time; over a connection, all or none.

    Args:
        target: As for `send`, like the others.
        destination: Where to.
        bodies: The bodies, or messages. All of them are encoded before the first is sent.
        schema: The PostgreSQL schema of jmsql's tables.
        options: The options of `send`.

    Returns:
        The identifiers, in the order of the bodies.
    """
    given = _options(destination, **options)
    messages = [message_of(body) for body in bodies_for(destination, bodies)]
    if isinstance(target, Connection):
        async with target.create_session(transacted=True) as session:
            identifiers = await _send_all(_producer(JMSContext(session), given), destination, messages)
            await session.commit()
            return identifiers
    return await _send_all(_producer(_context(target, schema), given), destination, messages)


async def _send_all(producer: JMSProducer, destination: AnyDestination, messages: list[Message]) -> list[str]:
    identifiers = []
    is_conditional = any(each.send_conditions is not None for each in (producer, *messages))
    # A batch is sent later, and it is not known before which of its messages are.
    async with nullcontext() if is_conditional else producer.in_batches():
        for message in messages:
            await producer.send(destination, message)
            identifiers.append(_identifier(message))  # now: it may come again
    return identifiers


def _producer(context: JMSContext, options: Mapping[str, Any]) -> JMSProducer:
    producer = context.create_producer(**options)
    producer.settle_sends()
    return producer


def _context(target: Session | JMSContext | Enlistable, schema: str) -> JMSContext:
    """Return the context of a session or of the caller's transaction."""
    if isinstance(target, Session):
        return JMSContext(target)
    return target if isinstance(target, JMSContext) else enlist(target, schema=schema)


def _options(destination: AnyDestination, **given: Unpack[SendOptions]) -> dict[str, Any]:
    """Return the options of a producer that sends to a destination."""
    options: dict[str, Any] = dict(given)
    properties, group = dict(options.pop("properties", None) or {}), options.pop("group", None)
    if group is not None:
        properties["JMSXGroupID"] = group
    deduplication_id, coalesce = options.pop("deduplication_id", None), options.pop("coalesce", None)
    coalesce_body = options.pop("coalesce_body", None)
    if deduplication_id is not None:
        properties[DEDUPLICATION_ID] = deduplication_id
    if coalesce is not None:
        properties |= {COALESCE: coalesce, COALESCE_BODY: coalesce_body}
    steps = steps_as_text(options.pop("then", ()), destination)
    if steps is not None:
        properties[THEN] = steps
    reply_to = options.pop("reply_to", None)
    correlation_id = options.pop("correlation_id", None)
    return {
        **options,
        "properties": properties,
        "jms_reply_to": None if reply_to is None else require_destination(reply_to),
        "jms_correlation_id": correlation_id,
    }


def _identifier(message: Message) -> str:
    assert message.jms_message_id is not None  # this producer has not disabled it
    return message.jms_message_id
