"""What `Application.drain` tells of the messages that were handled."""

from typing import NamedTuple

from jmsql.messages import Message
from jmsql.public_names import set_module


@set_module("jmsql.worker")
class DrainedMessage(NamedTuple):
    """A message with which `drain` has called a handler.

    Args:
        listener: The name of the handler.
        message: The message.
        error: What the handler has raised; None: nothing.
        sequence: The message's place in its queue.
    """

    listener: str
    message: Message
    error: BaseException | None
    sequence: int
