"""The older interfaces of JMS, for queues alone and for topics alone, awaited (JMS 1.1, chapters 5 and 6)."""

from jmsql.client._async.domains import (
    QueueConnection,
    QueueConnectionFactory,
    QueueRequestor,
    QueueSender,
    QueueSession,
    TopicConnection,
    TopicConnectionFactory,
    TopicPublisher,
    TopicRequestor,
    TopicSession,
)
from jmsql.client._async.session.consumer import QueueReceiver, TopicSubscriber

__all__ = [
    "QueueConnection",
    "QueueConnectionFactory",
    "QueueReceiver",
    "QueueRequestor",
    "QueueSender",
    "QueueSession",
    "TopicConnection",
    "TopicConnectionFactory",
    "TopicPublisher",
    "TopicRequestor",
    "TopicSession",
    "TopicSubscriber",
]
