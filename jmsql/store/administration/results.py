"""Stored results of messages that have ended, as administrators list and read them."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from jmsql.public_names import set_module
from jmsql.store.administration.looks import LONGEST_TEXT
from jmsql.store.receiving.results import uuid_of
from jmsql.store.statement import Query, SqlFile, Statement, Steps, column, fill, records, value
from jmsql.values.clock import monotonic
from jmsql.values.postgresql_text import from_postgresql

T = TypeVar("T")

STATES = ("done", "failed", "expired", "cancelled")
TIME_LIMIT = 2.0
"""Seconds after which a filtered list returns the results that it has found."""
_WINDOW = 5000
"""How many results a statement reads."""
_ENDS = 5
"""How many results of one message are read: it has one for each queue in which it has ended."""
_WRITTEN = re.compile(r"(\d{1,17})\.([0-9a-f-]{36})\.(\d{1,10})", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@set_module("jmsql.admin")
class ResultSummary(NamedTuple):
    """The result of a message, with the beginning of its value."""

    message_id: str
    """JMSMessageID"""
    destination: str | None
    """The queue in which the message ended; None: it is gone."""
    state: str
    """``done``, ``failed``, ``expired`` or ``cancelled``."""
    value: str | None
    """The first 200 characters of the handler's value, as JSON; None: there is no value, or it is long."""
    error: str | None
    """The line of the error that names the exception."""
    deliveries: int
    """How often the message was delivered, the last time included."""
    sent_at: datetime | None
    started_at: datetime | None
    """When the handler was called that has returned."""
    finished_at: datetime
    """When the message ended."""
    kept_until: datetime
    """When the result is removed."""
    position: str
    """Give it as `before`, to list those that ended earlier."""


class ResultPage(NamedTuple):
    """Results, the last first, and the position before which to go on; None: there are no more."""

    results: list[ResultSummary]
    next: str | None
    examined: int


class WholeResult(NamedTuple):
    """A result with its value, error and message; long ones are their beginnings. `value_size` is in bytes."""

    summary: ResultSummary
    value_size: int | None
    jms_type: str | None
    properties: str | None
    text: str | None
    text_size: int | None


class _Key(NamedTuple):
    finished_at: datetime
    message_id: str
    queue_id: int

    def __str__(self) -> str:
        microseconds = (self.finished_at - _EPOCH) // timedelta(microseconds=1)
        return f"{microseconds}.{self.message_id}.{self.queue_id}"


_LAST = _Key(datetime.max.replace(tzinfo=UTC), "ffffffff-ffff-ffff-ffff-ffffffffffff", 2**31 - 1)


def _parsed(text: str) -> _Key:
    found = _WRITTEN.fullmatch(text)
    uuid = found and uuid_of(found[2])
    if found is None or uuid is None or int(found[3]) >= 2**31:
        raise ValueError(f"Expected the position of a result, got {text!r}.")
    return _Key(_EPOCH + timedelta(microseconds=int(found[1])), uuid, int(found[3]))


def require_position(text: str | None) -> None:
    """Refuse a text that is no position of a result; None is the end of all.

    Raises:
        ValueError: It cannot be read.
    """
    if text is not None:
        _parsed(text)


def _to_summary(row: tuple[Any, ...]) -> ResultSummary:
    message_id, destination, state, stored, error, deliveries, sent_at, started_at, finished_at, kept_until, queue = row
    position = str(_Key(finished_at, message_id.removeprefix("ID:"), queue))
    times = sent_at, started_at, finished_at, kept_until
    return ResultSummary(message_id, destination, state, stored, _read(error), deliveries, *times, position)


def _read(text: str | None) -> str | None:
    return None if text is None else from_postgresql(text)


def _to_whole(row: tuple[Any, ...]) -> WholeResult:
    *summary, value_size, jms_type, properties, text, text_size = row
    return WholeResult(
        _to_summary(tuple(summary)), value_size, _read(jms_type), _read(properties), _read(text), text_size
    )


_sql = SqlFile("kept_results")
_PLACE = {"place": _sql["place"]}
_BEGINNING = {
    "value": _sql["beginning_of_value"],
    "error": fill(SqlFile("looks")["error_line"], failure="r.error"),
}
_WHOLE = {"value": _sql["whole_value"], "error": _sql["whole_error"], "contents": _sql["contents"]}
_HIDDEN = {"value": "null::text", "error": "null::text", "contents": _sql["no_contents"]}


def _statement(name: str, parts: dict[str, str], read: Callable[[tuple[Any, ...]], T]) -> Statement[list[T]]:
    return _sql.statement(
        name, "looking at results", records(read), {"shown": fill(_sql["shown"], **parts)} | parts | _PLACE
    )


_listed = {hidden: _statement("listed", _HIDDEN if hidden else _BEGINNING, _to_summary) for hidden in (False, True)}
_whole = {hidden: _statement("whole", _HIDDEN if hidden else _WHOLE, _to_whole) for hidden in (False, True)}
_end_of_window = _sql.statement("end_of_window", "looking at results", records(_Key._make))
_keeping = _sql.statement("keeping", "looking at the queues that keep results", column)
_has_result = _sql.statement("has_result", "looking for the result", value(bool))
_keeps_results = _sql.statement("keeps_results", "looking for results", value(bool))


def results(
    destination: str | None,
    state: str | None,
    before: str | None,
    limit: int,
    *,
    hidden: bool = False,
    time_limit: float | None = None,
) -> Steps[ResultPage]:
    """Return results, the last first.

    Args:
        destination: The name of their queue; None: all.
        state: Their state; None: all.
        before: The position before which to go on.
        limit: How many at most.
        hidden: True to leave out values and errors, which are not read then.
        time_limit: Seconds after which it returns the results that it has found; None: it reads on.

    Raises:
        ValueError: The position cannot be read.
    """
    key, examined = _LAST if before is None else _parsed(before), 0
    found: list[ResultSummary] = []
    end_at = None if time_limit is None else monotonic() + time_limit
    while len(found) < limit:
        place = {**key._asdict(), "window": _WINDOW}
        found += yield from _listed[hidden].bind(place, destination=destination, state=state, limit=limit - len(found))
        if len(found) == limit:
            break
        end = yield from _end_of_window.bind(place)
        if not end:
            return ResultPage(found, None, examined)
        key, examined = end[0], examined + _WINDOW
        if end_at is not None and monotonic() >= end_at:
            return ResultPage(found, str(key), examined)
    return ResultPage(found, found[-1].position if found else before, examined)


def whole_results(message_uuid: str, *, hidden: bool = False) -> Query[list[WholeResult]]:
    """Return the results of a message, the last first: one for each queue in which it has ended, at most five."""
    return _whole[hidden].bind(message_id=message_uuid, longest=LONGEST_TEXT, limit=_ENDS)


def queues_that_keep(limit: int) -> Query[list[str]]:
    """Return names of queues whose listeners keep results."""
    return _keeping.bind(limit=limit)


def has_result(message_uuid: str) -> Query[bool]:
    """Return True if a result of the message is stored."""
    return _has_result.bind(message_id=message_uuid)


def keeps_results(queue_id: int) -> Query[bool]:
    """Return True if the listeners of a queue keep results."""
    return _keeps_results.bind(queue_id=queue_id)
