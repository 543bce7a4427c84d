"""Processes that handle messages: `jmsql worker` runs the listeners of an `Application` (the extra ``worker``)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from jmsql.values.outcomes import Reject, RetryAfter
from jmsql.values.rates import AtMost, Rate
from jmsql.worker.timings import WorkerTimings

if TYPE_CHECKING:
    from jmsql.worker.application import Application
    from jmsql.worker.handlers.drained import DrainedMessage
    from jmsql.worker.handlers.function import ListenerFunction
    from jmsql.worker.handlers.listener import HandlerBatch, HandlerCall
    from jmsql.worker.router import Router

__all__ = [
    "Application",
    "AtMost",
    "DrainedMessage",
    "HandlerBatch",
    "HandlerCall",
    "ListenerFunction",
    "Rate",
    "Reject",
    "RetryAfter",
    "Router",
    "WorkerTimings",
]

_MODULES = {
    "Application": "application",
    "DrainedMessage": "handlers.drained",
    "HandlerBatch": "handlers.listener",
    "HandlerCall": "handlers.listener",
    "ListenerFunction": "handlers.function",
    "Router": "router",
}
"""Names of modules that the supervisor of a worker's processes, which works with no database, does not load."""

if not TYPE_CHECKING:  # else a type checker would take each misspelt name for a value

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
