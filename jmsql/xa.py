"""Two-phase commit: sessions whose transactions an external transaction manager commits (JMS 1.1, chapter 8.6)."""

from jmsql.client._sync.xa.xa import XAConnection, XASession
from jmsql.client._sync.xa.xa_context import XAJMSContext
from jmsql.client._sync.xa.xa_domains import (
    XAQueueConnection,
    XAQueueConnectionFactory,
    XAQueueSession,
    XATopicConnection,
    XATopicConnectionFactory,
    XATopicSession,
)
from jmsql.client._sync.xa.xa_factory import XAConnectionFactory
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
