"""One call that sends a message: in a session, over a connection, or in the caller's own transaction."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from jmsql.client._async.connection.connection import Connection
from jmsql.client._async.connection.context import JMSContext
from jmsql.client._async.connection.simplified import message_of
from jmsql.client._async.session.session import Session
from jmsql.client.asynchronous_enlistment import enlist
from jmsql.public_names import set_module
from jmsql.values.destinations import Destination, require_destination

if TYPE_CHECKING:
    from jmsql.client.asynchronous_enlistment import Enlistable


@set_module("jmsql.asyncio")
async def send(
    target: Session | JMSContext | Connection | Enlistable,
    destination: Destination | str,
    body: object,
    *,
    priority: int = 4,
    delivery_delay: float | timedelta = 0.0,
    time_to_live: float | timedelta = 0.0,
    group: str | None = None,
    properties: Mapping[str, Any] | None = None,
    reply_to: Destination | str | None = None,
    correlation_id: str | None = None,
    schema: str = "jmsql",
) -> str:
    """Send a message, and return its identifier.

    In a transaction the message is there with the commit: that of a transacted session or context, or the caller's.
    Over a connection, which threads may share, or in a session without transactions it is there when this returns.

    Args:
        target: A session, context or connection of jmsql; or any transaction that
            [`jmsql.asyncio.enlist`][jmsql.asyncio.enlist] takes.
        destination: Where to; a string is a queue's name, ``queue://NAME`` or ``topic://NAME``.
        body: A `str`, bytes, a mapping, an object or a message, as for
            [`JMSProducer.send`][jmsql.asyncio.JMSProducer.send].
        priority: 0 (lowest) to 9.
        delivery_delay: Seconds, or a `timedelta`, before the message is delivered.
        time_to_live: After how many seconds (or a `timedelta`) it expires; 0: never.
        group: The message's group, its property `JMSXGroupID`: the messages of a group are delivered in order.
        properties: Properties of the message.
        reply_to: Where an answer should be sent, as JMSReplyTo; a string is read like the destination.
        correlation_id: JMSCorrelationID, a link to another message.
        schema: The PostgreSQL schema of jmsql's tables, for a transaction of the caller's.

    Returns:
        JMSMessageID, which begins with "ID:".

    Raises:
        TypeError: The target is none of these.
        IllegalStateException: The target is closed.
        InvalidDestinationException: It is not a destination, or the destination does not exist.
        MessageFormatException: The body or a property cannot be encoded; the message shows where.
        MessageNotWriteableException: The body is a received message, and properties are given.
        JMSException: It was not sent; the message says why.
    """
    given = dict(properties or {})
    if group is not None:
        given["JMSXGroupID"] = group
    options: dict[str, Any] = {
        "priority": priority,
        "delivery_delay": delivery_delay,
        "time_to_live": time_to_live,
        "properties": given,
        "jms_reply_to": None if reply_to is None else require_destination(reply_to),
        "jms_correlation_id": correlation_id,
    }
    message = message_of(body)
    if isinstance(target, Connection):
        async with target.create_session() as session:
            await JMSContext(session).create_producer(**options).send(destination, message)
    elif isinstance(target, Session):
        await JMSContext(target).create_producer(**options).send(destination, message)
    else:
        context = target if isinstance(target, JMSContext) else enlist(target, schema=schema)
        await context.create_producer(**options).send(destination, message)
    assert message.jms_message_id is not None  # this producer has not disabled it
    return message.jms_message_id
