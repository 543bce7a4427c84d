"""The history divided for several readers: each reads its own part, and none reads all of it."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise
from typing import NamedTuple

from jmsql.spark.reading.history_statements import HistoryOrigin, history_statements
from jmsql.store.driver import Driver
from jmsql.store.selected_statement import SelectedStatement

__all__ = ["HistorySpan", "divide_history"]

_SAMPLED_BLOCKS = 1000
"""The most blocks that are looked at to find out where the history of a destination is to be divided."""


class HistorySpan(NamedTuple):
    """A range of time: what left its destination at `since` or later, and before `until`. None: no bound."""

    since: dt.datetime | None = None
    until: dt.datetime | None = None

    def condition(self) -> SelectedStatement:
        """Return the condition on a row `m` of the history."""
        bounds = {
            "m.acknowledged_at >= %(since)s::timestamptz": self.since,
            "m.acknowledged_at < %(until)s::timestamptz": self.until,
        }
        given = [condition for condition, value in bounds.items() if value is not None]
        return SelectedStatement(" and ".join(["true", *given]), {"since": self.since, "until": self.until})


class _Cut(NamedTuple):
    """A place in the history as it lies on the disk: a day, by its position, and a block of its partition."""

    day: int
    block: int


def divide_history(
    driver: Driver, schema: str, origin: HistoryOrigin, span: HistorySpan, partitions: int
) -> list[list[SelectedStatement]]:
    """Divide a part of the history into as many parts of about the same size, or fewer.

    All there is, is divided by where it lies on the disk, so that each reader reads its own blocks. The history of one
    destination is divided by its index, where a sample says.

    Returns:
        For each part, conditions on rows `m` of the history. Together they hold for each row once, also for one that
        comes later.
    """
    if partitions == 1:
        return [[span.condition()]]
    statements = history_statements(schema)
    bounds: dict[str, object] = {"since": span.since or "-infinity", "until": span.until or "infinity"}
    days = [(day, blocks) for day, blocks in driver.execute(statements.days, bounds).rows if blocks]
    blocks = sum(count for _, count in days)
    if not blocks:
        return [[span.condition()]]
    if origin.destination is None:
        return _by_blocks(days, span, partitions)
    sample = statements.cuts(origin, min(100.0, 100.0 * _SAMPLED_BLOCKS / blocks))
    found = driver.execute(sample.text, {**bounds, **sample.parameters, "partitions": partitions}).rows
    return [[_between(span, first, end)] for first, end in pairwise([None, *found[1:], None])]


def _between(span: HistorySpan, first: tuple[str, int] | None, end: tuple[str, int] | None) -> SelectedStatement:
    text, parameters = span.condition()
    for name, operator, place in (("first", ">=", first), ("end", "<", end)):
        if place is not None:
            text += (
                f" and (m.transaction_id, m.sequence) {operator} (%({name}_transaction)s::xid8, %({name}_sequence)s)"
            )
            parameters |= {f"{name}_transaction": place[0], f"{name}_sequence": place[1]}
    return SelectedStatement(text, parameters)


def _by_blocks(
    days: list[tuple[dt.datetime, int]], span: HistorySpan, partitions: int
) -> list[list[SelectedStatement]]:
    total = sum(blocks for _, blocks in days)
    count = min(partitions, total)
    # Together the days are all of the span, whatever partitions there are when they are read.
    starts = [span.since, *(day for day, _ in days[1:]), span.until]
    spans = [HistorySpan(since, until) for since, until in pairwise(starts)]
    cuts = [_Cut(0, 0), *(_cut(days, total * number // count) for number in range(1, count)), _Cut(len(days), 0)]
    return [
        [
            _blocks(spans[day], first.block if day == first.day else 0, end.block if day == end.day else None)
            for day in range(first.day, end.day + (end.block > 0))
        ]
        for first, end in pairwise(cuts)
    ]


def _cut(days: list[tuple[dt.datetime, int]], block: int) -> _Cut:
    for position, (_, blocks) in enumerate(days):
        if block < blocks:
            return _Cut(position, block)
        block -= blocks
    raise AssertionError("The block is beyond the last day.")


def _blocks(span: HistorySpan, first: int, end: int | None) -> SelectedStatement:
    text, parameters = span.condition()
    if first:
        text += " and m.ctid >= %(first_block)s::tid"
    if end is not None:
        text += " and m.ctid < %(end_block)s::tid"
    return SelectedStatement(text, {**parameters, "first_block": f"({first},0)", "end_block": f"({end},0)"})
