"""A context whose methods are awaited, for a psycopg `AsyncConnection`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy.util import greenlet_spawn

from jmsql.destinations import Queue
from jmsql.messages import DeliveryMode, Message
from jmsql.public_names import set_module

if TYPE_CHECKING:
    from jmsql.client._sync.connection.context import JMSContext
    from jmsql.client._sync.exchange.jms_consumer import JMSConsumer
    from jmsql.client._sync.exchange.jms_producer import JMSProducer
    from jmsql.destinations import Destination

__all__ = ["AsyncJMSConsumer", "AsyncJMSContext", "AsyncJMSProducer"]


@set_module("jmsql.types")
class AsyncJMSContext:
    """A [`JMSContext`][jmsql.JMSContext] in the transaction of a psycopg `AsyncConnection`."""

    def __init__(self, context: JMSContext) -> None:
        self._context = context

    def create_queue(self, name: str) -> Queue:
        """Return the queue of that name."""
        return self._context.create_queue(name)

    def create_producer(
        self,
        *,
        delivery_mode: int = DeliveryMode.PERSISTENT,
        priority: int = 4,
        time_to_live: float | timedelta = 0.0,
        delivery_delay: float | timedelta = 0.0,
        properties: Mapping[str, Any] | None = None,
        jms_correlation_id: str | None = None,
        jms_type: str | None = None,
        jms_reply_to: Destination | None = None,
    ) -> AsyncJMSProducer:
        """Make a producer, as [`JMSContext.create_producer`][jmsql.JMSContext.create_producer] does."""
        producer = self._context.create_producer(
            delivery_mode=delivery_mode,
            priority=priority,
            time_to_live=time_to_live,
            delivery_delay=delivery_delay,
            properties=properties,
            jms_correlation_id=jms_correlation_id,
            jms_type=jms_type,
            jms_reply_to=jms_reply_to,
        )
        return AsyncJMSProducer(producer)

    async def create_consumer(self, destination: Destination, selector: str | None = None) -> AsyncJMSConsumer:
        """Make a consumer, as [`JMSContext.create_consumer`][jmsql.JMSContext.create_consumer] does."""
        return AsyncJMSConsumer(await greenlet_spawn(self._context.create_consumer, destination, selector))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._context!r}>"


@set_module("jmsql.types")
class AsyncJMSProducer:
    """Sends messages, each to the destination that is named with it."""

    def __init__(self, producer: JMSProducer) -> None:
        self._producer = producer

    async def send(self, destination: Destination, body: object) -> Self:
        """Send a message or a body, as [`JMSProducer.send`][jmsql.JMSProducer.send] does."""
        await greenlet_spawn(self._producer.send, destination, body)
        return self


@set_module("jmsql.types")
class AsyncJMSConsumer:
    """Receives messages."""

    def __init__(self, consumer: JMSConsumer) -> None:
        self._consumer = consumer

    async def receive(self, timeout: float | timedelta | None = None) -> Message | None:  # noqa: ASYNC109 - JMS's name
        """Return the next message, as [`MessageConsumer.receive`][jmsql.MessageConsumer.receive] does."""
        return await greenlet_spawn(self._consumer.receive, timeout)
