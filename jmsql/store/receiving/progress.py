"""The progress of messages that handlers have claimed, and its statements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from jmsql.store.receiving.candidates import LOOK_UPS
from jmsql.store.rows.message_rows import MessageKey, key_parameters
from jmsql.store.statement import Query, SqlFile, array_literal, nothing
from jmsql.values.postgresql_text import to_postgresql

_sql = SqlFile("progress")
_report = _sql.statement("report", "reporting progress", nothing, dict(LOOK_UPS))
forget_progress = _sql.statement("forget", "forgetting progress", nothing).bind()
"""Removes the progress of messages that are claimed no more."""


class ClaimedMessage(NamedTuple):
    """A message, by the claim under which a handler has it."""

    key: MessageKey
    claim_id: int


class Progress(NamedTuple):
    """The progress of a handler with a message.

    Args:
        fraction: The part that is done, from 0 to 1; None: unknown.
        note: A few words.
    """

    fraction: float | None
    note: str


def report(reports: Mapping[ClaimedMessage, Progress]) -> Query[None]:
    """Write down the progress of messages, of those whose claims still hold."""
    return _report.bind(
        key_parameters([message.key for message in reports]),
        claim_ids=array_literal(message.claim_id for message in reports),
        fractions=array_literal(progress.fraction for progress in reports.values()),
        notes=array_literal(to_postgresql(progress.note) for progress in reports.values()),
    )
