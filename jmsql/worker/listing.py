"""A listing of an application's listeners, without a database: for people, and for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jmsql.messages.codecs.schemas import Schema
from jmsql.store.schedules.definition import Schedule
from jmsql.values.policies import dead_letter_queue_of
from jmsql.values.ticks import Cron
from jmsql.worker.handlers.bodies import body_schema
from jmsql.worker.handlers.listener import Listener
from jmsql.worker.loading import choose_listeners, load_application

# `jmsql worker --list` imports the application as a process would, connects to nothing, and calls nothing. Programs
# read its output, so an application that prints as it is imported prints to standard error.


def listeners_of(
    application: str, concurrency: int, only: Sequence[str] = (), without: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Import an application as a worker's process does, and return its listeners.

    Args:
        application: The application: ``package.module:name``.
        concurrency: How many messages a listener handles at a time, unless it says so itself.
        only: Patterns of destinations. Default: all destinations.
        without: Patterns of those that are not.

    Raises:
        RefusalError: The application does not exist or has no listeners, or its module cannot be imported; or a pattern
            is that of no listener.
    """
    if (directory := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, directory)
    with redirect_stdout(sys.stderr):  # the application's output is not part of the list
        loaded = load_application(application)
        listeners = choose_listeners(loaded.listeners, only, without)
    return [_document(listener, concurrency, loaded.schedules) for listener in listeners]


def _document(listener: Listener, concurrency: int, schedules: Sequence[Schedule]) -> dict[str, Any]:
    facts = listener.facts(concurrency)
    policy = listener.redelivery
    return {
        **facts,
        "own_concurrency": listener.concurrency,
        "coroutine": listener.is_async,
        "visibility_timeout": listener.visibility_timeout,
        "redelivery": None if policy is None else asdict(policy) | {"dead_letter_queue": dead_letter_queue_of(policy)},
        "no_retry_for": [f"{each.__module__}.{each.__qualname__}" for each in listener.no_retry_for],
        "reply_to": None if listener.reply_destination is None else str(listener.reply_destination),
        "keep_result": None if listener.keep_result is None else listener.keep_result.seconds,
        "schedules": [_schedule(each) for each in schedules if each.destination == listener.destination],
        "body": _name(listener.body),
        "body_schema": _json_schema(listener.body),
    }


def _schedule(schedule: Schedule) -> dict[str, Any]:
    timing = schedule.timing
    if isinstance(timing, Cron):
        return {"name": schedule.name, "cron": timing.text, "every": None, "time_zone": timing.time_zone}
    return {"name": schedule.name, "cron": None, "every": timing.interval.total_seconds(), "time_zone": None}


def _name(annotation: Any) -> str | None:
    if annotation is None or annotation is object:
        return None
    is_class = isinstance(annotation, type) and not hasattr(annotation, "__origin__")
    return annotation.__qualname__ if is_class else str(annotation)


def _json_schema(annotation: Any) -> dict[str, Any] | None:
    """Return the JSON schema of bodies; None: they are not read as JSON, or nothing can write it."""
    if annotation is None:
        return None
    try:
        schema: Schema | None = body_schema(annotation)
    except TypeError:  # a class that is registered, and that no library describes
        return None
    return None if schema is None else schema.json_schema() or None
