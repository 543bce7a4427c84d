"""The log of a worker's processes: lines for people, or JSON for programs."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum


class LogFormat(StrEnum):
    """How the log is written."""

    text = "text"
    json = "json"


class LogLevel(StrEnum):
    """Which records the log has."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class JSONFormatter(logging.Formatter):
    """Writes a record as a line of JSON, with what was given as `extra`."""

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


def start_log(form: LogFormat, process: str, level: LogLevel = LogLevel.info) -> None:
    """Write the log to the standard error."""
    handler = logging.StreamHandler(sys.stderr)
    if form is LogFormat.json:
        handler.setFormatter(JSONFormatter(process))
    else:
        handler.setFormatter(TextFormatter(process))
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(level=max(number, logging.INFO), handlers=[handler], force=True)
    logging.getLogger("jmsql").setLevel(number)
