"""Looks at the store that stay cheap however much it holds, and actions on exactly the messages that were looked at.

Each statement reads at most 20,000 rows: counts go up to a limit, and long lists are read in pages, each
of which begins behind the key of the last row. A selector may choose few messages among many. So it is applied to a
window of a few thousand, and a look that reaches the end of its window says how far it came.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from jmsql.exceptions import (
    InvalidDestinationException,
    InvalidSelectorException,
    JMSSecurityException,
)
from jmsql.messages import Message
from jmsql.selectors import Selector
from jmsql.store.administration.dead_letters import IS_HOMELESS
from jmsql.store.administration.inspection import ACCESS
from jmsql.store.administration.places import BEGINNING_OF_DELAYED, Place, key_parameters, parts_of
from jmsql.store.destinations.lookup import existing_queue
from jmsql.store.rows.columns import and_chosen
from jmsql.store.rows.message_rows import MessageRow
from jmsql.store.statement import (
    Query,
    SqlFile,
    Statement,
    Steps,
    column,
    fill,
    in_transaction,
    nothing,
    record,
    records,
    rows,
    value,
)
from jmsql.values.destinations import Destination, Queue, Topic
from jmsql.values.duration import as_setting
from jmsql.values.postgresql_text import from_postgresql

T = TypeVar("T")

COUNTED = 1000
"""How far messages are counted; a count above it stands for it or more."""
WINDOW = 5000
"""How many messages a look reads that chooses some of them."""
LONGEST_LOOK = 5.0
"""After how many seconds PostgreSQL gives up a look."""
LONGEST_TEXT = 256 * 1024
"""How many characters or bytes of a body or of properties are read."""
DESTINATIONS_AT_ONCE = 1000
_NAMES_AT_ONCE = 5000
_DEAD_LETTERS = 2000
_DELIVERIES = 15_000


class Rights(NamedTuple):
    """The connected role, and its rights on all destinations."""

    role: str
    administers: bool
    sends: bool
    browses: bool


class DestinationLook(NamedTuple):
    """A queue, or the messages of a subscription, by number.

    `oldest` is when the oldest of its first messages could be delivered, in milliseconds since the epoch. The rates are
    the clients' counts; `waited` and `handled` are microseconds. Where the role may not browse it, nothing of its
    messages is known.
    """

    queue_id: int
    topic_id: int | None
    is_subscription: bool
    name: str | None
    subscription: str | None
    client_id: str | None
    temporary: bool
    deleted: bool
    paused: bool
    history: bool
    browsable: bool
    has_messages: bool
    oldest: int | None
    sent: int
    acknowledged: int
    rolled_back: int
    redelivered: int
    waited: float
    calls: int
    handled: float

    @property
    def exists(self) -> bool:
        """True if it is a queue with a name, or a subscription; else it has the settings of a topic, or is deleted."""
        return self.name is not None and not self.deleted and (self.topic_id is None or self.is_subscription)

    @property
    def kind(self) -> str:
        """``queue`` or ``subscription``."""
        return "subscription" if self.is_subscription else "queue"

    @property
    def destination(self) -> Destination:
        """The queue, or the topic of the subscription."""
        assert self.name is not None
        return Topic(self.name) if self.is_subscription else Queue(self.name)


class MessageState(StrEnum):
    """Where the delivery of a message stands."""

    READY = "ready"
    CLAIMED = "claimed"
    WAITING = "waiting"
    DELAYED = "delayed"
    EXPIRED = "expired"


class ListedMessage(NamedTuple):
    """A message in a list; times of the message are in milliseconds since the epoch.

    The four fields from `origin` on belong to a dead letter.
    """

    first: int
    sequence: int
    message_id: str | None
    type: str
    jms_type: str | None
    correlation_id: str | None
    timestamp: int | None
    expiration: int | None
    delivery_time: int | None
    preview: str | None
    group: str | None
    """Its JMSXGroupID."""
    origin: str | None
    origin_subscription: str | None
    origin_client_id: str | None
    died_at: int | None
    state: str
    delivery_count: int
    next_attempt: datetime | None
    error: str | None

    def place(self, *, delayed: bool) -> Place:
        """Return where it is."""
        return Place((self.delivery_time or 0) if delayed else self.first, self.sequence, delayed)


class Placed(Protocol):
    """A statement's row about a message."""

    def place(self, *, delayed: bool) -> Place:
        """Return where it is."""


