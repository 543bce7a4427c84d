"""The log of a worker's processes: lines for people, or JSON for programs."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from types import TracebackType

# Applications configure the log as they are imported, and `dictConfig` disables all loggers that it does not name. So
# `complete_log` runs after the import. It enables the loggers of jmsql again, since a worker must not be silent about
# failures, and changes formats and levels only where an option asks for that.


class LogFormat(StrEnum):
    """The format of the log."""

    text = "text"
    json = "json"


class LogLevel(StrEnum):
    """The lowest level of records in the log."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"
"""The path of every file of jmsql begins with it."""


def from_application(frames: TracebackType | None) -> TracebackType | None:
    """Return a traceback from the first frame outside of jmsql on; all of it if there is none."""
    found = frames
    while found is not None and found.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        found = found.tb_next
    return frames if found is None else found


_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class JSONFormatter(logging.Formatter):
    """Writes a record as a line of JSON, with its `extra` fields."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "process": self._process,
            "message": record.getMessage(),
        }
        document |= {name: value for name, value in record.__dict__.items() if name not in _STANDARD}
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document, default=str)


class TextFormatter(logging.Formatter):
    """Writes a record as a line, and below it the traceback that another process has reported, if one has."""

    def __init__(self, process: str) -> None:
        name = process.replace("%", "%%")
        super().__init__(f"%(asctime)s %(levelname)s {name}: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        reported = getattr(record, "exception", None)
        return line if reported is None else f"{line}\n{reported}"


def start_log(form: LogFormat | None, process: str, level: LogLevel | None) -> None:
    """Write the log to the standard error.

    Args:
        form: Its format; None: text.
        process: The name of this process.
        level: Its level; None: info.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_formatter(form, process))
    logging.basicConfig(handlers=[handler], force=True)
    _set_level(level or LogLevel.info)


def complete_log(form: LogFormat | None, process: str, level: LogLevel | None) -> None:
    """Restore the worker's log after an application's own configuration, by `logging.config.dictConfig` for example.

    The application's configuration holds where an option was not given, but it silences no failure of a handler.

    Args:
        form: The format on standard output and error; None: the application's.
        process: The name of this process.
        level: The level; None: the application's.
    """
    enable_loggers()
    root = logging.getLogger()
    if not root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_formatter(form, process))
        root.addHandler(handler)
    consoles = [
        handler
        for logger in (root, *_own_loggers())
        for handler in logger.handlers
        if isinstance(handler, logging.StreamHandler) and handler.stream in {sys.stdout, sys.stderr}
    ]
    if form is not None:
        for handler in consoles:
            handler.setFormatter(_formatter(form, process))
    if level is not None:
        number = _set_level(level)
        for handler in consoles:
            handler.setLevel(min(handler.level, number))


def enable_loggers() -> None:
    """Have the loggers of jmsql write again that a configuration has disabled, as `dictConfig` does by default."""
    for logger in _own_loggers():
        logger.disabled = False


def _own_loggers() -> list[logging.Logger]:
    found = list(logging.getLogger().manager.loggerDict.items())
    return [each for name, each in found if isinstance(each, logging.Logger) and f"{name}.".startswith("jmsql.")]


def _formatter(form: LogFormat | None, process: str) -> logging.Formatter:
    return JSONFormatter(process) if form is LogFormat.json else TextFormatter(process)


def _set_level(level: LogLevel) -> int:
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.getLogger().setLevel(max(number, logging.INFO))
    logging.getLogger("jmsql").setLevel(number)
    return number
