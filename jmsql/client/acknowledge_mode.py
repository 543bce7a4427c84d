"""How a session acknowledges what it has received."""

from __future__ import annotations

from enum import IntEnum

from jmsql.public_names import set_module


@set_module("jmsql")
class AcknowledgeMode(IntEnum):
    """How a session acknowledges what it has received (JMS 1.1, chapter 4.4.11)."""

    TRANSACTED = 0
    """With the commit of the session's transaction."""

    AUTO = 1
    """Each message by itself, when `receive` or the listener returns."""

    CLIENT = 2
    """All messages received so far, when `Message.acknowledge` is called."""

    DUPS_OK = 3
    """Some time later: fast, but after a failure messages may come twice."""
