"""Sending: inserting messages for queues, and for each subscription of a topic."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from jmsql.exceptions import InvalidDestinationException, InvalidSelectorException, JMSException
from jmsql.selectors import Selector, SelectorSQL
from jmsql.store.destinations.lookup import require_temporary
from jmsql.store.rows.columns import BODY_COLUMNS, DELAYED_COLUMNS, SEND_COLUMNS, outgoing_messages
from jmsql.store.rows.message_rows import OutgoingMessage, copied_rows, send_parameters, single_send_parameters
from jmsql.store.statement import (
    CannotCopyError,
    Query,
    Result,
    SqlFile,
    Statement,
    Steps,
    array_literal,
    column,
    fill,
    mapping,
    nothing,
    row_count,
)
from jmsql.values.destinations import TemporaryTopic, Topic
from jmsql.values.postgresql_text import from_postgresql, optional_to_postgresql
from jmsql.values.recently_used import RecentlyUsed

T = TypeVar("T")

_SHARED_SIZE = 2000
"""A body of more bytes is stored once for all subscriptions of a topic. PostgreSQL puts larger ones aside anyway."""

FEWEST_COPIED = 50
"""From how many messages on they are copied. Copying takes two round trips more, and less work for each message."""

_sql = SqlFile("send")
_QUEUE_IS_MISSING = "JMS06"


def _insert(table: str, columns: tuple[tuple[str, str], ...], condition: str = "all_are_there") -> str:
    names = [name for name, _ in columns[1:]]
    return fill(
        fill(_sql["send"], all_are_there=_sql[condition]),
        table=f"jmsql_internal.{table}",
        columns=", ".join(names),
        values=", ".join(f"s.{name}" for name in names),
        messages="{waiting}" + outgoing_messages("s", columns),
    )


def _flushing(name: str, text: str, decode: Callable[[Result], T]) -> dict[bool, Statement[T]]:
    """Return a statement, by whether the commit waits for the disk."""
    without = fill(f"{_sql['no_flush']} {text}", waiting="commit cross join ")
    return {
        True: Statement(name, fill(text, waiting=""), "sending", decode),
        False: Statement(f"{name}_without_flush", without, "sending", decode),
    }


_types = {name: kind if kind != "message_type" else "jmsql_internal.message_type" for name, kind in SEND_COLUMNS}
_tables = {False: ("message", SEND_COLUMNS), True: ("delayed_message", DELAYED_COLUMNS)}
"""Where messages go, by whether they have a delivery time to wait for, and the parameters that they go with."""
_send = {delayed: _flushing("send", _insert(*into), row_count) for delayed, into in _tables.items()}
_send_last = {
    delayed: Statement("send_last", fill(_insert(*into, "fails_unless_all_are_there"), waiting=""), "sending", nothing)
    for delayed, into in _tables.items()
}
_queues_to_copy_to = {
    delayed: _flushing("queues_to_copy_to", fill(_sql["queues_to_copy_to"], table=f"jmsql_internal.{table}"), mapping)
    for delayed, (table, _) in _tables.items()
}


def send(messages: Sequence[OutgoingMessage], *, flush: bool = True, copies: bool = True) -> Steps[None]:
    """Insert messages, in their order: all of them, or none if a queue does not exist.

    Args:
        messages: At least one; all of them have a delivery time to wait for, or none has.
        flush: False lets the transaction of this statement alone commit without waiting for the disk.
        copies: Whether many messages are copied, by several statements; outside of a transaction one is to do.

    Raises:
        InvalidDestinationException: A queue does not exist.
        JMSException: PostgreSQL refused.
    """
    sent = 0
    if copies and len(messages) >= FEWEST_COPIED:
        sent = yield from _copy(messages, flush=flush)
    if not sent:
        sent = yield from insertion(messages, flush=flush)
    if sent != len(messages):
        raise queues_are_missing(message.destination for message in messages)


def queues_are_missing(names: Iterable[str]) -> InvalidDestinationException:
    """Return the error for messages to missing queues."""
    listed = ", ".join(sorted(set(names)))
    return InvalidDestinationException(f"Nothing was sent, since one of these queues does not exist: {listed}.")


def _copy(messages: Sequence[OutgoingMessage], *, flush: bool) -> Steps[int]:
    """Copy messages into their table, and return how many: none where an INSERT is needed, or a queue is missing."""
    delayed = messages[0].jms_delivery_time is not None
    names = {message.destination for message in messages}
    queue_ids = yield from queues_to_copy_to(names, flush=flush, delayed=delayed)
    if len(queue_ids) < len(names):
        return 0
    columns, data = copied_rows(messages, queue_ids)
    try:
        return (yield from _copy_into(_tables[delayed][0], columns).copying(data))
    except CannotCopyError:
        return 0


def queues_to_copy_to(names: Collection[str], *, flush: bool = True, delayed: bool = False) -> Query[dict[str, int]]:
    """Return the numbers of the queues that there are, by name; none if the role may not copy messages into them."""
    return _queues_to_copy_to[delayed][flush].bind(names=array_literal(names))


@lru_cache(maxsize=256)
def _copy_into(table: str, columns: tuple[str, ...]) -> Statement[int]:
    return Statement(
        "copy", fill(_sql["copy"], table=f"jmsql_internal.{table}", columns=", ".join(columns)), "sending", row_count
    )


def insertion(messages: Sequence[OutgoingMessage], *, flush: bool = True) -> Query[int]:
    """Insert messages as `send` does, and return how many."""
    delayed = messages[0].jms_delivery_time is not None
    if len(messages) == 1 and not delayed:
        parameters = single_send_parameters(messages[0])
        return Query(_send_one("send_one" if flush else "send_one_without_flush", tuple(parameters)), parameters)
    return _send[delayed][flush].bind(send_parameters(messages))


def last_insertion(messages: Sequence[OutgoingMessage]) -> Query[Any]:
    """Insert messages as `send` does, with a commit in the same exchange with the server.

    The statement fails if a queue does not exist: see `misses_queues`.
    """
    delayed = messages[0].jms_delivery_time is not None
    if len(messages) == 1 and not delayed:
        parameters = single_send_parameters(messages[0])
        return Query(_send_one("send_one_last", tuple(parameters)), parameters)
    return _send_last[delayed].bind(send_parameters(messages))


def misses_queues(error: JMSException) -> bool:
    """Tell whether an error of `last_insertion` means that a queue does not exist."""
    return error.error_code == _QUEUE_IS_MISSING


@lru_cache(maxsize=256)
def _send_one(name: str, parameters: tuple[str, ...]) -> Statement[int]:
    """Return the statement for a message that has these columns, which its destination comes before."""
    _, *names = parameters
    text = fill(
        _sql[name],
        columns=", ".join(names),
        values=", ".join(f"%({name})s::{_types[name]}" for name in names),
    )
    return Statement(name, text, "sending", row_count)


# Topics


class Publisher(NamedTuple):
    """The publisher, for subscriptions with `no_local`."""

    connection_id: int | None = None
    client_id: str | None = None


known_selectors = RecentlyUsed[str, tuple[str, ...]](1000)
"""By topic: the selectors that its subscriptions had when they were last looked at."""


def publish(
    topic: Topic, messages: Sequence[OutgoingMessage], publisher: Publisher, *, flush: bool = True
) -> Steps[None]:
    """Insert messages, in their order, for each subscription of a topic that wants them.

    Raises:
        InvalidDestinationException: The topic is temporary, and gone.
        JMSException: PostgreSQL refused.
    """
    if isinstance(topic, TemporaryTopic):
        yield from require_temporary(topic)
    delayed = messages[0].jms_delivery_time is not None
    yield from publish_with(
        topic,
        lambda selectors: publish_statement(selectors, flush=flush, delayed=delayed),
        send_parameters(messages),
        publisher,
    )


def publish_with(
    topic: Topic,
    statement_for: Callable[[tuple[str, ...]], Statement[list[str]]],
    messages: Mapping[str, object],
    publisher: Publisher,
) -> Steps[None]:
    """Insert messages for each subscription of a topic that wants them.

    Args:
        topic: The topic.
        statement_for: Composes the statement for the selectors that it is to know.
        messages: Its parameters that say which messages.
        publisher: The sender.
    """
    client_id = optional_to_postgresql(publisher.client_id)
    while True:
        statement = statement_for(known_selectors.get(topic.name) or ())
        unknown = yield from statement.bind(
            messages, topic=topic.name, connection_id=publisher.connection_id, client_id=client_id
        )
        if not unknown:
            return
        known_selectors[topic.name] = tuple(sorted(unknown))


@lru_cache(maxsize=256)
def publish_statement(
    selectors: tuple[str, ...], *, flush: bool, delayed: bool = False, source: str | None = None
) -> Statement[list[str]]:
    """Insert messages for each subscription of a topic whose selector chooses them.

    It returns nothing if it knows the selectors of all its subscriptions. Else it inserts nothing, and returns all
    selectors of the topic: for other publishers `no_local` leaves out other subscriptions. The snapshot that shows the
    subscriptions also shows whether the statement fits them.

    Args:
        selectors: The selectors that the statement knows, as the table has them.
        flush: False lets the transaction of this statement alone commit without waiting for the disk.
        delayed: True if the messages have a delivery time to wait for.
        source: The messages, as a relation `m` with their columns and `position`, which go to the table `message` even
            if they have a delivery time; None: the parameters of a send.
    """
    columns = DELAYED_COLUMNS if delayed else SEND_COLUMNS
    table = "delayed_message" if delayed and source is None else "message"
    names = [name for name, _ in columns[1:]]
    parameters: dict[str, object] = {}
    conditions = []
    for text in selectors:
        condition = "false"  # where it is no selector: a client would have refused it
        with contextlib.suppress(InvalidSelectorException):
            selector = Selector.parse(from_postgresql(text))
            if selector is None:
                condition = "true"
            else:
                one = selector.to_sql(first=len(parameters))
                parameters |= one.parameters
                condition = f"({one.condition}) is true"
        conditions.append(condition)
    chosen = SelectorSQL(f"array[{', '.join(conditions)}]::boolean[]", parameters).packed()
    text = fill(
        _sql["publish"],
        commit="" if flush else f"{_sql['no_flush'].removeprefix('with ')},",
        waiting="" if flush else "commit cross join ",
        messages=outgoing_messages("m", columns) if source is None else source,
        table=f"jmsql_internal.{table}",
        columns=", ".join(names),
        values=", ".join(
            f"case when not m.is_shared then m.{name} end" if name in BODY_COLUMNS else f"m.{name}" for name in names
        ),
        bodies=", ".join(BODY_COLUMNS),
        message_bodies=", ".join(f"m.{name}" for name in BODY_COLUMNS),
        size=" + ".join(f"coalesce(pg_catalog.pg_column_size(m.{name}), 0)" for name in BODY_COLUMNS),
        shared_size=str(_SHARED_SIZE),
        chosen=chosen.condition,
    )
    return Statement("publish", text, "publishing", column, {"known": list(selectors), **chosen.parameters})
