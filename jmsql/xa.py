"""Two-phase commit: sessions whose transactions an external transaction manager commits (JMS 1.1, chapter 8.6)."""

from jmsql.client._sync.xa import (
    XAConnection,
    XAConnectionFactory,
    XAJMSContext,
    XAQueueConnection,
    XAQueueConnectionFactory,
    XAQueueSession,
    XASession,
    XATopicConnection,
    XATopicConnectionFactory,
    XATopicSession,
)
from jmsql.store.global_transactions import Xid

__all__ = [
    "XAConnection",
    "XAConnectionFactory",
    "XAJMSContext",
    "XAQueueConnection",
    "XAQueueConnectionFactory",
    "XAQueueSession",
    "XASession",
    "XATopicConnection",
    "XATopicConnectionFactory",
    "XATopicSession",
    "Xid",
]
