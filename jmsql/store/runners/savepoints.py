"""Savepoints in the SQL that an application runs in a session's transaction."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import NamedTuple

__all__ = ["SavepointCommand", "SavepointStep", "read_savepoint_step"]


class SavepointCommand(Enum):
    """What a statement does with a savepoint."""

    SET = auto()
    RELEASE = auto()
    ROLLBACK = auto()


class SavepointStep(NamedTuple):
    """A statement that sets, releases or rolls back to a savepoint.

    Args:
        command: What it does.
        name: The savepoint; None where the text does not tell.
    """

    command: SavepointCommand
    name: str | None


_SPACE = r"(?:\s|/\*.*?\*/|--[^\n]*(?:\n|\Z))"
_NAME = rf'(?P<name>"(?:[^"]|"")+"|[^\W\d][\w$]*){_SPACE}*;?{_SPACE}*'
_PATTERNS = {
    command: re.compile(rf"{_SPACE}*{words}{_NAME}".replace(" ", f"{_SPACE}+"), re.IGNORECASE | re.DOTALL)
    for command, words in (
        (SavepointCommand.SET, "savepoint "),
        (SavepointCommand.RELEASE, "release (?:savepoint )?"),
        (SavepointCommand.ROLLBACK, "rollback (?:(?:work|transaction) )?to (?:savepoint )?"),
    )
}
_ROLLBACK = re.compile(r"\brollback\b", re.IGNORECASE)


def read_savepoint_step(statement: str) -> SavepointStep | None:
    """Return what a statement does with a savepoint; None: nothing.

    Of several commands in one text it is known only that a rollback may be among them.
    """
    for command, pattern in _PATTERNS.items():
        match = pattern.fullmatch(statement)
        if match is not None:
            name = match["name"]
            return SavepointStep(command, name[1:-1].replace('""', '"') if name[0] == '"' else name.lower())
    return SavepointStep(SavepointCommand.ROLLBACK, None) if _ROLLBACK.search(statement) else None
