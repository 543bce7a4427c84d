"""A search through the messages of all queues and subscriptions, by header, group, property or selector.

No index of identifiers or properties exists, which each message would pay for. So the messages are read in the order of
their keys, 5,000 with a statement, until enough are found or the time is over. The next search goes on from there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from jmsql.exceptions import InvalidSelectorException
from jmsql.public_names import set_module
from jmsql.selectors import Selector
from jmsql.store.administration import looks
from jmsql.store.administration.inspection import DELAYED, DELIVERED, Delivered, FoundMessage
from jmsql.store.administration.looks import Choice, ListedMessage
from jmsql.store.administration.places import BEGINNING, BEGINNING_OF_DELAYED, Place
from jmsql.store.statement import SqlFile, Statement, Steps, records, rows
from jmsql.values.clock import monotonic
from jmsql.values.destinations import Destination, Queue, Topic
from jmsql.values.postgresql_text import from_postgresql

T = TypeVar("T")

TIME_LIMIT = 2.0
"""Seconds after which a search returns the messages that it has found."""
_NAME = re.compile(r"[^\W\d][\w$]*")
_WRITTEN = re.compile(r"(\d{1,10})\.([pd]\d{1,18}\.\d{1,18})", re.ASCII)
_LITERAL = re.compile(r"[+-]?\d{1,18}(\.\d{1,18})?", re.ASCII)


@set_module("jmsql.admin")
class Position(NamedTuple):
    """A message's queue or subscription, by number, and its place there: where a search goes on.

    It is written ``12.p5.1234``, by `str` and `Position.parse`.
    """

    number: int
    place: Place

    def __str__(self) -> str:
        return f"{self.number}.{self.place}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read a position as `str` writes it.

        Raises:
            ValueError: The text is not a position.
        """
        found = _WRITTEN.fullmatch(text)
        if found is None or int(found[1]) >= 2**31:
            raise ValueError(f"Expected the position of a search such as 12.p5.1234, got {text!r}.")
        return cls(int(found[1]), Place.parse(found[2]))


@set_module("jmsql.admin")
class SearchResult(NamedTuple):
    """The messages that a search has found, and where the next one goes on."""

    messages: list[FoundMessage]
    next: Position | None
    """Give it as `after`, to go on; None: all messages were read."""
    examined: int
    """The number of messages that were read, in steps of 5,000."""


class Terms(NamedTuple):
    """The conditions of a search, all of which a message meets."""

    message_id: str | None = None
    correlation_id: str | None = None
    group: str | None = None
    jms_type: str | None = None
    properties: Mapping[str, str | float | bool] = {}
    selector: str | None = None

    def parse(self) -> Selector | None:
        """Return the selector that they make, or None if there are none.

        Raises:
            InvalidSelectorException: The selector has an error, or no property can have such a name.
        """
        message_id = self.message_id and f"ID:{self.message_id.strip().removeprefix('ID:').lower()}"
        given = {
            "JMSMessageID": message_id,
            "JMSCorrelationID": self.correlation_id,
            "JMSXGroupID": self.group,
            "JMSType": self.jms_type,
        }
        conditions = [f"{name} = {_quoted(text)}" for name, text in given.items() if text]
        conditions += [_of_property(name, wanted) for name, wanted in self.properties.items()]
        written = looks.parse_selector(self.selector)
        if written is not None:
            conditions.append(f"({written.text})" if conditions else written.text)
        return looks.parse_selector(" AND ".join(conditions))


def _quoted(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))


def _of_property(name: str, wanted: str | float | bool) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidSelectorException(f"No property that a selector compares has the name {name!r}.")
    if not isinstance(wanted, str):
        return f"{name} = {str(wanted).upper()}"
    # A person writes 7 for the number and for the text.
    written = [f"{name} = {_quoted(wanted)}"]
    if _LITERAL.fullmatch(wanted):
        written.append(f"{name} = {wanted}")
    elif wanted.lower() in {"true", "false"}:
        written.append(f"{name} = {wanted.upper()}")
    return f"({' OR '.join(written)})" if len(written) > 1 else written[0]


Hit: TypeAlias = tuple[Position, T]


class ListedHit(NamedTuple):
    """A message as lists show it, and its queue or subscription."""

    message: ListedMessage
    destination: Destination
    subscription: str | None
    client_id: str | None


