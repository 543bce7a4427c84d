"""Two-phase commit, awaited: sessions whose transactions an external transaction manager commits."""

from jmsql.client._async.xa import (
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
