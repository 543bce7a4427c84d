"""The results of `Application.drain`."""

from typing import NamedTuple

from jmsql.messages import Message
from jmsql.public_names import set_module


@set_module("jmsql.worker")
class DrainedMessage(NamedTuple):
    """A message with which `drain` has called a handler."""

    listener: str
    """The name of the handler."""
    message: Message
    """The message."""
    error: BaseException | None
    """The error of the handler, if it has failed."""
    sequence: int
    """The message's place in its queue."""