T_placed = TypeVar("T_placed", bound=Placed)


class Page(NamedTuple, Generic[T_placed]):
    """Some messages of a queue or subscription in the order of their delivery, those that are delayed at the end.

    `next` is the place after which the following page begins; None: there is no more. A page may have few messages, or
    none, and yet a next one: so many messages were looked at that another look must go on.
    """

    messages: list[tuple[Place, T_placed]]
    next: Place | None


class Content(NamedTuple):
    """A body as it is stored, its beginning if it is long; `size` is how many bytes it has."""

    text: str | None
    json: str | None
    types: str | None
    bytes: bytes | None
    size: int


class WholeMessage(NamedTuple):
    """A message, its stored content, and the state of its delivery.

    `message` is None where its contents are hidden, or too long to be decoded. `properties` is JSON.
    """

    header: ListedMessage
    delivery_mode: int
    reply_to: str | None
    properties: str | None
    content: Content | None
    message: Message | None
    claimed_by: int | None
    claimed_at: datetime | None
    first_failed_at: datetime | None


class TopicLook(NamedTuple):
    """A topic, with the settings of its subscriptions."""

    topic_id: int
    name: str
    temporary: bool
    paused: bool
    settings: dict[str, Any]
    created_at: datetime
    sent: int
    history: bool


class SubscriptionLook(NamedTuple):
    """A subscription."""

    selector: str | None
    durable: bool
    shared: bool
    no_local: bool


class TopicSubscription(NamedTuple):
    """A subscription to a topic, with the number by which its messages are found."""

    queue_id: int
    name: str | None
    client_id: str | None
    durable: bool
    shared: bool
    selector: str | None


class Found(NamedTuple):
    """A destination whose name has the text; a subscription if it has both numbers."""

    name: str
    queue_id: int | None
    topic_id: int | None


class ConsumerLook(NamedTuple):
    """A consumer of a queue or subscription."""

    connection_id: int
    client_id: str | None
    host: str
    process_id: int
    user_name: str
    selector: str | None
    consumers: int
    listeners: str | None


class DeadLetterGroup(NamedTuple):
    """Dead letters of one cause, among the newest of a queue: the same origin, and errors that differ by numbers alone.

    `error` is the newest one's, which is at `first` and `sequence`; `errors` is the number of different ones.
    `is_homeless` is True if the origin is gone, so that a retry leaves the letters.
    """

    reason: str
    origin: str | None
    subscription: str | None
    client_id: str | None
    error: str | None
    errors: int
    messages: int
    first_died_at: datetime | None
    last_died_at: datetime | None
    first: int
    sequence: int
    cause: str
    is_homeless: bool
    recent: int
    """The number of letters that died within the last hour."""


class DeadLetterGroups(NamedTuple):
    """The groups of a queue's newest dead letters, and True if the queue has more letters than these."""

    groups: list[DeadLetterGroup]
    has_more: bool


class ClientLook(NamedTuple):
    """A connection of a client."""

    connection_id: int
    client_id: str | None
    user_name: str
    host: str
    process_id: int
    started_at: datetime
    connected: bool


class Holding(NamedTuple):
    """A client's messages of a queue or subscription, and the time since which it holds them."""

    connection_id: int
    queue_id: int
    messages: int
    since: datetime


class PastLook(NamedTuple):
    """How a message has left its destination."""

    transaction: str
    sequence: int
    message_id: str | None
    type: str
    subscription: str | None
    outcome: str
    left_at: datetime
    delivery_count: int
    seconds: float | None
    client_id: str | None
    user_name: str
    preview: str | None


class Choice(NamedTuple):
    """The chosen messages of a queue or subscription: by a selector, a state and a cause, up to a sequence.

    `cause` is the one of a `DeadLetterGroup`, for a role that sees the same messages.
    """

    selector: Selector | None = None
    state: MessageState | None = None
    newest: int = 2**63 - 1
    cause: str | None = None


