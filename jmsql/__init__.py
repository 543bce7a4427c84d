"""JMS messaging inside the PostgreSQL database that an application already has.

All public names are listed here; import them from nowhere else.
"""

from jmsql.client.acknowledge_mode import AcknowledgeMode
from jmsql.client.administered_objects import AdministeredObject, lookup
from jmsql.client.administration import Administration
from jmsql.client.browser import QueueBrowser
from jmsql.client.completion import CompletionListener
from jmsql.client.connection import Connection
from jmsql.client.connection_consumer import ConnectionConsumer
from jmsql.client.consumer import MessageConsumer, MessageListener, QueueReceiver, TopicSubscriber
from jmsql.client.context import JMSContext
from jmsql.client.enlistment import AsyncJMSConsumer, AsyncJMSContext, AsyncJMSProducer, enlist
from jmsql.client.exception_listening import ExceptionListener
from jmsql.client.factory import ConnectionFactory
from jmsql.client.history import History
from jmsql.client.jms_consumer import JMSConsumer
from jmsql.client.jms_producer import JMSProducer
from jmsql.client.metadata import ConnectionMetaData
from jmsql.client.point_to_point import QueueConnection, QueueConnectionFactory, QueueSender, QueueSession
from jmsql.client.producer import MessageProducer
from jmsql.client.publish_subscribe import TopicConnection, TopicConnectionFactory, TopicPublisher, TopicSession
from jmsql.client.requestor import QueueRequestor, TopicRequestor
from jmsql.client.server_session_pool import ThreadServerSessionPool
from jmsql.client.server_sessions import ServerSession, ServerSessionPool
from jmsql.client.session import Session
from jmsql.client.xa import XAConnection, XAConnectionFactory, XASession
from jmsql.client.xa_context import XAJMSContext
from jmsql.client.xa_domains import (
    XAQueueConnection,
    XAQueueConnectionFactory,
    XAQueueSession,
    XATopicConnection,
    XATopicConnectionFactory,
    XATopicSession,
)
from jmsql.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic
from jmsql.exceptions import (
    IllegalStateException,
    InvalidClientIDException,
    InvalidDestinationException,
    InvalidSelectorException,
    JMSException,
    JMSSecurityException,
    MessageEOFException,
    MessageFormatException,
    MessageNotReadableException,
    MessageNotWriteableException,
    NullValueError,
    NumberFormatException,
    ResourceAllocationException,
    TransactionInProgressException,
    TransactionRolledBackException,
    UnsupportedOperationException,
)
from jmsql.messages import (
    Byte,
    BytesMessage,
    Char,
    DeliveryMode,
    Float,
    ForeignMessage,
    Long,
    MapMessage,
    Message,
    ObjectMessage,
    Short,
    StreamMessage,
    TextMessage,
    register_codec,
    register_type,
)
from jmsql.messages.pickled_types import register_pickled_type
from jmsql.policies import RedeliveryPolicy
from jmsql.store.access import AccessSummary
from jmsql.store.dead_letters import DeadLetter, Retry
from jmsql.store.destination_settings import DestinationSettings, DestinationSummary
from jmsql.store.global_transactions import Xid
from jmsql.store.history_partitions import HistoryDay, PruneStep
from jmsql.store.inspection import (
    BrowsedMessage,
    ClientSummary,
    DeliveryState,
    FoundMessage,
    QueueSummary,
    SubscriptionSummary,
)
from jmsql.store.migration import migrate
from jmsql.store.past_messages import HistoryEntry, PastMessage
from jmsql.store.subscriptions import SubscriptionChange

__all__ = [
    "AccessSummary",
    "AcknowledgeMode",
    "AdministeredObject",
    "Administration",
    "AsyncJMSConsumer",
    "AsyncJMSContext",
    "AsyncJMSProducer",
    "BrowsedMessage",
    "Byte",
    "BytesMessage",
    "Char",
    "ClientSummary",
    "CompletionListener",
    "Connection",
    "ConnectionConsumer",
    "ConnectionFactory",
    "ConnectionMetaData",
    "DeadLetter",
    "DeliveryMode",
    "DeliveryState",
    "Destination",
    "DestinationSettings",
    "DestinationSummary",
    "ExceptionListener",
    "Float",
    "ForeignMessage",
    "FoundMessage",
    "History",
    "HistoryDay",
    "HistoryEntry",
    "IllegalStateException",
    "InvalidClientIDException",
    "InvalidDestinationException",
    "InvalidSelectorException",
    "JMSConsumer",
    "JMSContext",
    "JMSException",
    "JMSProducer",
    "JMSSecurityException",
    "Long",
    "MapMessage",
    "Message",
    "MessageConsumer",
    "MessageEOFException",
    "MessageFormatException",
    "MessageListener",
    "MessageNotReadableException",
    "MessageNotWriteableException",
    "MessageProducer",
    "NullValueError",
    "NumberFormatException",
    "ObjectMessage",
    "PastMessage",
    "PruneStep",
    "Queue",
    "QueueBrowser",
    "QueueConnection",
    "QueueConnectionFactory",
    "QueueReceiver",
    "QueueRequestor",
    "QueueSender",
    "QueueSession",
    "QueueSummary",
    "RedeliveryPolicy",
    "ResourceAllocationException",
    "Retry",
    "ServerSession",
    "ServerSessionPool",
    "Session",
    "Short",
    "StreamMessage",
    "SubscriptionChange",
    "SubscriptionSummary",
    "TemporaryQueue",
    "TemporaryTopic",
    "TextMessage",
    "ThreadServerSessionPool",
    "Topic",
    "TopicConnection",
    "TopicConnectionFactory",
    "TopicPublisher",
    "TopicRequestor",
    "TopicSession",
    "TopicSubscriber",
    "TransactionInProgressException",
    "TransactionRolledBackException",
    "UnsupportedOperationException",
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
    "enlist",
    "lookup",
    "migrate",
    "register_codec",
    "register_pickled_type",
    "register_type",
]
