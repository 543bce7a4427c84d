"""Schedules as programs write them."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from jmsql.client.destination_of import body_for
from jmsql.messages import Message
from jmsql.store.schedules.definition import Schedule
from jmsql.values.destinations import AnyDestination, Queue, Topic, require_destination
from jmsql.values.duration import seconds
from jmsql.values.ticks import Missed, read_timing

_HIGHEST_PRIORITY = 9


def make_schedule(
    name: str,
    when: str | timedelta,
    destination: AnyDestination,
    body: object,
    *,
    time_zone: str,
    missed: Missed | str,
    overlap: bool,
    priority: int,
    time_to_live: float | timedelta,
    group: str | None,
    properties: Mapping[str, Any] | None,
) -> Schedule:
    """Return a schedule; for arguments and errors, see `Administration.set_schedule`."""
    from jmsql.client._async.connection.simplified import message_of  # loads the client

    found = require_destination(destination)
    if type(found) not in (Queue, Topic):
        raise ValueError(f"A schedule sends to a queue or a topic, and not to {found}, which goes with its connection.")
    message = message_of(body_for(destination, body))
    given = dict(properties or {})
    if group is not None:
        given["JMSXGroupID"] = group
    if given and isinstance(body, Message):
        raise ValueError("A message as the body has its properties itself.")
    for key, value in given.items():
        message.set_object_property(key, value)
    lifetime = seconds(time_to_live, "time_to_live")
    return Schedule(
        name=name,
        timing=read_timing(when, time_zone),
        destination=found,  # type: ignore[arg-type] # by the test above
        message=message.encode(),
        missed=Missed(missed),
        overlap=overlap,
        inverse_priority=_HIGHEST_PRIORITY - _priority(priority),
        time_to_live=max(1, round(lifetime * 1000)) if lifetime else None,
    )


def _priority(priority: int) -> int:
    if not 0 <= operator.index(priority) <= _HIGHEST_PRIORITY:
        raise ValueError(f"Expected a priority from 0 (lowest) to 9, got {priority!r}.")
    return operator.index(priority)