class Found(NamedTuple, Generic[T]):
    """Messages with their positions, where to go on, and how many were read."""

    messages: list[tuple[Position, T]]
    next: Position | None
    examined: int


_sql = SqlFile("searching")
_HOLDER = 5
"""How many columns of a row tell where the message is."""
_parts = {"held": _sql["held"], "holder": _sql["holder"]} | looks.PARTS
_ends = {
    False: _sql.statement("end_of_present", "searching", rows),
    True: _sql.statement("end_of_delayed", "searching", rows),
}


def search(
    selector: Selector | None, after: Position | None, limit: int, time_limit: float = TIME_LIMIT
) -> Steps[SearchResult]:
    """Return the next messages that a selector chooses, whole.

    Args:
        selector: Which messages.
        after: Where to go on.
        limit: How many messages at most.
        time_limit: Seconds after which it returns the matches so far.
    """
    chosen, parameters = looks.condition_of(Choice(selector), hidden=False)
    statements = {
        delayed: _statement(table, {"shown": shown, "chosen": chosen}, _whole)
        for (delayed, table), shown in zip(looks.TABLES, (DELIVERED, DELAYED), strict=True)
    }
    found = yield from looks.read_only(_walk(statements, parameters, after, limit, time_limit))
    return SearchResult([each for _, each in found.messages], found.next, found.examined)


def listed(selector: Selector | None, after: Position | None, limit: int, *, hidden: bool) -> Steps[Found[ListedHit]]:
    """Return the next messages that a selector chooses, as lists show them.

    Raises:
        JMSSecurityException: The selector compares properties though they are hidden.
    """
    chosen, parameters = looks.condition_of(Choice(selector), hidden=hidden)
    statements = {
        delayed: _statement(
            table, {"shown": looks.shown_in_lists(table, hidden=hidden), "chosen": chosen}, partial(_listed, delayed)
        )
        for delayed, table in looks.TABLES
    }
    return (yield from _walk(statements, parameters, after, limit, TIME_LIMIT))


def _statement(table: str, parts: dict[str, str], read: Callable[[Any], Hit[T]]) -> Statement[list[Hit[T]]]:
    return _sql.statement(table, "searching", records(read), parts | _parts)


def _holder(values: tuple[Any, ...]) -> tuple[int, Destination, str | None, str | None]:
    number, queue, topic, subscription, client_id = values
    name, client = (None if each is None else from_postgresql(each) for each in (subscription, client_id))
    return number, Queue(queue) if topic is None else Topic(topic), name, client


def _whole(values: tuple[Any, ...]) -> Hit[FoundMessage]:
    number, owner, subscription, client_id = _holder(values[-_HOLDER:])
    found = Delivered.of(values[:-_HOLDER])
    message = FoundMessage(found.row.message(owner), found.delivery, subscription, client_id, number)
    return Position(number, found.delivery.place), message


def _listed(delayed: bool, values: tuple[Any, ...]) -> Hit[ListedHit]:
    number, owner, subscription, client_id = _holder(values[-_HOLDER:])
    message = looks.read_listed(values[:-_HOLDER])
    return Position(number, message.place(delayed=delayed)), ListedHit(message, owner, subscription, client_id)


def _walk(
    statements: Mapping[bool, Statement[list[Hit[T]]]],
    parameters: Mapping[str, object],
    after: Position | None,
    limit: int,
    time_limit: float,
) -> Steps[Found[T]]:
    """Read window after window, the delayed messages last, until enough are found or the time is over."""
    end_at = monotonic() + time_limit
    found: list[Hit[T]] = []
    position, examined = after or Position(0, BEGINNING), 0
    for delayed in (False, True):
        if position.place.delayed and not delayed:
            continue
        if delayed and not position.place.delayed:
            position = Position(0, BEGINNING_OF_DELAYED)
        while True:
            number, (first, sequence, _) = position
            where = {"queue_id": number, "first": first, "sequence": sequence, "window": looks.WINDOW}
            found += yield from statements[delayed].bind(parameters, **where, limit=limit - len(found))
            if len(found) == limit:
                return Found(found, found[-1][0], examined)
            end = yield from _ends[delayed].bind(where)
            if not end:
                break
            position = Position(end[0][0], Place(end[0][1], end[0][2], delayed))
            examined += looks.WINDOW
            if monotonic() >= end_at:
                return Found(found, position, examined)
    return Found(found, None, examined)
