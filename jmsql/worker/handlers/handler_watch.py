"""What the handlers of a process do now, and what they have done."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from jmsql.exceptions import JMSException
from jmsql.store.control.counters import Counts
from jmsql.worker.handlers.listener import Listener
from jmsql.worker.reporting.handler_counters import HandlerCounters
from jmsql.worker.reporting.reports import Progress

__all__ = ["HandlerWatch", "Handling"]

logger = logging.getLogger("jmsql.worker")


class Handling(NamedTuple):
    """A call of a handler that has not ended yet."""

    message_id: str | None
    started: float
    """When, on the monotonic clock."""


class WatchedTask(Protocol):
    """A thread or task that calls the handler of a listener."""

    listener: Listener
    counters: HandlerCounters
    handling: Handling | None
    has_ended: bool
    failure: Exception | None
    """Why it takes no more messages, if that was not wanted."""


class HandlerWatch:
    """Watches the threads and tasks that call handlers, from any thread.

    Args:
        tasks: The threads and tasks.
        long_transaction: After how many seconds a handler that holds a transaction open is named in the log.
    """

    def __init__(self, tasks: Sequence[WatchedTask], long_transaction: float) -> None:
        self._tasks = tasks
        self._long_transaction = long_transaction
        self._named: set[Handling] = set()

    @property
    def is_whole(self) -> bool:
        """Whether all of them run."""
        return not any(task.has_ended for task in self._tasks)

    @property
    def failure(self) -> JMSException | None:
        """What to raise because one of them takes no more messages, which nobody has wanted; None: all do."""
        for task in self._tasks:
            if task.failure is not None:
                error = JMSException(f"{task.listener} takes no more messages: {task.failure!r}")
                error.__cause__ = task.failure
                return error
        return None

    def look(self) -> None:
        """Warn of handlers that hold a transaction for long, once of each call."""
        now = time.monotonic()
        calls = [(task, handling) for task in self._tasks if (handling := task.handling) is not None]
        for task, handling in calls:
            seconds = now - handling.started
            if task.listener.transacted and handling not in self._named and seconds >= self._long_transaction:
                self._named.add(handling)
                self._warn(task, handling, seconds)
        self._named.intersection_update([handling for _, handling in calls])

    def _warn(self, task: WatchedTask, handling: Handling, seconds: float) -> None:
        task.counters.long_transactions += 1
        logger.warning(
            "%s has held a transaction open for %.0f s, for the message %s. That keeps its locks, and vacuum from its "
            "work; do what takes long elsewhere, or register the handler with transacted=False.",
            task.listener,
            seconds,
            handling.message_id,
            extra={
                "listener": task.listener.name,
                "destination": str(task.listener.destination),
                "message_id": handling.message_id,
                "seconds": round(seconds, 6),
            },
        )

    def name_unfinished(self) -> None:
        """Warn of handlers that nobody waits for any longer: what they block cannot end in order."""
        for task in self._tasks:
            if task.handling is not None:
                logger.warning(
                    "%s has not finished, and does not let the process end in order; its message is delivered again.",
                    task.listener,
                    extra={"listener": task.listener.name, "destination": str(task.listener.destination)},
                )

    def progress(self, destination_counters: Mapping[str, Counts]) -> Progress:
        """Return what the supervisor is told.

        Args:
            destination_counters: What the process has sent and received, if the worker wants to know.
        """
        handler_counters: dict[str, HandlerCounters] = {}
        for task in self._tasks:
            handler_counters.setdefault(task.listener.name, HandlerCounters()).add(task.counters)
        now = time.monotonic()
        running = [(task.listener, handling) for task in self._tasks if (handling := task.handling) is not None]
        longest = max((now - handling.started for listener, handling in running if listener.transacted), default=0.0)
        return Progress(len(running), longest, handler_counters, destination_counters)
