"""Facts that tell whether Spark has left something undone, for `jmsql doctor`. It needs no package of Spark's."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from jmsql.spark.writing.prepared import PREPARED_PREFIX, PreparedAttempts
from jmsql.store.errors import jms_errors
from jmsql.store.identifier import Schema
from jmsql.store.runner import Runner

__all__ = ["PreparedWrite", "SparkDiagnosis", "WaitingStream"]


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


class SparkDiagnosis:
    """Asks the server.

    Args:
        runner: A connection in autocommit mode.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._schema = Schema(runner.schema)

    def prepared_writes(self, identifiers: Iterable[str]) -> dict[str, PreparedWrite]:
        """Return what becomes of those prepared transactions, which were listed before, that are of tasks of Spark."""
        names = [name for name in identifiers if name.startswith(PREPARED_PREFIX)]
        if not names:
            return {}
        with jms_errors("examining the server"):
            verdicts = PreparedAttempts(self._runner.schema).judged(self._runner.driver)
        known = {"commit": PreparedWrite.COMMITTED, "rollback": PreparedWrite.ABANDONED, None: PreparedWrite.OPEN}
        return {name: known[verdicts[name]] if name in verdicts else PreparedWrite.OTHER_SCHEMA for name in names}

    def waiting_streams(self, seconds: float) -> list[WaitingStream]:
        """Return the streaming reads that have not gone on for so many seconds and keep something."""
        statement = f"""
            select source_id::text, destination, claimed, extract(epoch from clock_timestamp() - since)::float8
            from (
                select b.source_id, coalesce(q.name, t.name) as destination, sum(b.messages)::bigint as claimed,
                       min(b.claimed_at) as since
                from {self._schema.internal}.spark_batch b
                join {self._schema.internal}.spark_source s using (source_id)
                join {self._schema.internal}.queue q using (queue_id)
                left join {self._schema.internal}.subscription n using (queue_id)
                left join {self._schema.internal}.topic t on t.topic_id = n.topic_id
                group by b.source_id, q.queue_id, t.topic_id
                union all
                select source_id, destination, 0, used_at from {self._schema.internal}.spark_cursor where holds) streams
            where since < clock_timestamp() - make_interval(secs => %(seconds)s)
            order by since"""
        with jms_errors("examining the server"):
            found = self._runner.driver.execute(statement, {"seconds": seconds}).rows
        return [WaitingStream._make(row) for row in found]
