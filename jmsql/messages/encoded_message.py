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


class SendConditions(NamedTuple):
    """The conditions under which a message is sent.

    Args:
        deduplication_id: It was not sent with this before; None: in any case.
        coalesce: No message with this key waits; None: in any case.
        replaces: True if the message takes the place of the one that waits.
    """

    deduplication_id: str | None
    coalesce: str | None
    replaces: bool


class EncodedMessage(NamedTuple):
    """Columns as psycopg takes them for parameters, and as the server's text returns them.

    The strings are written by `to_postgresql`. Columns of type jsonb are JSON text here. Columns that the type of
    message does not use are None.
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


class ConditionalEncodedMessage(EncodedMessage):
    """The columns of a message that is sent under conditions."""

    conditions: SendConditions | None
