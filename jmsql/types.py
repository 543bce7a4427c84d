"""Types for annotations, and for distinctions that JMS makes and Python does not.

Listeners are callables or objects with JMS's methods. [`Byte`][jmsql.types.Byte], [`Short`][jmsql.types.Short],
[`Long`][jmsql.types.Long], [`Float`][jmsql.types.Float] and [`Char`][jmsql.types.Char] give a value one of Java's
types. A parameter that takes a destination takes any form of [`AnyDestination`][jmsql.types.AnyDestination].
"""

from jmsql.client._sync.shared.exception_listening import ExceptionListener
from jmsql.client.listeners import CompletionListener, MessageListener
from jmsql.client.metadata import ConnectionMetaData
from jmsql.messages import Byte, Char, Float, ForeignMessage, Long, Short
from jmsql.values.destinations import AnyDestination, AnyQueue, AnyTopic

__all__ = [
    "AnyDestination",
    "AnyQueue",
    "AnyTopic",
    "Byte",
    "Char",
    "CompletionListener",
    "ConnectionMetaData",
    "ExceptionListener",
    "Float",
    "ForeignMessage",
    "Long",
    "MessageListener",
    "Short",
]