def _read(make: Callable[[Iterable[Any]], T], fields: Sequence[str], *texts: str) -> Callable[[tuple[Any, ...]], T]:
    """Return a function that makes a record of a row, some fields of which may hold stand-ins for NUL and the like."""
    places = [fields.index(text) for text in texts]

    def read(row: tuple[Any, ...]) -> T:
        values = list(row)
        for place in places:
            values[place] = None if row[place] is None else from_postgresql(row[place])
        return make(values)

    return read


read_listed: Callable[[tuple[Any, ...]], ListedMessage] = _read(
    ListedMessage._make,
    ListedMessage._fields,
    *("jms_type", "correlation_id", "preview", "group", "origin_subscription", "origin_client_id", "error"),
)
"""Reads a row of `shown_in_lists`."""
read_client: Callable[[tuple[Any, ...]], ClientLook] = _read(ClientLook._make, ClientLook._fields, "client_id")
"""Reads a row about a client."""
_sql = SqlFile("looks")
_inspection = SqlFile("inspection")
_administers = _sql["administers"]
PARTS = {
    **ACCESS,
    "state": _inspection["state"],
    "delivery_of_m": _sql["delivery_of_m"],
    "delayed_state": _sql["delayed_state"],
}
"""The parts of statements about messages."""
TABLES = ((False, "present"), (True, "delayed"))
"""The statements that read messages, by whether these are delayed."""
_FAILURE = "m.properties ->> 'JMS_jmsql_LastError'::text"
_LISTED = fill(_sql["listed"], letter=_sql["letter"])
_GROUP = "m.properties ->> 'JMSXGroupID'::text"
_SHOWN = {
    "listed": _LISTED,
    "preview": _sql["preview"],
    "group": _GROUP,
    "error": fill(_sql["error_line"], failure=f"coalesce(d.last_error, {_FAILURE})"),
    "error_line": fill(_sql["error_line"], failure=_FAILURE),
    "alike": _sql["alike"],
}
_HIDDEN = {
    "listed": _LISTED,
    "preview": "null::text",
    "group": "null::text",
    "error": "null::text",
    "error_line": "null::text",
    "alike": "null::text",
}
_LETTERS = {"cause": _sql["cause"], "is_homeless": IS_HOMELESS}

_begin_look = _sql.statement("begin_look", "looking at the store", nothing)
_rights = _sql.statement(
    "rights", "looking at the rights", record(Rights._make), {**ACCESS, "administers": _administers}
)


def destination_statement(chosen: str = "") -> Statement[list[DestinationLook]]:
    """Return the statement that reads destinations in the order of their numbers.

    Args:
        chosen: A condition on them, with its ``where``.
    """
    read = records(_read(DestinationLook._make, DestinationLook._fields, "subscription", "client_id"))
    parts = PARTS | {"chosen": chosen}
    return _sql.statement("destinations", "looking at the destinations", lambda result: sorted(read(result)), parts)


_destinations = destination_statement()
_settings = _sql.statement("settings", "looking at a destination", rows)
_subscription = _sql.statement(
    "subscription",
    "looking at a subscription",
    records(_read(SubscriptionLook._make, SubscriptionLook._fields, "selector")),
)
_topic = _sql.statement("topic", "looking at a topic", records(TopicLook._make))
_topic_subscriptions = _sql.statement(
    "topic_subscriptions",
    "looking at a topic",
    records(_read(TopicSubscription._make, TopicSubscription._fields, "name", "client_id", "selector")),
)
_find_queues = _sql.statement("find_queues", "looking for destinations", rows)
_find_topics = _sql.statement("find_topics", "looking for destinations", rows)
_last_topic_of_window = _sql.statement("last_topic_of_window", "looking for destinations", rows)
_last_of_window = _sql.statement("last_of_window", "looking for destinations", rows)
_consumers = _sql.statement(
    "consumers",
    "looking at consumers",
    records(_read(ConsumerLook._make, ConsumerLook._fields, "client_id", "selector", "listeners")),
)
_clients = _sql.statement("clients", "looking at the clients", records(read_client))
_holders = _sql.statement("holders", "looking at what clients hold", records(Holding._make), ACCESS)
_has_dead_letters = _sql.statement("has_dead_letters", "looking at dead letters", value(bool))
_end_of_history = _sql.statement("end_of_history", "looking at the history", rows)
_require_access = SqlFile("destinations").statement("require_access", "looking at the messages", value(bool))
_ends = {
    False: _sql.statement("end_of_present", "looking at the messages", rows),
    True: _sql.statement("end_of_delayed", "looking at the messages", rows),
}
_message_ids = {
    False: _sql.statement("message_ids", "looking at the messages", column),
    True: _sql.statement("message_ids_of_delayed", "looking at the messages", column),
}


