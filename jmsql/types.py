"""Types for annotations, and for distinctions that JMS makes and Python does not.

Listeners are callables or objects with JMS's methods. [`Byte`][jmsql.types.Byte], [`Short`][jmsql.types.Short],
[`Long`][jmsql.types.Long], [`Float`][jmsql.types.Float] and [`Char`][jmsql.types.Char] give a value one of Java's
types.
"""

from jmsql.client._sync.shared.exception_listening import ExceptionListener
from jmsql.client.listeners import CompletionListener, MessageListener
from jmsql.client.metadata import ConnectionMetaData
from jmsql.messages import Byte, Char, Float, ForeignMessage, Long, Short

__all__ = [
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
