"""Reading the history: its origin, the statements, and the division for several readers."""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import NamedTuple

from jmsql import Destination, InvalidDestinationException, Topic
from jmsql.extension.scanning import LAST_SEQUENCE, Selector, and_chosen
from jmsql.extension.statements import Query, Runner, SqlFile, Statement, Steps, fill, nothing, rows
from jmsql.extension.values import optional_to_postgresql, to_postgresql
from jmsql.logs import contained_logger
from jmsql.spark.columns.expressions import (
    HISTORY_EXPRESSIONS,
    Condition,
    select_list,
)
from jmsql.spark.database import check_database
from jmsql.spark.options import Options

logger = contained_logger("jmsql")

_SAMPLED_BLOCKS = 1000
"""The most blocks that are looked at to find out where the history of a destination is to be divided."""

_MESSAGES_IN_BLOCK = 16
"""How many messages a block is taken to have: some of half a kilobyte."""

_sql = SqlFile("history", "jmsql.spark")
hold_history = _sql.statement("hold", "keeping the history", nothing).bind()
"""Keeps the days of the history from being dropped, until the transaction ends."""

_days = _sql.statement("days", "looking at the history", rows)


class HistoryOrigin(NamedTuple):
    """The origin of the history: a destination or all.

    Args:
        destination: A queue's, or a topic's; None: all there is.
        subscription: The name of a subscription to the topic; None: all of them.
        client_id: The client identifier that the subscription belongs to.
        since: The earliest time at which a message left its destination.
    """

    destination: Destination | None = None
    subscription: str | None = None
    client_id: str | None = None
    since: dt.datetime | None = None

    def condition(self) -> Condition:
        """Return the condition on a row `m` of the history, which begins with "and" if it is not empty."""
        text = ""
        parameters: dict[str, object] = {}
        if self.destination is not None:
            text += " and m.destination = %(destination)s and m.is_topic = %(is_topic)s"
            parameters |= {
                "destination": self.destination.name,
                "is_topic": isinstance(self.destination, Topic),
            }
        if self.subscription is not None:
            text += (
                " and m.subscription = %(subscription)s and m.subscription_client_id is not distinct from %(client)s"
            )
            parameters |= {
                "subscription": to_postgresql(self.subscription),
                "client": optional_to_postgresql(self.client_id),
            }
        if self.since is not None:
            text += " and m.acknowledged_at >= %(since)s::timestamptz"
            parameters["since"] = self.since
        return Condition(text, parameters)


class HistorySpan(NamedTuple):
    """A range of time: messages left their destinations at `since` or later, and before `until`. None: no bound."""

    since: dt.datetime | None = None
    until: dt.datetime | None = None

    def condition(self) -> Condition:
        """Return the condition on a row `m` of the history."""
        bounds = {
            "m.acknowledged_at >= %(since)s::timestamptz": self.since,
            "m.acknowledged_at < %(until)s::timestamptz": self.until,
        }
        given = [condition for condition, value in bounds.items() if value is not None]
        return Condition(" and ".join(["true", *given]), {"since": self.since, "until": self.until})


def find_origin(runner: Runner, options: Options) -> HistoryOrigin:
    """Return whose history the options name; warn if it keeps none.

    Raises:
        InvalidDestinationException: It is neither there, nor does the history know it.
    """
    check_database(runner)
    origin = HistoryOrigin(options.destination, options.subscription, options.client_id)
    if origin.destination is not None:
        option = "queue" if options.queue is not None else "topic" if options.subscription is None else "subscription"
        of_origin = origin.condition()
        parts = {"is_known": _sql[f"{option}_is_known"], "of_origin": of_origin.text}
        [(is_known, keeps_history)] = runner.run(
            _sql.statement("find", "looking at the history", rows, parts).bind(of_origin.parameters)
        )
        if not is_known:
            name = options.subscription if option == "subscription" else origin.destination.name
            raise InvalidDestinationException(
                f"Option '{option}': there is no {option} {name!r}, and nothing of it in the history."
            )
        if not keeps_history:
            logger.warning(
                "%s keeps no history: only messages of a time when it did are read. `jmsql destination set %s "
                "--history` has it keep one.",
                origin.destination.uri,
                shlex.quote(origin.destination.uri),
            )
    return origin


