"""Savepoints in the SQL that an application runs in a session's transaction."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

__all__ = ["SavepointCommand", "SavepointListener", "SavepointStep", "read_savepoint_step"]


class SavepointCommand(Enum):
    """What a statement does with a savepoint."""

    SET = auto()
    RELEASE = auto()
    ROLLBACK = auto()


class SavepointStep(NamedTuple):
    """A statement that sets, releases or rolls back to a savepoint."""

    command: SavepointCommand
    name: str


SavepointListener = Callable[[SavepointStep], None]
"""Called before such a statement runs."""

_NAME = r'(?P<name>"(?:[^"]|"")+"|[^\W\d][\w$]*)\s*;?\s*'
_PATTERNS = {
    SavepointCommand.SET: re.compile(rf"\s*savepoint\s+{_NAME}", re.IGNORECASE),
    SavepointCommand.RELEASE: re.compile(rf"\s*release\s+(?:savepoint\s+)?{_NAME}", re.IGNORECASE),
    SavepointCommand.ROLLBACK: re.compile(
        rf"\s*rollback\s+(?:(?:work|transaction)\s+)?to\s+(?:savepoint\s+)?{_NAME}", re.IGNORECASE
    ),
}


def read_savepoint_step(statement: str) -> SavepointStep | None:
    """Return what a statement does with a savepoint; None: nothing that can be told by its text."""
    for command, pattern in _PATTERNS.items():
        match = pattern.fullmatch(statement)
        if match is not None:
            name = match["name"]
            return SavepointStep(command, name[1:-1].replace('""', '"') if name[0] == '"' else name.lower())
    return None
