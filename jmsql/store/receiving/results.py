"""The results of messages that have ended, for listeners that keep them, and the states of all messages."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from jmsql.messages import Message, TextMessage
from jmsql.store.statement import Query, Result, SqlFile, Steps, fill, nothing, row_count

_sql = SqlFile("results")
_FIRST_CHANNEL = 2**30
_IDENTIFIER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Ending(NamedTuple):
    """The state of a message, and its result if it has ended and its listener keeps results."""

    state: str
    destination: str | None
    value: str | None
    """The handler's value, as JSON."""
    error: str | None
    deliveries: int
    sent_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    next_attempt: datetime | None
    kept_until: datetime | None
    """None: this is no result, but a message that was found."""
    jms_type: str | None
    properties: str | None
    """As JSON."""
    text: str | None
    progress: float | None = None
    """The part that its handler has reported as done, while it runs."""
    note: str | None = None
    """The handler's further report."""


UNKNOWN = Ending("unknown", None, None, None, 0, None, None, None, None, None, None, None, None)


def _first(result: Result) -> Ending | None:
    if not result.rows:
        return None
    columns = result.rows[0]
    moments = [None if each is None else _EPOCH + timedelta(microseconds=each) for each in columns[5:10]]
    return Ending(*columns[:5], *moments, *columns[10:])


def _moment(time: str) -> str:
    return fill(_sql["microseconds"], time=time)


_times_of = {
    "find_result": {name: f"r.{name}" for name in ("sent_at", "started_at", "finished_at", "kept_until")},
    "find_message": {name: f"f.{name}" for name in ("sent_at", "claimed_at", "died_at", "next_attempt")},
    "find_past": {
        "sent_at": "jmsql_internal.to_timestamp(h.jms_timestamp)",
        "left_at": "h.acknowledged_at",
    },
}
_find_result, _find_message, _find_past = (
    _sql.statement(
        name, "looking for the result", _first, {place: _moment(time) for place, time in _times_of[name].items()}
    )
    for name in _times_of
)
_keep_for = _sql.statement("keep_for", "preparing to keep results", nothing)
_replaced = {"replaced": _sql["replaced"]}
_keep = _sql.statement("keep", "keeping the result", nothing, _replaced)
_remove = _sql.statement("remove_results", "removing results", row_count)
EXPIRED_PARTS = {"kept": fill(_sql["kept_of_expired"], **_replaced), "count_of_told": _sql["count_of_told"]}
"""The parts of the removal of expired messages that keep results."""


def uuid_of(message_id: str) -> str | None:
    """Return the UUID of a JMSMessageID, with or without its "ID:"; None: no message of jmsql has it."""
    found = message_id.strip().removeprefix("ID:").lower()
    return found if _IDENTIFIER(found) else None


def channel_of(message_uuid: str) -> int:
    """Return the number of a message's result in notifications, which some others share."""
    return _FIRST_CHANNEL + int(message_uuid[-3:], 16)


def keep_for(queue_id: int, seconds: float, *, keeps_message: bool) -> Query[None]:
    """Have dead letters and expired messages of a queue leave results for so long."""
    return _keep_for.bind(queue_id=queue_id, seconds=seconds, keeps_message=keeps_message)


class Keeping(NamedTuple):
    """The time for which a listener keeps results, and their contents."""

    seconds: float
    keeps_message: bool = False
    """True to keep the message's type, properties and text beside its result."""


class Handled(NamedTuple):
    """The end of a message's handling.

    Args:
        state: "done" or "failed".
        value: The handler's value as JSON; None: it has failed.
        error: Why it has failed.
        seconds: How long the handler took.
    """

    state: str
    value: str | None
    error: str | None
    seconds: float


def keep(queue_id: int, message: Message, handled: Handled, keeping: Keeping) -> Query[None]:
    """Keep the result of a message that has an identifier, in the transaction that ends the message."""
    kept = keeping.keeps_message
    return _keep.bind(
        message_id=uuid_of(message.jms_message_id or ""),
        queue_id=queue_id,
        deliveries=message.delivery_count,
        sent_at=message.jms_timestamp or None,
        seconds=handled.seconds,
        keep=keeping.seconds,
        state=handled.state,
        value=handled.value,
        error=handled.error,
        jms_type=message.jms_type if kept else None,
        properties=_properties(message) if kept else None,
        text_body=message.text if kept and isinstance(message, TextMessage) else None,
    )


def _properties(message: Message) -> str:
    return json.dumps({name: message.get_object_property(name) for name in message.property_names if name[:3] != "JMS"})


def channel_of_kept(kept: Query[None]) -> int:
    """Return the channel of a message whose result `keep` stores."""
    return channel_of(str(kept.parameters["message_id"]))


def acknowledged_with(result: Query[None], acknowledgement: Query[int] | Steps[int], claimed: int) -> Steps[int]:
    """Acknowledge messages that are claimed, so many, and store the result of one if no claim was lost."""
    acknowledged = yield from acknowledgement
    if acknowledged == claimed:
        yield from result
    return acknowledged


def find_result(message_uuid: str) -> Query[Ending | None]:
    """Return the result of a message; None: it has not ended, or keeps none."""
    return _find_result.bind(message_id=message_uuid)


def find_ending(message_uuid: str) -> Steps[Ending]:
    """Return the result of a message, or else its state; all messages are read for that."""
    for find in (_find_result, _find_message, _find_result, _find_past):  # it may end between the first two
        found: Ending | None = yield from find.bind(message_id=message_uuid)
        if found is not None:
            return found
    return UNKNOWN


def remove_results(limit: int) -> Query[int]:
    """Remove results whose time is over, so many at most, and return how many."""
    return _remove.bind(limit=limit)