def read_history(
    columns: Sequence[str],
    origin: HistoryOrigin,
    selector: Selector | None,
    part: Condition,
    rare: Collection[str],
) -> Query[list[tuple[object, ...]]]:
    """Read a part of the history: a condition on its rows `m` says which."""
    of_origin = origin.condition()
    chosen = and_chosen(selector)
    text = fill(
        _sql["read"],
        columns=select_list(HISTORY_EXPRESSIONS, columns, rare),
        part=part.text,
        of_origin=of_origin.text,
        chosen=chosen.condition,
    )
    parameters = {**part.parameters, **of_origin.parameters, **chosen.parameters}
    return Statement("read", text, "reading the history", rows).bind(parameters)


# Its division


class _Cut(NamedTuple):
    """A place in the history as it lies on the disk: a day, by its position, and a block of its partition."""

    day: int
    block: int


def divide_history(
    origin: HistoryOrigin, span: HistorySpan, count_parts: Callable[[int], int]
) -> Steps[list[list[Condition]]]:
    """Divide a part of the history into parts of about the same size.

    All there is, is divided by where it lies on the disk, so that each reader reads its own blocks. The history of one
    destination is divided by its index, where a sample says. `count_parts` tells into how many parts, or fewer, some
    number of messages is to be divided.

    Returns:
        For each part, conditions on rows `m` of the history. Together they hold for each row once, also for one that
        comes later.
    """
    if count_parts(LAST_SEQUENCE) == 1:
        return [[span.condition()]]
    bounds: dict[str, object] = {"since": span.since or "-infinity", "until": span.until or "infinity"}
    days = [(day, blocks) for day, blocks in (yield from _days.bind(bounds)) if blocks]
    blocks = sum(count for _, count in days)
    partitions = count_parts(_MESSAGES_IN_BLOCK * blocks)
    if not blocks or partitions == 1:
        return [[span.condition()]]
    if origin.destination is None:
        return _by_blocks(days, span, partitions)
    of_origin = origin.condition()
    cuts = _sql.statement("cuts", "dividing the history", rows, {"of_origin": of_origin.text})
    found = yield from cuts.bind(
        bounds, **of_origin.parameters, partitions=partitions, share=min(100.0, 100.0 * _SAMPLED_BLOCKS / blocks)
    )
    return [[_between(span, first, end)] for first, end in pairwise([None, *found[1:], None])]


def _between(span: HistorySpan, first: tuple[str, int] | None, end: tuple[str, int] | None) -> Condition:
    text, parameters = span.condition()
    for name, operator, place in (("first", ">=", first), ("end", "<", end)):
        if place is not None:
            text += (
                f" and (m.transaction_id, m.sequence) {operator} (%({name}_transaction)s::xid8, %({name}_sequence)s)"
            )
            parameters |= {f"{name}_transaction": place[0], f"{name}_sequence": place[1]}
    return Condition(text, parameters)


def _by_blocks(days: list[tuple[dt.datetime, int]], span: HistorySpan, partitions: int) -> list[list[Condition]]:
    total = sum(blocks for _, blocks in days)
    count = min(partitions, total)
    # Together the days are the whole span, also if partitions change until they are read.
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


def _blocks(span: HistorySpan, first: int, end: int | None) -> Condition:
    text, parameters = span.condition()
    if first:
        text += " and m.ctid >= %(first_block)s::tid"
    if end is not None:
        text += " and m.ctid < %(end_block)s::tid"
    return Condition(text, {**parameters, "first_block": f"({first},0)", "end_block": f"({end},0)"})
