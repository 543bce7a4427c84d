"""Reading a queue's messages without consuming them: the statements."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import NamedTuple

from jmsql import Destination, InvalidDestinationException
from jmsql.extension.scanning import (
    HAS_NOT_EXPIRED,
    LAST_SEQUENCE,
    PRIORITIES,
    Selector,
    and_chosen,
    by_key,
    find_queue,
    require_access,
)
from jmsql.extension.statements import (
    Result,
    Runner,
    SqlFile,
    Statement,
    Steps,
    array_literal,
    fill,
    nothing,
    optional_value,
    rows,
    value,
)
from jmsql.extension.values import optional_to_postgresql, to_postgresql
from jmsql.spark.columns.expressions import MESSAGE_EXPRESSIONS, select_list
from jmsql.spark.database import check_database
from jmsql.spark.options import Options

_STEPS = (1000, 100, 10, 1)
"""How many messages there are from a sample to the next, from the first look on."""

_SAMPLES = 16
"""The fewest samples for each part that are enough: parts then differ by some six percent."""


class _Key(NamedTuple):
    """The place of a message in its queue, where those come last that are delayed.

    Args:
        is_delayed: Whether it is.
        position: Its inverse priority, or its delivery time if it is delayed.
        sequence: Its sequence.
    """

    is_delayed: bool
    position: int
    sequence: int


_BEFORE_ALL = _Key(False, -1, 0)  # noqa: FBT003
_BEFORE_DELAYED = _Key(True, -1, 0)  # noqa: FBT003
_AFTER_ALL = _Key(True, LAST_SEQUENCE, LAST_SEQUENCE)  # noqa: FBT003


def _keys(result: Result) -> list[_Key]:
    return sorted(map(_Key._make, result.rows))


_sql = SqlFile("browse", "jmsql.spark")
_find_subscription = _sql.statement("find_subscription", "looking up the subscription", optional_value(int))
is_there = _sql.statement("is_there", "reading", value(bool))
"""True until a queue is deleted."""

_by_index = _sql.statement("by_index", "dividing the queue", nothing)
_samples = _sql.statement("samples", "dividing the queue", _keys)


def source_of(options: Options) -> Destination:
    """Return the queue or topic that is read.

    Raises:
        JMSException: The options name none.
    """
    options.require_source()
    assert options.destination is not None
    return options.destination


def queue_of(runner: Runner, options: Options) -> int:
    """Return the number of the queue to read from, a queue's own or a subscription's, which the role may browse.

    Raises:
        JMSSecurityException: It may not.
        InvalidDestinationException: The queue or the subscription does not exist.
        JMSException: The schema is missing or of another version.
    """
    check_database(runner)
    return runner.run(_existing_queue(options))


def _existing_queue(options: Options) -> Steps[int]:
    if options.queue is not None:
        queue_id = yield from find_queue(options.queue.name)
        if queue_id is None:
            raise InvalidDestinationException(f"Option 'queue': there is no queue {options.queue.name!r}.")
    else:
        assert options.topic is not None
        assert options.subscription is not None
        queue_id = yield from _find_subscription.bind(
            topic=options.topic.name,
            subscription=to_postgresql(options.subscription),
            client_id=optional_to_postgresql(options.client_id),
        )
        if queue_id is None:
            client = "" if options.client_id is None else f" of the client {options.client_id!r}"
            raise InvalidDestinationException(
                f"Option 'subscription': the topic {options.topic.name!r} has no subscription "
                f"{options.subscription!r}{client}."
            )
    yield from require_access(queue_id, "browse")
    return queue_id


def divide_queue(queue_id: int, count_parts: Callable[[int], int]) -> Steps[list[dict[str, object]]]:
    """Divide a queue into parts with about as many messages each, or fewer parts.

    Returns: The parameters of each part's statement. Together they are the whole queue, with later messages.
    """
    if count_parts(LAST_SEQUENCE) == 1:
        return [WHOLE_QUEUE]
    yield from _by_index.bind()
    keys: list[_Key] = []
    parts = 1
    for step in _STEPS:
        keys = yield from _samples.bind(queue_id=queue_id, step=step)
        parts = count_parts(len(keys) * step)
        if len(keys) >= _SAMPLES * parts:
            break
    parts = min(parts, max(len(keys), 1))
    ends = [len(keys) * number // parts for number in range(1, parts)]
    cuts = [keys[end - 1] for end in dict.fromkeys(ends) if end]
    return [_part(after, until) for after, until in pairwise([_BEFORE_ALL, *cuts, _AFTER_ALL])]


def _part(after: _Key, until: _Key) -> dict[str, object]:
    """Return the parameters for the messages after a place, up to another."""
    priorities = range(
        PRIORITIES if after.is_delayed else max(after.position, 0),
        PRIORITIES if until.is_delayed else until.position + 1,
    )
    delayed = (max(after, _BEFORE_DELAYED), until) if until.is_delayed else (_AFTER_ALL, _AFTER_ALL)
    return {
        "priorities": array_literal(priorities),
        "firsts": array_literal(after.sequence + 1 if each == after.position else 0 for each in priorities),
        "lasts": array_literal(until.sequence if (False, each) == until[:2] else LAST_SEQUENCE for each in priorities),
        "delayed_after": delayed[0].position,
        "delayed_after_sequence": delayed[0].sequence,
        "delayed_until": delayed[1].position,
        "delayed_until_sequence": delayed[1].sequence,
    }


WHOLE_QUEUE = _part(_BEFORE_ALL, _AFTER_ALL)
"""The parameters that choose all of a queue."""


def read_queue(
    columns: Sequence[str],
    selector: Selector | None,
    rare: Collection[str],
) -> Statement[list[tuple[object, ...]]]:
    """Return the statement that reads the messages of a part of a queue, that are to be delivered."""
    chosen = and_chosen(selector)
    text = fill(
        _sql["read"],
        columns=select_list(MESSAGE_EXPRESSIONS, columns, rare),
        delivery=by_key("delivery", "k", "m"),
        is_alive=HAS_NOT_EXPIRED,
        chosen=chosen.condition,
    )
    return Statement("read", text, "reading", rows, chosen.parameters)
