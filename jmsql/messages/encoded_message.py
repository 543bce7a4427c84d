"""The part of a row of the table ``message`` that the message itself determines."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

BodyColumns: TypeAlias = tuple[str | None, str | None, str | None, bytes | None]
"""The columns that hold a body: the last four of an `EncodedMessage`."""

EncodedColumns: TypeAlias = tuple[
    str,
    str | None,
    str | None,
    str | None,
    str | None,
    str | None,
    str | None,
    str | None,
    str | None,
    bytes | None,
]
"""An `EncodedMessage` without its names: a plain tuple is made in a fraction of the time."""


class EncodedMessage(NamedTuple):
    """Columns as psycopg takes them for parameters, and as the server's text returns them.

    The strings are written by `to_postgresql`. What is jsonb in the table is
    JSON text here. Columns that the type of message does not use are None.
    """

    message_type: str
    correlation_id: str | None
    reply_to: str | None
    type: str | None
    properties: str | None
    property_types: str | None
    text_body: str | None
    json_body: str | None
    body_types: str | None
    bytes_body: bytes | None