def read_only(work: Query[T] | Steps[T]) -> Steps[T]:
    """Run statements in a transaction that changes nothing, waits for no lock for long, and ends after some seconds."""
    return in_transaction(_bounded(work))


def _bounded(work: Query[T] | Steps[T]) -> Steps[T]:
    yield from _begin_look.bind(timeout=as_setting(LONGEST_LOOK))
    return (yield from work)


rights = _rights.bind()
"""The rights of the connected role."""


def destinations(queue_ids: Sequence[int]) -> Query[list[DestinationLook]]:
    """Return queues and subscriptions of some numbers in their order, at most 1,000, but for those that are gone."""
    return _destinations.bind(queue_ids=list(queue_ids[:DESTINATIONS_AT_ONCE]))


def destination(queue_id: int) -> Steps[DestinationLook | None]:
    """Return a queue or subscription, or None if there is none of that number."""
    found = yield from destinations([queue_id])
    return found[0] if found and found[0].exists else None


def located(queue: Queue | int) -> Steps[tuple[int, Destination]]:
    """Return the number of a queue, or of a queue or subscription that is given by number, and its destination.

    Raises:
        InvalidDestinationException: There is no such queue or subscription.
    """
    if isinstance(queue, Queue):
        return (yield from existing_queue(queue.name)), queue
    found = (yield from destination(queue)) if 0 < queue < 2**31 else None
    if found is None:
        raise InvalidDestinationException(f"There is no queue and no subscription of the number {queue}.")
    return queue, found.destination


def settings(queue_id: int) -> Steps[tuple[dict[str, Any], datetime] | None]:
    """Return the settings of a queue, and when it was made."""
    found = yield from _settings.bind(queue_id=queue_id)
    return (found[0][0], found[0][1]) if found else None


def subscription(queue_id: int) -> Steps[SubscriptionLook | None]:
    """Return the subscription whose messages have this number."""
    found = yield from _subscription.bind(queue_id=queue_id)
    return found[0] if found else None


def topic(topic_id: int) -> Steps[TopicLook | None]:
    """Return a topic, or None if there is none of that number."""
    found = yield from _topic.bind(topic_id=topic_id)
    return found[0] if found else None


def topic_subscriptions(topic_id: int, after: int, limit: int) -> Query[list[TopicSubscription]]:
    """Return subscriptions to a topic whose numbers come after one."""
    return _topic_subscriptions.bind(topic_id=topic_id, after=after, limit=limit)


def find(text: str, after: int, limit: int) -> Steps[tuple[list[Found], int | None]]:
    """Return destinations and subscriptions whose names have a text, and where to go on.

    Args:
        text: The part of the name; letter case does not count.
        after: The number after which to look; 0 begins with topics, and a negative one goes on with them.
        limit: How many topics, and how many others, at most.
    """
    found: list[Found] = []
    if after <= 0:
        window = _NAMES_AT_ONCE * 2
        topics = yield from _find_topics.bind(text=text, after=-after, window=window, limit=limit)
        found.extend(Found(name, None, topic_id) for topic_id, name in topics)
        if len(topics) == limit:
            return found, -topics[-1][0]
        [(last_topic, looked)] = yield from _last_topic_of_window.bind(after=-after, window=window)
        if looked == window:
            return found, -last_topic
        after = 0
    queues = yield from _find_queues.bind(text=text, after=after, window=_NAMES_AT_ONCE, limit=limit)
    found.extend(
        Found(name if topic_id is None else from_postgresql(name), queue_id, topic_id)
        for queue_id, name, topic_id in queues
    )
    if len(queues) == limit:
        return found, queues[-1][0]
    [(last, looked)] = yield from _last_of_window.bind(after=after, window=_NAMES_AT_ONCE)
    return found, last if looked == _NAMES_AT_ONCE else None


