"""Effects of an application's SQL on its connection: settings and locks that outlive the transaction, savepoints."""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple

# The application shares a connection with a session, and runs any SQL there. Two things matter afterwards: whether the
# connection can be shared again, and which of the session's messages a rollback to an application's savepoint has
# undone.
#
# The text of a statement shows its effects, since asking the server would take a round trip for each. Where the text is
# unclear, this module gives the safer answer: the connection is closed and not shared, and anything may have been
# rolled back. A function that changes a setting goes unnoticed. An end of the transaction is looked for outside of
# literals, comments and bodies of functions alone: a false one would have the commit fail.

_OUTLIVES = re.compile(
    r"""
    (?:^|;)\s*  # at the beginning of a statement
    (?:
        set\s+(?!local\b|constraints\b|transaction\b)
        | (?:reset|discard|listen|unlisten|load)\b
        | prepare\s+(?!transaction\b)
        | declare\b
        | create\s+(?:local\s+|global\s+)?temp
        | do\b
        | call\b
    )
    | \b(?:setseed|pg_(?:try_)?advisory_lock(?:_shared)?)\s*\(
    | \bset_config\s*\((?!(?:'[^']*'|%\(\w+\)s|[^'()])*,\s*true\s*\))  # else until the end of the transaction
    """,
    re.IGNORECASE | re.VERBOSE,
)
_CHANGES_ROLE = re.compile(
    r"""
    (?:^|;)\s*  # at the beginning of a statement
    (?:
        (?:set|reset)\s+(?:(?:local|session)\s+)?(?:role|session\s+authorization|session_authorization)\b
        | (?:do|call|execute)\b
    )
    | \bset_config\s*\(\s*(?:'(?:role|session_authorization)'|[^'\s])
    """,
    re.IGNORECASE | re.VERBOSE,
)
_DEALLOCATES = re.compile(r"\b(?:deallocate|discard)\b", re.IGNORECASE)
_ENDS = re.compile(
    r"(?:\A|;)\s*(?:(?:commit|end|abort)\b|prepare\s+transaction\b|"
    r"rollback\b(?!\s+(?:(?:work|transaction)\s+)?to\b))",
    re.IGNORECASE,
)
_LITERAL = r"""
    (?<!\w)e'(?:[^'\\]|''|\\.)*' | '(?:[^']|'')*' | "(?:[^"]|"")*"
    | (?<!\w)(?P<tag>\$(?:[^\W\d]\w*)?\$).*?(?P=tag)
    """
_COMMENT_OR_LITERAL = re.compile(
    rf"(?P<line>--[^\n]*) | (?P<block>/\*) | {_LITERAL}", re.IGNORECASE | re.VERBOSE | re.DOTALL
)
_BLOCK_EDGE = re.compile(r"/\*|\*/")
_OPAQUE = re.compile(
    rf"{_LITERAL} | \bbegin\s+atomic\b.*  # a function's body, with the rest of the text",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
"""Text that holds no commands of the statement."""


def without_comments(statement: str) -> str:
    """Return a statement with a space in place of each comment; block comments may be nested."""
    if "--" not in statement and "/*" not in statement:
        return statement
    parts: list[str] = []
    place = 0
    while (found := _COMMENT_OR_LITERAL.search(statement, place)) is not None:
        parts.append(statement[place : found.start()])
        place = found.end()
        depth = 1 if found["block"] else 0
        while depth:
            edge = _BLOCK_EDGE.search(statement, place)
            if edge is None:  # the server refuses it
                return " ".join(parts)
            depth += 1 if edge[0] == "/*" else -1
            place = edge.end()
        parts.append(" " if found["block"] or found["line"] else found[0])
    return "".join([*parts, statement[place:]])


def outlives_transaction(statement: str) -> bool:
    """Return whether a statement, by its text, changes its connection's state beyond the transaction.

    The effects of functions are not known.
    """
    return _OUTLIVES.search(statement) is not None


def changes_role(statement: str) -> bool:
    """Return whether a statement, by its text, may have the statements that follow run as another role."""
    return _CHANGES_ROLE.search(statement) is not None


def deallocates(statement: str) -> bool:
    """Return whether a statement, by its text, may end prepared statements."""
    return _DEALLOCATES.search(statement) is not None


def ends_transaction(statement: str) -> bool:
    """Return whether a statement, by its text, ends the transaction, and maybe begins another one."""
    return _ENDS.search(statement) is not None and _ENDS.search(_OPAQUE.sub(" ", statement)) is not None


class SavepointCommand(Enum):
    """The command of a statement about a savepoint."""

    SET = auto()
    RELEASE = auto()
    ROLLBACK = auto()


class SavepointStep(NamedTuple):
    """A statement that sets, releases or rolls back to a savepoint.

    Args:
        command: Its command.
        name: The savepoint; None where the text is unclear.
    """

    command: SavepointCommand
    name: str | None


_NAME = r'(?P<name>"(?:[^"]|"")+"|[^\W\d][\w$]*)\s*;?\s*'
_PATTERNS = {
    command: re.compile(rf"\s*{words}{_NAME}".replace(" ", r"\s+"), re.IGNORECASE | re.DOTALL)
    for command, words in (
        (SavepointCommand.SET, "savepoint "),
        (SavepointCommand.RELEASE, "release (?:savepoint )?"),
        (SavepointCommand.ROLLBACK, "rollback (?:(?:work|transaction) )?to (?:savepoint )?"),
    )
}
_ROLLBACK = re.compile(r"\brollback\b", re.IGNORECASE)


def read_savepoint_step(statement: str) -> SavepointStep | None:
    """Return a statement's step with a savepoint; None if it has none.

    Several commands in one text count as a rollback to an unknown savepoint.
    """
    for command, pattern in _PATTERNS.items():
        match = pattern.fullmatch(statement)
        if match is not None:
            name = match["name"]
            return SavepointStep(command, name[1:-1].replace('""', '"') if name[0] == '"' else name.lower())
    return SavepointStep(SavepointCommand.ROLLBACK, None) if _ROLLBACK.search(statement) else None


class Effects(NamedTuple):
    """A statement's effects on its connection, as far as its text shows them.

    Args:
        outlives_transaction: True if it changes state beyond the transaction.
        deallocates: True if it may deallocate prepared statements.
        savepoint: Its step with a savepoint; None if it has none.
        ends_transaction: True if it ends the transaction.
        changes_role: True if later statements may run as another role.
    """

    outlives_transaction: bool
    deallocates: bool
    savepoint: SavepointStep | None
    ends_transaction: bool = False
    changes_role: bool = False


_LONGEST_KEPT = 4096
"""Characters. Longer texts are rarely the same twice, and would fill the memory."""


def effects_of(statement: str) -> Effects:
    """Return a statement's effects on its connection, as far as its text shows them."""
    return _known_effects(statement) if len(statement) <= _LONGEST_KEPT else _effects(statement)


def _effects(statement: str) -> Effects:
    code = without_comments(statement)
    return Effects(
        outlives_transaction(code),
        deallocates(code),
        read_savepoint_step(code),
        ends_transaction(code),
        changes_role(code),
    )


_known_effects = lru_cache(maxsize=256)(_effects)
