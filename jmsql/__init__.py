"""JMS messaging inside the PostgreSQL database that an application already has.

What most programs need is here. The rest of the public names is in [`jmsql.admin`][], [`jmsql.connection_consumers`][],
[`jmsql.domains`][], [`jmsql.types`][] and [`jmsql.xa`][], and in the packages that are named after what they do, such
as `jmsql.worker` and `jmsql.testing`. All other modules are the library's own, and change without notice.
"""

from typing import TYPE_CHECKING

from jmsql import admin as admin
from jmsql import connection_consumers as connection_consumers
from jmsql import domains as domains
from jmsql import types as types
from jmsql import xa as xa
from jmsql.client.acknowledge_mode import AcknowledgeMode
from jmsql.client.administered_objects import lookup
from jmsql.client.browser import QueueBrowser
from jmsql.client.connection import Connection
from jmsql.client.consumer import MessageConsumer
from jmsql.client.context import JMSContext
from jmsql.client.enlistment import enlist
from jmsql.client.factory import ConnectionFactory
from jmsql.client.jms_consumer import JMSConsumer
from jmsql.client.jms_producer import JMSProducer
from jmsql.client.producer import MessageProducer
from jmsql.client.session import Session
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
from jmsql.messages.pickled_types import register_pickled_type
from jmsql.policies import RedeliveryPolicy
from jmsql.public_names import claim_public_names
from jmsql.store.migration import migrate
from jmsql.timings import Timings

__all__ = [
    "AcknowledgeMode",
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
    "MapMessage",
    "Message",
    "MessageConsumer",
    "MessageEOFException",
    "MessageFormatException",
    "MessageNotReadableException",
    "MessageNotWriteableException",
    "MessageProducer",
    "NullValueError",
    "NumberFormatException",
    "ObjectMessage",
    "Queue",
    "QueueBrowser",
    "RedeliveryPolicy",
    "ResourceAllocationException",
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
    "enlist",
    "lookup",
    "migrate",
    "register_codec",
    "register_pickled_type",
    "register_type",
]

claim_public_names(__name__)

if TYPE_CHECKING:
    __version__: str
    """The version of the installed package, such as ``1.2.0``."""
else:  # else a type checker would take each misspelt name for a string

    def __getattr__(name: str) -> str:
        if name == "__version__":
            from importlib.metadata import version

            return version(__name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