def consumers(queue_id: int, limit: int) -> Query[list[ConsumerLook]]:
    """Return the consumers of a queue or subscription."""
    return _consumers.bind(queue_id=queue_id, limit=limit)


def clients(after: int, limit: int) -> Query[list[ClientLook]]:
    """Return connections of clients whose numbers come after one."""
    return _clients.bind(after=after, limit=limit)


def holders(limit: int) -> Query[list[Holding]]:
    """Return the holders of claimed messages, the one with the oldest claim first, among 15,000 rows."""
    return _holders.bind(window=_DELIVERIES, limit=limit)


# Messages


def shown_in_lists(table: str, *, hidden: bool) -> str:
    """Return the columns of a `ListedMessage`, for ``present`` or ``delayed`` messages."""
    return fill(_sql[f"shown_of_{table}"], **_parts(hidden=hidden))


def _parts(*, hidden: bool) -> dict[str, str]:
    return PARTS | (_HIDDEN if hidden else _SHOWN)


def condition_of(choice: Choice, *, hidden: bool) -> tuple[str, dict[str, object]]:
    """Return a choice's further conditions on a message `m`, and its parameters.

    Raises:
        JMSSecurityException: The selector compares properties though they are hidden.
    """
    if hidden and choice.selector is not None and choice.selector.properties:
        raise JMSSecurityException(
            "Properties are hidden here, so selectors may compare headers alone: JMSMessageID, JMSType, "
            "JMSCorrelationID, JMSPriority, JMSTimestamp and JMSDeliveryMode."
        )
    chosen, parameters = and_chosen(choice.selector)
    if choice.cause is None:
        return chosen, dict(parameters)
    parts = _LETTERS | _parts(hidden=hidden)
    is_of_cause = fill(_sql["is_of_cause"], **parts, line=parts["error_line"])
    return f"{chosen} {is_of_cause}", {**parameters, "cause": choice.cause}


def messages(
    queue_id: int, choice: Choice, after: Place, limit: int, *, hidden: bool = False
) -> Steps[Page[ListedMessage]]:
    """Return the messages of a queue or subscription after a place.

    Args:
        queue_id: Its number.
        choice: Which messages.
        after: The place of the last message of the page before; `BEGINNING` for the first page.
        limit: How many messages at most.
        hidden: Whether bodies, properties and errors are left out, and not read.

    Raises:
        JMSSecurityException: The role may not browse it, or a selector compares properties though they are hidden.
    """
    chosen, parameters = condition_of(choice, hidden=hidden)
    parts = _parts(hidden=hidden) | {"chosen": chosen}
    statements = {
        delayed: _sql.statement(name, "browsing", records(read_listed), {"shown": _sql[f"shown_of_{name}"]} | parts)
        for delayed, name in TABLES
    }
    yield from _require_access.bind(queue_id=queue_id, action="browse")
    return (yield from walk(queue_id, choice, after, limit, statements, parameters))


def walk(
    queue_id: int,
    choice: Choice,
    after: Place,
    limit: int,
    statements: Mapping[bool, Statement[list[T_placed]]],
    parameters: Mapping[str, object],
) -> Steps[Page[T_placed]]:
    """Return the statements' rows for the next messages, the delayed ones last.

    Args:
        queue_id: Where they are.
        choice: Which messages.
        after: The place before them.
        limit: How many messages at most.
        statements: Read a window of messages, or, by True, of delayed ones. Each row says in `place` where it is.
        parameters: The selector's parameters.
    """
    found: list[tuple[Place, T_placed]] = []
    place = after
    for delayed in (False, True):
        if (place.delayed and not delayed) or _is_pointless(choice, delayed=delayed):
            continue
        if delayed and not place.delayed:
            place = BEGINNING_OF_DELAYED
        wanted = limit - len(found)
        where = {"queue_id": queue_id, "first": place.first, "sequence": place.sequence, "window": WINDOW}
        state = None if choice.state is None else choice.state.value
        page = yield from statements[delayed].bind(parameters, **where, state=state, limit=wanted)
        found.extend((row.place(delayed=delayed), row) for row in page)
        if len(page) == wanted:
            return Page(found, found[-1][0])
        end = yield from _ends[delayed].bind(where)
        if end:
            return Page(found, Place(end[0][0], end[0][1], delayed))
    return Page(found, None)


