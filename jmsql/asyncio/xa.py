"""Two-phase commit, awaited: sessions whose transactions an external transaction manager commits."""

from jmsql.client._async.xa.xa import XAConnection, XASession
from jmsql.client._async.xa.xa_context import XAJMSContext
from jmsql.client._async.xa.xa_domains import (
    XAQueueConnection,
    XAQueueConnectionFactory,
    XAQueueSession,
    XATopicConnection,
    XATopicConnectionFactory,
    XATopicSession,
)
from jmsql.client._async.xa.xa_factory import XAConnectionFactory
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
