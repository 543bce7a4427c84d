"""The loggers of jmsql, whose calls raise nothing."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import MutableMapping
from typing import Any

# Handlers and filters of the log are the application's. `logging` prints errors of `Handler.emit` in most handlers, and
# lets those of filters and of other handlers through, to the code that logs. That may be between a commit and its
# consequences, or in the control thread, and most of it logs a failure that it is about to settle. So no call of a
# logger raises, here as in the handlers of `logging`; a test finds loggers of jmsql's that are not contained.


def contained_logger(name: str) -> logging.LoggerAdapter[logging.Logger]:
    """Return a logger whose calls print an error of the application's handlers or filters, and go on."""
    return _ContainedLogger(logging.getLogger(name))


class _ContainedLogger(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, kwargs  # with the `extra` of the call

    def log(self, level: int, msg: object, *args: object, stacklevel: int = 1, **kwargs: Any) -> None:
        try:
            super().log(level, msg, *args, stacklevel=stacklevel + 1, **kwargs)
        except Exception:  # noqa: BLE001 - it is the application's, and may raise anything
            if logging.raiseExceptions and sys.stderr is not None:
                traceback.print_exc()