def _is_pointless(choice: Choice, *, delayed: bool) -> bool:
    """Tell whether a table has no message of the state."""
    if delayed:
        return choice.state not in {None, MessageState.DELAYED, MessageState.EXPIRED}
    return choice.state is MessageState.DELAYED


def message(queue_id: int, place: Place, owner: Destination, *, hidden: bool = False) -> Steps[WholeMessage | None]:
    """Return a message, or None if it is not there.

    Args:
        queue_id: The number of the queue or subscription.
        place: Where it is there.
        owner: The queue or topic.
        hidden: Whether body, properties and errors are left out, and not read.

    Raises:
        JMSSecurityException: The role may not browse it.
    """
    yield from _require_access.bind(queue_id=queue_id, action="browse")
    parts = {
        "shown": _sql["shown_of_whole_delayed" if place.delayed else "shown_of_whole"],
        "whole": _sql["whole"],
        "error": "null::text" if hidden else "d.last_error",
        "content": "null::text, null::text, 0, null::text" if hidden else _sql["content"],
        "contents_of_body": _sql["contents_of_body"],
        **PARTS,
    }
    statement = _sql.statement("delayed_at" if place.delayed else "present_at", "looking at a message", rows, parts)
    found = yield from statement.bind(
        queue_id=queue_id, first=place.first, sequence=place.sequence, **({} if hidden else {"most": LONGEST_TEXT})
    )
    return _whole(found[0], owner) if found else None


def _whole(row: tuple[Any, ...], owner: Destination) -> WholeMessage:
    (inverse_priority, sequence, message_id, timestamp, expiration, mode, kind, correlation_id, reply_to, jms_type) = (
        row[:10]
    )
    delivery_time, properties, property_types, size, body = row[10:15]
    state, count, claimed_by, claimed_at, next_attempt, first_failed_at, error = row[15:]
    header = read_listed((
        *(inverse_priority, sequence, message_id, kind, jms_type, correlation_id, timestamp, expiration),
        *(delivery_time, None, None, None, None, None, None, state, count, next_attempt, error),
    ))  # fmt: skip
    content = None
    if body is not None:
        stored = json.loads(body)
        encoded = stored["bytes"]
        content = Content(
            *(stored["text"], stored["json"], stored["types"]),
            *(None if encoded is None else base64.b64decode(encoded), stored["size"] or 0),
        )
    is_whole = body is not None and content is not None and content.size <= LONGEST_TEXT and size <= LONGEST_TEXT
    decoded = None
    if is_whole:
        assert content is not None
        decoded = MessageRow(
            *(inverse_priority, sequence, message_id, timestamp, expiration, mode, kind, correlation_id, reply_to),
            *(jms_type, properties, property_types, content.text, content.json, content.types, content.bytes),
            *(delivery_time, None, count, None),
        ).message(owner)
    reply_to = None if reply_to is None else from_postgresql(reply_to)
    return WholeMessage(header, mode, reply_to, properties, content, decoded, claimed_by, claimed_at, first_failed_at)


def dead_letters(queue_id: int, *, hidden: bool = False) -> Steps[DeadLetterGroups]:
    """Return the newest 2,000 dead letters of a queue, by cause, the last that died first.

    Raises:
        JMSSecurityException: The role may not browse it.
    """
    yield from _require_access.bind(queue_id=queue_id, action="browse")
    statement = _sql.statement(
        "dead_letters",
        "looking at dead letters",
        records(_read(DeadLetterGroup._make, DeadLetterGroup._fields, "reason", "subscription", "client_id", "error")),
        _LETTERS | _parts(hidden=hidden) | {"line": "e.line"},
    )
    found = yield from statement.bind(queue_id=queue_id, window=_DEAD_LETTERS + 1)
    return DeadLetterGroups(found, sum(each.messages for each in found) > _DEAD_LETTERS)


