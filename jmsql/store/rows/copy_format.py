"""Messages in the text format of COPY, by which PostgreSQL takes a batch at half the cost of an INSERT."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from jmsql.store.rows.columns import DELAYED_COLUMNS
from jmsql.store.rows.message_rows import OutgoingMessage

__all__ = ["CopiedRows", "copied_rows"]

_NULL = "\\N"
_SPECIAL = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
"""How characters are written that would end a value or a row, the backslash first."""


class CopiedRows(NamedTuple):
    """Rows for COPY.

    Args:
        columns: Which columns they have: those in which some message has a value.
        data: The rows, in UTF-8.
    """

    columns: tuple[str, ...]
    data: bytes


def copied_rows(messages: Sequence[OutgoingMessage], queue_ids: Mapping[str, int]) -> CopiedRows:
    """Write messages as rows of the table of messages, or of the delayed ones.

    A column at a time: measured at 0.6 µs a message, which psycopg takes three times as long for, row after row.

    Args:
        messages: At least one.
        queue_ids: The queues, by the names that the messages have as destinations.
    """
    destinations, *columns = zip(*messages, strict=True)
    names = ["queue_id"]
    values: list[Iterable[str]] = [_numbers([queue_ids[name] for name in destinations])]
    for (name, kind), column in zip(DELAYED_COLUMNS[1:], columns, strict=True):
        if column.count(None) < len(column):
            names.append(name)
            values.append(_writers[kind](column))
    rows = map("\t".join, zip(*values, strict=False))
    return CopiedRows(tuple(names), ("\n".join(rows) + "\n").encode())


def _texts(values: Sequence[str | None]) -> Iterable[str]:
    present = "".join(filter(None, values))
    for character, written in _SPECIAL.items():
        if character in present:
            values = [None if value is None else value.replace(character, written) for value in values]
    return _with_nulls(values)


def _numbers(values: Sequence[int | None]) -> Iterable[str]:
    first = values[0]
    if values.count(first) == len(values):
        return repeat(str(first), len(values))
    return [_NULL if value is None else str(value) for value in values]


def _bytes(values: Sequence[bytes | None]) -> Iterable[str]:
    return [_NULL if value is None else f"\\\\x{value.hex()}" for value in values]


def _with_nulls(values: Sequence[str | None]) -> Iterable[str]:
    return [_NULL if value is None else value for value in values]


_writers: dict[str, Callable[[Sequence[Any]], Iterable[str]]] = {
    "text": _texts,
    "jsonb": _texts,
    "bytea": _bytes,
    "smallint": _numbers,
    "bigint": _numbers,
    "uuid": _with_nulls,
    "message_type": _with_nulls,
}
