"""Facts that tell whether Spark has left something undone, for `jmsql doctor`. It needs no package of Spark's."""

from __future__ import annotations

from typing import NamedTuple

from jmsql.store.statement import Query, SqlFile, records

__all__ = ["WaitingStream", "WaitingWrite", "waiting_streams", "waiting_writes"]


class WaitingStream(NamedTuple):
    """A streaming read that has not gone on, with what it keeps: messages, or all history after its place."""

    source_id: str
    destination: str | None
    claimed: int
    seconds: float


class WaitingWrite(NamedTuple):
    """A write whose tasks have committed messages that its driver has not sent."""

    write_id: str
    tasks: int
    seconds: float


_sql = SqlFile("diagnosis", "jmsql.spark")
_waiting_streams = _sql.statement("waiting_streams", "examining the server", records(WaitingStream._make))
_waiting_writes = _sql.statement("waiting_writes", "examining the server", records(WaitingWrite._make))


def waiting_streams(seconds: float) -> Query[list[WaitingStream]]:
    """Return the streaming reads that have not gone on for so many seconds and keep something."""
    return _waiting_streams.bind(seconds=seconds)


def waiting_writes(seconds: float) -> Query[list[WaitingWrite]]:
    """Return the writes whose first task has committed so many seconds ago, and that are not sent."""
    return _waiting_writes.bind(seconds=seconds)