def dead_letter_group(queue_id: int, cause: str, *, hidden: bool = False) -> Steps[DeadLetterGroup | None]:
    """Return the group of a cause, or None if none of the newest letters is of it.

    Raises:
        JMSSecurityException: The role may not browse the queue.
    """
    found = yield from dead_letters(queue_id, hidden=hidden)
    return next((group for group in found.groups if group.cause == cause), None)


def has_dead_letters(queue_id: int) -> Steps[bool]:
    """Tell whether a queue has dead letters.

    Raises:
        JMSSecurityException: The role may not browse it.
    """
    yield from _require_access.bind(queue_id=queue_id, action="browse")
    return (yield from _has_dead_letters.bind(queue_id=queue_id))


def history(
    origin: Destination,
    before: tuple[str, int] | None,
    limit: int,
    *,
    message_id: str | None = None,
    hidden: bool = False,
) -> Steps[tuple[list[PastLook], tuple[str, int] | None]]:
    """Return how messages have left a destination, the last first, and where to go on.

    Args:
        origin: The destination.
        before: The transaction and sequence before which they have left; None: the last ones.
        limit: How many at most.
        message_id: Only the message with this identifier.
        hidden: Whether bodies are left out, and not read.
    """
    parts = _parts(hidden=hidden)
    statement = _sql.statement(
        "history",
        "looking at the history",
        records(_read(PastLook._make, PastLook._fields, "subscription", "client_id", "preview")),
        {"past": fill(_sql["past"], **parts)},
    )
    transaction, sequence = before or (str(2**64 - 1), 0)
    where = {"name": origin.name, "transaction": transaction, "sequence": sequence, "window": WINDOW}
    past = yield from statement.bind(
        where,
        is_topic=isinstance(origin, Topic),
        message_id=None if message_id is None else message_id.removeprefix("ID:").lower(),
        limit=limit,
    )
    if len(past) == limit:
        return past, (past[-1].transaction, past[-1].sequence)
    end = yield from _end_of_history.bind(where)
    return past, tuple(end[0]) if end else None


class Window(NamedTuple):
    """Where the chosen messages of a window are, and the place where the next window begins, if there is one."""

    places: list[Place]
    next: Place | None


def choose(queue_id: int, choice: Choice, after: Place, *, hidden: bool = False) -> Steps[Window]:
    """Find the messages of the next window that are meant."""
    chosen, parameters = condition_of(choice, hidden=hidden)
    delayed = after.delayed
    where = {"queue_id": queue_id, "first": after.first, "sequence": after.sequence, "window": WINDOW}
    places: list[Place] = []
    if not _is_pointless(choice, delayed=delayed):
        name = "delayed_keys" if delayed else "present_keys"
        statement = _sql.statement(name, "choosing messages", rows, PARTS | {"chosen": chosen})
        state = None if choice.state is None else choice.state.value
        keys = yield from statement.bind(parameters, **where, state=state, newest=choice.newest)
        places = [Place(first, sequence, delayed) for first, sequence in keys]
        end = yield from _ends[delayed].bind(where)
        if end:
            return Window(places, Place(end[0][0], end[0][1], delayed))
    return Window(places, None if delayed else BEGINNING_OF_DELAYED)


def message_ids(queue_id: int, places: Sequence[Place]) -> Steps[list[str]]:
    """Return the JMSMessageIDs of the messages that are at places, but for those without one."""
    found: list[str] = []
    for delayed, part in parts_of(places, WINDOW):
        found += yield from _message_ids[delayed].bind(key_parameters(part), queue_id=queue_id)
    return found


def parse_selector(text: str | None) -> Selector | None:
    """Read a selector; one of white space alone chooses all messages.

    Raises:
        InvalidSelectorException: It has an error; the message shows where.
    """
    if text is not None and "\0" in text:
        raise InvalidSelectorException("A selector cannot hold the character NUL.")
    return Selector.parse(text)
