"""The older interfaces of JMS, for queues alone and for topics alone (JMS 1.1, chapters 5 and 6).

New programs use [`ConnectionFactory`][jmsql.ConnectionFactory] or [`JMSContext`][jmsql.JMSContext], which serve both.
"""

from jmsql.client._sync.domains import (
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
from jmsql.client._sync.session.consumer import QueueReceiver, TopicSubscriber

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
