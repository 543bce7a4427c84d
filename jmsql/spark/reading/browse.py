"""Reading what is in a queue, without consuming it: what is asked of the database."""

from __future__ import annotations

from collections.abc import Sequence

from jmsql.destinations import Destination
from jmsql.exceptions import InvalidDestinationException
from jmsql.postgresql_text import optional_to_postgresql, to_postgresql
from jmsql.selectors import Selector
from jmsql.spark.database import check_database
from jmsql.spark.options import Options
from jmsql.spark.reading.columns import MESSAGE_EXPRESSIONS, ColumnComparison, filter_condition, select_list
from jmsql.store import lookup
from jmsql.store._sync.runner import Runner
from jmsql.store.candidates import by_key, has_not_expired
from jmsql.store.selection import and_chosen
from jmsql.store.statement import Query, Result, SqlFile, Statement, Steps, fill, optional_value, rows

__all__ = ["find_queue", "read_queue", "sequence_range", "source_of"]


def _range(result: Result) -> tuple[int, int]:
    [(first, last)] = result.rows
    return (0, -1) if first is None else (first, last)


_sql = SqlFile("browse", "jmsql.spark")
_find_subscription = _sql.statement("find_subscription", "looking up the subscription", optional_value(int))
_ends = _sql.statement("ends", "looking at the queue", _range)


def source_of(options: Options) -> Destination:
    """Return the queue or topic that is read.

    Raises:
        JMSException: The options name none.
    """
    options.require_source()
    assert options.destination is not None
    return options.destination


def find_queue(runner: Runner, options: Options) -> int:
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
        queue_id = yield from lookup.find_queue(options.queue.name)
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
    yield from lookup.require_access(queue_id, "browse")
    return queue_id


def sequence_range(queue_id: int) -> Query[tuple[int, int]]:
    """Return the first and the last sequence of a queue's messages; the last is less if there are none."""
    return _ends.bind(queue_id=queue_id)


def read_queue(
    columns: Sequence[str], selector: Selector | None, filters: Sequence[ColumnComparison]
) -> Statement[list[tuple[object, ...]]]:
    """Return the statement that reads the messages of a queue with sequences in a range, that are to be delivered.

    Args:
        columns: Which columns.
        selector: Which messages are wanted; None: all.
        filters: Conditions that hold for the rows that are wanted.
    """
    chosen = and_chosen(selector)
    filtered = filter_condition(MESSAGE_EXPRESSIONS, filters)
    text = fill(
        _sql["read"],
        columns=select_list(MESSAGE_EXPRESSIONS, columns),
        delivery=by_key("jmsql_internal", "delivery", "k", "m"),
        is_alive=has_not_expired("jmsql_internal"),
        chosen=chosen.condition,
        filter=filtered.text,
    )
    return Statement("read", text, "reading", rows, {**chosen.parameters, **filtered.parameters})
