"""Processes that handle messages: `jmsql worker` runs what an `Application` lists (the extra ``worker``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jmsql.values.outcomes import Reject, RetryAfter
from jmsql.worker.timings import WorkerTimings

if TYPE_CHECKING:
    from jmsql.worker.application import Application
    from jmsql.worker.handlers.drained import DrainedMessage
    from jmsql.worker.handlers.listener import HandlerCall

__all__ = ["Application", "DrainedMessage", "HandlerCall", "Reject", "RetryAfter", "WorkerTimings"]

if not TYPE_CHECKING:  # else a type checker would take each misspelt name for a value

    def __getattr__(name: str) -> object:
        # The supervisor of a worker's processes works with no database, and loads nothing that does.
        if name == "Application":
            from jmsql.worker.application import Application

            return Application
        if name == "DrainedMessage":
            from jmsql.worker.handlers.drained import DrainedMessage

            return DrainedMessage
        if name == "HandlerCall":
            from jmsql.worker.handlers.listener import HandlerCall

            return HandlerCall
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
