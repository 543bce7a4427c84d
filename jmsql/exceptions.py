"""The exceptions of JMS, under one root, in Python's terms.

Java's checked exceptions keep their names below [`JMSException`][jmsql.JMSException]. Java's unchecked ones become
subclasses of Python's own: ``NumberFormatException`` is a `ValueError`, ``IndexOutOfBoundsException`` is
`IndexError`, and reading a null as a character is a `TypeError`.

Source: JMS 1.1 chapter 7.3; Jakarta Messaging 3.1 chapter 9.
"""

from __future__ import annotations

from typing import Any

from jmsql.public_names import set_module

__all__ = [
    "IllegalStateException",
    "InvalidClientIDException",
    "InvalidDestinationException",
    "InvalidSelectorException",
    "JMSException",
    "JMSSecurityException",
    "JobFailed",
    "MessageEOFException",
    "MessageFormatException",
    "MessageNotReadableException",
    "MessageNotWriteableException",
    "NullValueError",
    "NumberFormatException",
    "RequestFailed",
    "ResourceAllocationException",
    "TransactionInProgressException",
    "TransactionRolledBackException",
    "UnsupportedOperationException",
]


@set_module("jmsql")
class JMSException(Exception):
    """The base class of all errors of jmsql.

    Args:
        reason: The problem, and advice.
        error_code: A short code for programs to test: PostgreSQL's SQLSTATE where the server reported the error,
            else None.

    The exception that caused this one, if any, is linked as ``__cause__``.
    """

    def __init__(self, reason: str = "", error_code: str | None = None) -> None:
        super().__init__(reason)
        self.error_code = error_code

    def __reduce__(self) -> tuple[type[JMSException], tuple[Any, ...]]:
        return type(self), (str(self), self.error_code)

    @property
    def linked_exception(self) -> BaseException | None:
        """The exception that caused this one (JMS's ``getLinkedException``)."""
        return self.__cause__


@set_module("jmsql")
class IllegalStateException(JMSException):
    """The object is not in a state that allows the call: closed, or of the wrong kind of session."""


@set_module("jmsql")
class InvalidClientIDException(JMSException):
    """The client identifier is unusable: empty, or in use by another live connection."""


@set_module("jmsql")
class InvalidDestinationException(JMSException):
    """The destination does not exist, is of the wrong kind, or is missing."""


@set_module("jmsql")
class InvalidSelectorException(JMSException):
    """The message selector has a syntax or type error; the message shows where."""


@set_module("jmsql")
class JMSSecurityException(JMSException):
    """PostgreSQL refused the credentials or the privilege."""


@set_module("jmsql")
class MessageEOFException(JMSException):
    """A StreamMessage or BytesMessage ended before the read was complete."""


@set_module("jmsql")
class MessageFormatException(JMSException):
    """A value has a type that the message does not hold, or cannot be read as the type asked for."""


@set_module("jmsql")
class MessageNotReadableException(JMSException):
    """The body is in write-only mode: call ``reset()`` before reading."""


@set_module("jmsql")
class MessageNotWriteableException(JMSException):
    """The body or the properties are in read-only mode: clear them before writing."""


@set_module("jmsql")
class ResourceAllocationException(JMSException):
    """A resource is lacking: the server is down, full, or out of connections, or the process is out of threads."""


@set_module("jmsql")
class TransactionInProgressException(JMSException):
    """The call is not allowed inside a larger transaction, such as the caller's own."""


@set_module("jmsql")
class TransactionRolledBackException(JMSException):
    """The commit ended in a rollback: nothing sent or received in the transaction took effect."""


@set_module("jmsql")
class UnsupportedOperationException(JMSException):
    """The provider does not offer this optional operation."""


@set_module("jmsql")
class JobFailed(JMSException):
    """A message whose result is asked for has failed, has expired or was cancelled.

    Args:
        reason: The problem, with the last line of the error.
        error: The handler's error with its traceback; None: there was none.
        state: "failed", "expired" or "cancelled".
    """

    def __init__(self, reason: str = "", error: str | None = None, state: str = "failed") -> None:
        super().__init__(reason)
        self.error = error
        self.state = state

    def __reduce__(self) -> tuple[type[JobFailed], tuple[Any, ...]]:
        return type(self), (str(self), self.error, self.state)


@set_module("jmsql")
class RequestFailed(JMSException):
    """The handler of a request has failed for the last time: no reply comes.

    Args:
        reason: The problem, with the last line of the error.
        error: The handler's error with its traceback; None: there was none.
    """

    def __init__(self, reason: str = "", error: str | None = None) -> None:
        super().__init__(reason)
        self.error = error

    def __reduce__(self) -> tuple[type[RequestFailed], tuple[Any, ...]]:
        return type(self), (str(self), self.error)


@set_module("jmsql")
class NumberFormatException(ValueError):
    """A string that is no number was read as one, or a null as an integer (Java's ``NumberFormatException``)."""


@set_module("jmsql")
class NullValueError(TypeError):
    """A null was read as a float, double or char, or given for a value (Java's ``NullPointerException``)."""
