"""The check of streaming reads in `jmsql doctor`."""

from __future__ import annotations

from jmsql.extension.checks import Check, Remark, Remarks
from jmsql.spark.database import WaitingStream, waiting_streams

# The function's place stands among the entry points in pyproject.toml.

_COMES_BACK = 26 * 3600.0
"""Seconds after which a stream counts as stopped, even if its query runs once a day."""


def streams() -> Check:
    """Find streaming reads that have stopped, and keep messages or history."""
    found = yield from waiting_streams.bind(seconds=_COMES_BACK)
    return Remarks([_stopped(each) for each in found], "no streaming read of Spark has stayed behind")


def _stopped(stream: WaitingStream) -> Remark:
    place = "all destinations" if stream.destination is None else repr(stream.destination)
    messages = "1 message" if stream.claimed == 1 else f"{stream.claimed:,} messages"
    kept = f"{messages} of" if stream.claimed else "the history of"
    return Remark(
        f"a streaming read of Spark keeps {kept} {place}, and has not gone on for {stream.seconds / 3600:,.0f} hours",
        "Start its query again, or see why it does not get on. If its checkpoint is gone for good: "
        f"`select jmsql.forget_spark_source('{stream.source_id}')`.",
    )
