"""Facts that tell whether Spark has left something undone, for `jmsql doctor`. It needs no package of Spark's."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from jmsql.spark.writing.prepared import PREPARED_PREFIX, find_transactions, judge_transactions
from jmsql.store.statement import Query, SqlFile, Steps, records

__all__ = ["PreparedWrite", "WaitingStream", "prepared_writes", "waiting_streams"]


class PreparedWrite(StrEnum):
    """What becomes of a transaction that a task of Spark has prepared."""

    COMMITTED = "the driver has decided to commit it"
    ABANDONED = "nobody counts on it any more"
    OPEN = "the driver has not decided on it yet"
    OTHER_SCHEMA = "it is of another schema"


class WaitingStream(NamedTuple):
    """A streaming read that has not gone on, with what it keeps: messages, or all history after its place."""

    source_id: str
    destination: str | None
    claimed: int
    seconds: float


_sql = SqlFile("diagnosis", "jmsql.spark")
_waiting_streams = _sql.statement("waiting_streams", "examining the server", records(WaitingStream._make))


def prepared_writes(identifiers: Iterable[str]) -> Steps[dict[str, PreparedWrite]]:
    """Return what becomes of those prepared transactions, which were listed before, that are of tasks of Spark."""
    names = [name for name in identifiers if name.startswith(PREPARED_PREFIX)]
    if not names:
        return {}
    found = yield from find_transactions()
    verdicts = yield from judge_transactions(found)
    of_schema = {each.name for each in found}
    known = {"commit": PreparedWrite.COMMITTED, "rollback": PreparedWrite.ABANDONED}
    return {
        name: known.get(verdicts.get(name, ""), PreparedWrite.OPEN) if name in of_schema else PreparedWrite.OTHER_SCHEMA
        for name in names
    }


def waiting_streams(seconds: float) -> Query[list[WaitingStream]]:
    """Return the streaming reads that have not gone on for so many seconds and keep something."""
    return _waiting_streams.bind(seconds=seconds)
