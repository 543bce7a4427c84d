"""JMS messaging for asyncio: the names of `jmsql`, with methods that are awaited.

    import jmsql.asyncio as jms

    async with jms.ConnectionFactory(url).create_context() as context:
        queue = context.create_queue("orders")
        await context.create_producer().send(queue, "Hello")
        async with context.create_consumer(queue) as consumer:
            async for message in consumer:
                ...

Messages, destinations, exceptions and policies are the same as in `jmsql`. The older interfaces are in
`jmsql.asyncio.domains`, administration in `jmsql.asyncio.admin`, global transactions in `jmsql.asyncio.xa`, and the
interface for application servers in `jmsql.asyncio.connection_consumers`.
"""

from jmsql.asyncio.migration import migrate
from jmsql.client._async.administration.administered_objects import lookup
from jmsql.client._async.connection.connection import Connection
from jmsql.client._async.connection.context import JMSContext
from jmsql.client._async.connection.factory import ConnectionFactory
from jmsql.client._async.connection.requestor import Requestor
from jmsql.client._async.connection.simplified import JMSConsumer, JMSProducer
from jmsql.client._async.session.browser import QueueBrowser
from jmsql.client._async.session.consumer import MessageConsumer
from jmsql.client._async.session.producer import MessageProducer
from jmsql.client._async.session.session import Session
from jmsql.client.acknowledge_mode import AcknowledgeMode
from jmsql.client.asynchronous_enlistment import enlist
from jmsql.client.batches._async.batch import Batch, batch, batch_of, batch_progress
from jmsql.client.results._async.result import Result, result, status
from jmsql.client.sending._async.send import send
from jmsql.exceptions import (
    IllegalStateException,
    InvalidClientIDException,
    InvalidDestinationException,
    InvalidSelectorException,
    JMSException,
    JMSSecurityException,
    JobFailed,
    MessageEOFException,
    MessageFormatException,
    MessageNotReadableException,
    MessageNotWriteableException,
    NullValueError,
    NumberFormatException,
    RequestFailed,
    ResourceAllocationException,
    TransactionInProgressException,
    TransactionRolledBackException,
    UnsupportedOperationException,
)
from jmsql.messages import (
    BytesMessage,
    DeliveryMode,
    MapMessage,
    Message,
    ObjectMessage,
    StreamMessage,
    TextMessage,
    register_codec,
    register_type,
)
from jmsql.messages.codecs.pickled_types import register_pickled_type
from jmsql.timings import Timings
from jmsql.values.batches import BatchProgress
from jmsql.values.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic
from jmsql.values.policies import RedeliveryPolicy
from jmsql.values.result_state import ResultState
from jmsql.values.ticks import Missed

__all__ = [
    "AcknowledgeMode",
    "Batch",
    "BatchProgress",
    "BytesMessage",
    "Connection",
    "ConnectionFactory",
    "DeliveryMode",
    "Destination",
    "IllegalStateException",
    "InvalidClientIDException",
    "InvalidDestinationException",
    "InvalidSelectorException",
    "JMSConsumer",
    "JMSContext",
    "JMSException",
    "JMSProducer",
    "JMSSecurityException",
    "JobFailed",
    "MapMessage",
    "Message",
    "MessageConsumer",
    "MessageEOFException",
    "MessageFormatException",
    "MessageNotReadableException",
    "MessageNotWriteableException",
    "MessageProducer",
    "Missed",
    "NullValueError",
    "NumberFormatException",
    "ObjectMessage",
    "Queue",
    "QueueBrowser",
    "RedeliveryPolicy",
    "RequestFailed",
    "Requestor",
    "ResourceAllocationException",
    "Result",
    "ResultState",
    "Session",
    "StreamMessage",
    "TemporaryQueue",
    "TemporaryTopic",
    "TextMessage",
    "Timings",
    "Topic",
    "TransactionInProgressException",
    "TransactionRolledBackException",
    "UnsupportedOperationException",
    "batch",
    "batch_of",
    "batch_progress",
    "enlist",
    "lookup",
    "migrate",
    "register_codec",
    "register_pickled_type",
    "register_type",
    "result",
    "send",
    "status",
]
