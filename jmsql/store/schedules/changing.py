"""Making, pausing and deleting schedules, and sending their messages by hand."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from jmsql.exceptions import IllegalStateException, JMSException
from jmsql.store.destinations.lookup import queue_id, topic_id
from jmsql.store.schedules.definition import Schedule, ScheduleSummary, stored_timing, times_of
from jmsql.store.schedules.publishing import publish_scheduled
from jmsql.store.sending.notification import SCHEDULES_CHANNEL, notify
from jmsql.store.statement import Query, SqlFile, Steps, in_transaction, nothing, record, records, row_count, rows
from jmsql.values.destinations import Topic
from jmsql.values.ticks import Missed

_sql = SqlFile("schedules")


class _Stored(NamedTuple):
    """A locked row, or nulls where there is none; and the server's time."""

    cron: str | None
    every: timedelta | None
    time_zone: str | None
    next_at: datetime | None
    paused: bool | None
    declared: bool | None
    now: datetime

    @property
    def is_there(self) -> bool:
        return self.paused is not None

    @property
    def times(self) -> dict[str, object]:
        return {"cron": self.cron, "every": self.every, "time_zone": self.time_zone}


def _summary(row: tuple[Any, ...]) -> ScheduleSummary:
    found = ScheduleSummary._make(row)
    return found._replace(missed=Missed(found.missed))


_lock = _sql.statement("lock", "locking the schedules", nothing)
_look = _sql.statement("look", "looking at the schedule {name!r}", record(_Stored._make))
_define = _sql.statement("define", "making the schedule {name!r}", row_count)
_set_paused = _sql.statement("set_paused", "changing the schedule {name!r}", nothing)
_delete = _sql.statement("delete", "deleting the schedule {name!r}", row_count)
_send_now = _sql.statement("send_now", "sending the message of the schedule {name!r}", rows)
_keep_declared = _sql.statement("keep_declared", "declaring schedules", nothing)
_schedules = _sql.statement("schedules", "looking at the schedules", records(_summary))


def schedules(name: str | None = None) -> Query[list[ScheduleSummary]]:
    """Return the schedules by name, or the one of a name."""
    return _schedules.bind(name=name)


def schedule(name: str) -> Steps[ScheduleSummary]:
    """Return a schedule.

    Raises:
        JMSException: There is no such schedule.
    """
    found = yield from schedules(name)
    if not found:
        raise _missing(name)
    return found[0]


def set_schedule(schedule: Schedule) -> Steps[None]:
    """Make a schedule, or change the one of its name.

    Raises:
        IllegalStateException: An application declares it.
        InvalidDestinationException: The destination is not there, and is not made by its use.
        JMSException: The role does not administer the schema, or the server cannot be asked.
    """
    yield from in_transaction(_define_one(schedule, declared=False))


def declare(declared: Iterable[Schedule]) -> Steps[None]:
    """Make and change the schedules of an application, each in a transaction of its own; raises as `set_schedule`."""
    declared = sorted(declared, key=lambda each: each.name)
    for each in declared:
        yield from in_transaction(_define_one(each, declared=True))
    yield from keep_declared([each.name for each in declared])


def keep_declared(names: list[str]) -> Query[None]:
    """Note, to five minutes, that a worker declares schedules now."""
    return _keep_declared.bind(names=names)


def _define_one(schedule: Schedule, *, declared: bool) -> Steps[None]:
    yield from _lock.bind()
    stored = yield from _look.bind(name=schedule.name)
    if stored.declared and not declared:
        raise IllegalStateException(
            f"The schedule {schedule.name!r} is declared by an application: change it there. It can be paused here; or "
            "delete it first, once no application declares it."
        )
    yield from (topic_id if isinstance(schedule.destination, Topic) else queue_id)(schedule.destination.name)
    message = schedule.message
    times = times_of(schedule.timing)
    changed = yield from _define.bind(
        times,
        name=schedule.name,
        destination=schedule.destination.uri,
        missed=schedule.missed.value,
        overlap=schedule.overlap,
        inverse_priority=schedule.inverse_priority,
        time_to_live=schedule.time_to_live,
        message_type=message.message_type,
        correlation_id=message.correlation_id,
        reply_to=message.reply_to,
        type=message.type,
        properties=message.properties,
        property_types=message.property_types,
        text_body=message.text_body,
        json_body=message.json_body,
        body_types=message.body_types,
        bytes_body=message.bytes_body,
        next_at=_next(schedule, stored, is_same=stored.times == times),
        declared=declared,
    )
    if changed:
        yield from notify([str(SCHEDULES_CHANNEL)])


def _next(schedule: Schedule, stored: _Stored, *, is_same: bool) -> datetime | None:
    """Return the next tick of a schedule that is made or changed.

    A tick that is due is not lost with the change: it was to be sent before it.
    """
    if stored.paused:
        return None
    if stored.next_at is not None and (is_same or stored.next_at <= stored.now):
        return stored.next_at
    return schedule.timing.after(stored.now)


def pause(name: str, *, paused: bool) -> Steps[None]:
    """Pause a schedule, or go on with it: then its next tick is the first one after now.

    Raises:
        JMSException: There is no such schedule, or its times cannot be read here.
    """
    yield from in_transaction(_pause(name, paused=paused))


def _pause(name: str, *, paused: bool) -> Steps[None]:
    yield from _lock.bind()
    stored = yield from _look.bind(name=name)
    if not stored.is_there:
        raise _missing(name)
    if stored.paused == paused:
        return
    next_at = None
    if not paused:
        assert stored.time_zone is not None
        try:
            next_at = stored_timing(stored.cron, stored.every, stored.time_zone).after(stored.now)
        except ValueError as error:
            raise JMSException(f"The schedule {name!r} cannot be resumed. {error}") from error
    yield from _set_paused.bind(name=name, paused=paused, next_at=next_at)
    yield from notify([str(SCHEDULES_CHANNEL)])


def delete(name: str) -> Steps[None]:
    """Delete a schedule.

    Raises:
        JMSException: There is no such schedule.
    """
    if not (yield from _delete.bind(name=name)):
        raise _missing(name)


def send_scheduled(name: str) -> Steps[str]:
    """Send a schedule's message now, regardless of its times, and return the message's identifier.

    Raises:
        JMSException: There is no such schedule, or its destination is not there.
    """
    return (yield from in_transaction(_send_scheduled(name)))


def _send_scheduled(name: str) -> Steps[str]:
    found = yield from _send_now.bind(name=name)
    if not found:
        raise _missing(name)
    [(message_id, tick, is_topic)] = found
    if is_topic:
        yield from publish_scheduled(name, tick, 0)
    return f"ID:{message_id}"


def _missing(name: str) -> JMSException:
    return JMSException(f"There is no schedule {name!r}. `jmsql schedule list` lists those there are.")
