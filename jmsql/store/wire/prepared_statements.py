"""The statements that one connection has prepared under names of jmsql's own: bookkeeping only, no I/O."""

from __future__ import annotations

import re
from collections import OrderedDict
from functools import lru_cache
from typing import NamedTuple

# A statement that is prepared saves the server its parsing and, after five runs, its planning, which takes longer than
# many a statement itself. PostgreSQL keeps what is prepared for each connection, without a limit, in its memory; so the
# statement that was used least recently is closed here where there are too many.
#
# The types of the parameters are a part of what is prepared, and of the key: the same text with an int and with None
# for a parameter are two statements to PostgreSQL.

_MOST = 100

_PLACEHOLDER = re.compile(rb"%(?:%|\((\w+)\)s)")


class NumberedStatement(NamedTuple):
    """SQL as PostgreSQL itself takes it, with `$1` for the first of its parameters.

    Args:
        text: The SQL.
        parameters: The names of the parameters, in the order of their numbers.
    """

    text: bytes
    parameters: tuple[str, ...]


@lru_cache(maxsize=1024)
def numbered(statement: bytes) -> NumberedStatement:
    """Turn psycopg's named placeholders into PostgreSQL's numbered ones."""
    names: dict[bytes, int] = {}

    def number(match: re.Match[bytes]) -> bytes:
        name = match[1]
        return b"%" if name is None else b"$%d" % names.setdefault(name, len(names) + 1)

    text = _PLACEHOLDER.sub(number, statement)
    return NumberedStatement(text, tuple(name.decode() for name in names))


class PreparedStatements:
    """What a connection has prepared, and by which names.

    psycopg keeps its own to itself. When it ends all prepared statements of a connection, as after a rollback,
    it ends these too: the server then does not know the name.
    """

    def __init__(self) -> None:
        self._names: OrderedDict[tuple[bytes, tuple[int, ...]], bytes] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return len(self._names)

    def name(self, text: bytes, types: tuple[int, ...]) -> bytes | None:
        """Return the name of a statement for these types of parameters; None: it is not prepared."""
        found = self._names.get((text, types))
        if found is not None and len(self._names) > 1:
            self._names.move_to_end((text, types))
        return found

    def new_name(self) -> bytes:
        """Return a name that no statement of the connection has had."""
        self._count += 1
        return b"jmsql_%d" % self._count

    def add(self, text: bytes, types: tuple[int, ...], name: bytes) -> bytes | None:
        """Note that a statement is prepared; return the name of one that is to be closed, since there are too many."""
        self._names[text, types] = name
        return self._names.popitem(last=False)[1] if len(self._names) > _MOST else None

    def discard(self, text: bytes, types: tuple[int, ...]) -> None:
        """Note that a statement is not prepared."""
        self._names.pop((text, types), None)

    def forget(self) -> None:
        """Note that the server may know none of them any more."""
        self._names.clear()
