"""The steps of a chain: each handler's result is the message of the next one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from copy import copy
from typing import Any

from jmsql.messages import Message
from jmsql.messages.foreign import as_jms_message
from jmsql.messages.properties import THEN, is_settable
from jmsql.values.destinations import AnyDestination, Destination, require_destination

# The rest of a chain travels in the message itself (`JMS_Then`), so a step needs no table, and the send of the next
# step is a part of the transaction that ends the one before. A step that is repeated after a crash sends once: the send
# is undone with the rest.


_NOT_CARRIED = frozenset((THEN, "JMSXGroupSeq", "traceparent", "tracestate"))
"""Properties of a message that its next step does not have. The span of the handler is the parent of the next send."""


Step = AnyDestination


def steps_as_text(steps: Iterable[Step], first: object = None) -> str | None:
    """Return the value of the property `JMS_Then`; None if there are no steps.

    Args:
        steps: The next steps.
        first: The step before them, or its destination.

    Raises:
        TypeError: A single step is given in place of a list, or a handler can read nothing that the one before returns.
        InvalidDestinationException: A step is neither a destination nor a registered handler.
    """
    if isinstance(steps, str | Destination) or hasattr(steps, "destination"):
        raise TypeError(f"Expected a list of steps, got {steps!r}. Write then=[…], also for a single step.")
    names = []
    for step in steps:
        names.append(require_destination(step).uri)
        check_step(first, step)
        first = step
    return json.dumps(names, ensure_ascii=False) if names else None


def check_step(before: object, step: object) -> None:
    """Make sure that a handler may be able to read what the handler before it returns.

    Raises:
        TypeError: Their annotations leave no way.
    """
    check: Any = getattr(before, "check_next_step", None)
    if check is not None:
        check(step)


def next_message(message: Message, result: Message | None) -> Message:
    """Return the message for the next step.

    It has the group and the other properties of the message before, its priority being the producer's to set.

    Args:
        message: The message that was handled, which has a next step.
        result: The handler's result; None: the body of the message goes on.
    """
    _, *others = message.next_steps
    following = message if result is None else as_jms_message(result)
    own = {name: value for name, value in following.properties.items() if is_settable(name)}
    if following.delivery_count is not None:  # received, so its properties are read-only
        following = copy(following)
        following.clear_properties()
    carried = {name: value for name, value in message.properties.items() if is_settable(name)}
    for name, value in (carried | own).items():
        if name not in _NOT_CARRIED:
            following.set_object_property(name, value)
    if others:
        following.set_string_property(THEN, steps_as_text(others))
    if following.jms_reply_to is None:
        following.jms_reply_to = message.jms_reply_to
    return following
