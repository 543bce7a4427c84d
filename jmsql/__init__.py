"""JMS messaging inside the PostgreSQL database that an application already has.

The names that most programs need are here. The rest of the public names is in [`jmsql.admin`][],
[`jmsql.connection_consumers`][], [`jmsql.domains`][], [`jmsql.types`][] and [`jmsql.xa`][], and in packages such as
`jmsql.worker` and `jmsql.testing`. All other modules are the library's own, and change without notice.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jmsql import admin as admin
    from jmsql import connection_consumers as connection_consumers
    from jmsql import domains as domains
    from jmsql import types as types
    from jmsql import xa as xa
    from jmsql.client._sync.administration.administered_objects import lookup
    from jmsql.client._sync.connection.connection import Connection
    from jmsql.client._sync.connection.context import JMSContext
    from jmsql.client._sync.connection.factory import ConnectionFactory
    from jmsql.client._sync.connection.requestor import Requestor
    from jmsql.client._sync.connection.simplified import JMSConsumer, JMSProducer
    from jmsql.client._sync.session.browser import QueueBrowser
    from jmsql.client._sync.session.consumer import MessageConsumer
    from jmsql.client._sync.session.producer import MessageProducer
    from jmsql.client._sync.session.session import Session
    from jmsql.client.acknowledge_mode import AcknowledgeMode
    from jmsql.client.batches._sync.batch import Batch, batch, batch_of, batch_progress
    from jmsql.client.enlistment import enlist
    from jmsql.client.results._sync.result import Result, result, status
    from jmsql.client.sending._sync.send import send
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
    from jmsql.store.schema.migration import migrate
    from jmsql.timings import Timings
    from jmsql.values.batches import BatchProgress
    from jmsql.values.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic
    from jmsql.values.policies import RedeliveryPolicy
    from jmsql.values.result_state import ResultState
    from jmsql.values.ticks import Missed

    __version__: str
    """The version of the installed package, such as ``1.2.0``."""

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

_PLACES = {
    "Batch": "jmsql.client.batches._sync.batch",
    "BatchProgress": "jmsql.values.batches",
    "batch": "jmsql.client.batches._sync.batch",
    "batch_of": "jmsql.client.batches._sync.batch",
    "batch_progress": "jmsql.client.batches._sync.batch",
    "AcknowledgeMode": "jmsql.client.acknowledge_mode",
    "BytesMessage": "jmsql.messages",
    "Connection": "jmsql.client._sync.connection.connection",
    "ConnectionFactory": "jmsql.client._sync.connection.factory",
    "Requestor": "jmsql.client._sync.connection.requestor",
    "DeliveryMode": "jmsql.messages",
    "Destination": "jmsql.values.destinations",
    "IllegalStateException": "jmsql.exceptions",
    "InvalidClientIDException": "jmsql.exceptions",
    "InvalidDestinationException": "jmsql.exceptions",
    "InvalidSelectorException": "jmsql.exceptions",
    "JMSConsumer": "jmsql.client._sync.connection.simplified",
    "JMSContext": "jmsql.client._sync.connection.context",
    "JMSException": "jmsql.exceptions",
    "JMSProducer": "jmsql.client._sync.connection.simplified",
    "JMSSecurityException": "jmsql.exceptions",
    "JobFailed": "jmsql.exceptions",
    "MapMessage": "jmsql.messages",
    "Message": "jmsql.messages",
    "MessageConsumer": "jmsql.client._sync.session.consumer",
    "MessageEOFException": "jmsql.exceptions",
    "MessageFormatException": "jmsql.exceptions",
    "MessageNotReadableException": "jmsql.exceptions",
    "MessageNotWriteableException": "jmsql.exceptions",
    "MessageProducer": "jmsql.client._sync.session.producer",
    "Missed": "jmsql.values.ticks",
    "NullValueError": "jmsql.exceptions",
    "NumberFormatException": "jmsql.exceptions",
    "ObjectMessage": "jmsql.messages",
    "Queue": "jmsql.values.destinations",
    "QueueBrowser": "jmsql.client._sync.session.browser",
    "RedeliveryPolicy": "jmsql.values.policies",
    "RequestFailed": "jmsql.exceptions",
    "ResourceAllocationException": "jmsql.exceptions",
    "Result": "jmsql.client.results._sync.result",
    "ResultState": "jmsql.values.result_state",
    "Session": "jmsql.client._sync.session.session",
    "StreamMessage": "jmsql.messages",
    "TemporaryQueue": "jmsql.values.destinations",
    "TemporaryTopic": "jmsql.values.destinations",
    "TextMessage": "jmsql.messages",
    "Timings": "jmsql.timings",
    "Topic": "jmsql.values.destinations",
    "TransactionInProgressException": "jmsql.exceptions",
    "TransactionRolledBackException": "jmsql.exceptions",
    "UnsupportedOperationException": "jmsql.exceptions",
    "enlist": "jmsql.client.enlistment",
    "lookup": "jmsql.client._sync.administration.administered_objects",
    "migrate": "jmsql.store.schema.migration",
    "register_codec": "jmsql.messages",
    "register_pickled_type": "jmsql.messages.codecs.pickled_types",
    "register_type": "jmsql.messages",
    "result": "jmsql.client.results._sync.result",
    "send": "jmsql.client.sending._sync.send",
    "status": "jmsql.client.results._sync.result",
}
"""Where the names are that are loaded when a program first uses them: a process that needs few starts quickly."""

_MODULES = {"admin", "connection_consumers", "domains", "types", "xa"}
"""The modules that a program need not import by themselves."""

if not TYPE_CHECKING:  # else a type checker would take each misspelt name for a value

    def __getattr__(name: str) -> object:
        if name in _PLACES:
            value = getattr(importlib.import_module(_PLACES[name]), name)
        elif name in _MODULES:
            value = importlib.import_module(f"{__name__}.{name}")
        elif name == "__version__":
            from importlib.metadata import version

            value = version(__name__)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_PLACES, *_MODULES, "__version__"})
