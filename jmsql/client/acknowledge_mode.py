"""A session's way to acknowledge received messages."""

from __future__ import annotations

from enum import IntEnum

from jmsql.exceptions import JMSException
from jmsql.public_names import set_module


@set_module("jmsql")
class AcknowledgeMode(IntEnum):
    """A session's way to acknowledge received messages (JMS 1.1, chapter 4.4.11)."""

    TRANSACTED = 0
    """With the commit of the session's transaction."""

    AUTO = 1
    """Each message by itself, when `receive` or the listener returns."""

    CLIENT = 2
    """All messages received so far, when `Message.acknowledge` is called."""

    DUPS_OK = 3
    """Some time later: fast, but after a failure messages may come twice."""


def require_mode(mode: object) -> AcknowledgeMode:
    """Return an acknowledge mode, also for one of JMS's numbers.

    Raises:
        JMSException: The object is no `AcknowledgeMode`.
    """
    if isinstance(mode, AcknowledgeMode):
        return mode
    if type(mode) is int and mode in set(AcknowledgeMode):  # and no bool, and no member of another enumeration
        return AcknowledgeMode(mode)
    raise JMSException(f"Expected an AcknowledgeMode, got {mode!r}.")


def mode_of_session(transacted: object, acknowledge_mode: object) -> AcknowledgeMode:
    """Return the mode for the arguments of `create_session`: two as in JMS 1.1, or one as in JMS 2.0.

    Args:
        transacted: True or False, or the mode alone.
        acknowledge_mode: The mode of a session that is not transacted.

    Raises:
        JMSException: The arguments name no mode, or two.
    """
    if isinstance(transacted, AcknowledgeMode):
        if acknowledge_mode is not AcknowledgeMode.AUTO:
            raise JMSException(f"Expected one AcknowledgeMode, got {transacted!r} and {acknowledge_mode!r}.")
        return transacted
    if not isinstance(transacted, bool):
        raise JMSException(f"Expected True or False for transacted, or an AcknowledgeMode, got {transacted!r}.")
    if transacted:
        return AcknowledgeMode.TRANSACTED
    mode = require_mode(acknowledge_mode)
    if mode is AcknowledgeMode.TRANSACTED:
        raise JMSException(
            "A session with transacted=False has no mode TRANSACTED. Give the mode alone, "
            "create_session(AcknowledgeMode.TRANSACTED), or transacted=True."
        )
    return mode
