"""Whether a statement leaves something on its connection: a role, a time limit, a lock."""

from __future__ import annotations

import re

__all__ = ["outlives_transaction"]

_OUTLIVES = re.compile(
    r"""
    (?:^|;|\*/)\s*  # at the beginning of a statement
    (?:
        set\s+(?!local\b|constraints\b|transaction\b)
        | (?:reset|discard|listen|unlisten|load)\b
        | prepare\s+(?!transaction\b)
        | declare\b
        | create\s+(?:local\s+|global\s+)?temp
        | do\b
        | call\b
    )
    | \b(?:set_config|setseed|pg_(?:try_)?advisory_lock(?:_shared)?)\s*\(
    """,
    re.IGNORECASE | re.VERBOSE,
)


def outlives_transaction(statement: str) -> bool:
    """Return whether a statement, by its text, changes what holds for its connection beyond the transaction.

    What functions do is not known. A comment in front of a statement is taken for a statement that changes nothing.
    """
    return _OUTLIVES.search(statement) is not None
