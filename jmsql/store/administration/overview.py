"""The destinations that need a look, with how much waits there: counted to a limit, or, if it must be, exactly.

The first destinations are found without reading all messages: by the first message of each queue and priority, a
sample, or the clients' counts. The cost follows the number of destinations, not of messages.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from itertools import accumulate, chain
from operator import itemgetter
from typing import Any, NamedTuple, Self

from jmsql.public_names import set_module
from jmsql.store.administration import looks, measurement
from jmsql.store.administration.inspection import ACCESS
from jmsql.store.administration.looks import COUNTED, DestinationLook
from jmsql.store.administration.measurement import StoreMeasurement
from jmsql.store.administration.rates import Counters, Rate, Rates
from jmsql.store.destinations.lookup import require_access
from jmsql.store.statement import Query, SqlFile, Statement, Steps, column, record, records, rows, value
from jmsql.values.clock import monotonic
from jmsql.values.destinations import Destination, Queue, Topic
from jmsql.values.postgresql_text import to_postgresql

_ENDS_WITH_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")
_MOST_ROWS = 20_000
_QUEUES_AT_ONCE = 1400
_LOOKED_AT_AGAIN = 2800
"""How many queues an overview by age or depth looks at again: with 10,000 queues the fourth sees them all."""
_LONGEST_KEPT = 120.0
"""After how many seconds it looks at them in any case."""
_BOUNDED_AT_ONCE = 700
"""How many queues a statement bounds the depths of."""
_UNATTENDED_AT_ONCE = 5000
_SAMPLED_PAGES = 75
_COUNTED_FIRST, _COUNTED_LATER = 200_000, 50_000
"""How many messages an overview by depth counts to find the deepest queues, and one that follows, with other queues."""
_CONSUMERS = 100
_MICROSECONDS = 1e6
_NO_RATES = (None, None, None)
_FEW = 100


@set_module("jmsql.admin")
class BoundedCount(NamedTuple):
    """A number of messages that was counted to a limit: if there are more, it is the limit. `str` writes ``1,000+``."""

    number: int
    has_more: bool = False

    def __str__(self) -> str:
        return f"{self.number:,}+" if self.has_more else f"{self.number:,}"

    @classmethod
    def of(cls, counted: int, most: int | None) -> Self:
        """Return the result of a count to one more than the limit."""
        return cls(counted) if most is None or counted <= most else cls(most, has_more=True)


NONE = BoundedCount(0)


@set_module("jmsql.admin")
class OverviewOrder(StrEnum):
    """The order of destinations in an overview; destinations without a value come last, by name."""

    age = "age"
    """Destinations with the oldest first messages."""
    depth = "depth"
    """Destinations with the most messages, as far as these are counted. Where thousands of queues hold messages, an
    `Administration` may need several overviews to find all."""
    busy = "busy"
    """Destinations with the most messages in and out since the previous overview."""
    name = "name"
    """Queues, then subscriptions, then topics, each by name."""


@set_module("jmsql.admin")
class DestinationOverview(NamedTuple):
    """A queue, a subscription or a topic: how much waits there, for how long, and how it moves.

    Where a queue or subscription has more messages than were counted, `ready` and `expired` count only the first ones.
    Numbers of messages are None where the role may not browse, and of a topic, which holds none itself.
    """

    number: int
    """By which methods of `Administration` find a queue, and also a subscription; of a topic it is negative."""
    kind: str
    """``queue``, ``subscription`` or ``topic``."""
    destination: Destination
    """The queue, the topic, or the topic of the subscription."""
    subscription: str | None
    client_id: str | None
    ready: BoundedCount | None
    claimed: BoundedCount | None
    waiting: BoundedCount | None
    delayed: BoundedCount | None
    expired: BoundedCount | None
    redelivered: BoundedCount | None
    oldest: datetime | None
    """Since when the oldest of the first messages of each priority could have been delivered."""
    oldest_claim: datetime | None
    """Since when a client holds the message that is held longest, among those that were counted."""
    consumers: int
    sent: int
    """The clients' count so far, like the next six fields."""
    acknowledged: int
    rolled_back: int
    redeliveries: int
    time_in_queue: float
    """Seconds from their sending, or delivery time, to their acknowledgement: the sum for the acknowledged messages."""
    calls: int
    """Calls of workers' handlers that have ended."""
    handling_time: float
    """Seconds that these calls took, with their commits."""
    incoming: float | None
    """Messages a second since the overview before; None in the first one. So are the two that follow."""
    outgoing: float | None
    returned: float | None
    paused: bool

    @property
    def browsable(self) -> bool:
        """True if the role may see the messages."""
        return self.kind == "topic" or self.ready is not None

    @property
    def messages(self) -> BoundedCount | None:
        """The number of messages in any state; None where `ready` is."""
        if self.ready is None:
            return None
        number, has_more = 0, False
        for each in (self.ready, self.claimed, self.waiting, self.delayed, self.expired):
            if each is not None:
                number += each.number
                has_more |= each.has_more
        return BoundedCount(number, has_more)


class _Counts(NamedTuple):
    """How many messages a queue or subscription has, each counted to one more than the limit."""

    queue_id: int
    messages: int
    expired: int
    delayed: int
    delayed_expired: int
    deliveries: int
    claimed: int
    waiting: int
    redelivered: int
    oldest_claim: datetime | None
    consumers: int

    def reached(self, limit: int) -> bool:
        """Tell whether one of the counts came to a limit."""
        return max(self.messages, self.delayed, self.deliveries) > limit


def require_pattern(like: object) -> None:
    """Make sure that a pattern is one of SQL's LIKE, and can be sent.

    Raises:
        TypeError: It is no text.
        ValueError: Its last character is a backslash that escapes nothing, or PostgreSQL cannot store the text.
    """
    if like is None:
        return
    if not isinstance(like, str):
        raise TypeError(f"Expected a pattern of SQL's LIKE such as 'orders.%', got {like!r}.")
    if _ENDS_WITH_ESCAPE.search(like):
        raise ValueError(f"The pattern {like!r} ends with a backslash that escapes nothing. Double it.")
    if to_postgresql(like) != like:
        raise ValueError(f"PostgreSQL cannot store the pattern {like!r}: it holds a NUL or half a surrogate pair.")


class Notable(NamedTuple):
    """How many queues and subscriptions there are, which are paused, and where dead and expired messages go.

    `paused` has the first 50 of `all_paused`.
    """

    destinations: int
    paused: list[int]
    letters: list[int]
    all_paused: int


class DeadLetterQueue(NamedTuple):
    """A queue for dead or expired messages: how many it has, and the age of the newest in seconds."""

    name: str
    letters: BoundedCount
    newest_seconds: float | None


class Window(NamedTuple):
    """A fact of each of the queues and subscriptions whose numbers come after one, up to another."""

    after: int
    last: int
    seen_at: float
    facts: list[tuple[int, int]]


class Windows:
    """Facts of queues and subscriptions, by windows of their numbers, each of which was looked at at some time."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """The number of destinations for which the facts suffice."""
        self._windows: dict[int, Window] = {}
        self.rest: list[tuple[int, int]] = []
        """The facts of those behind the windows."""

    @property
    def end(self) -> int:
        """The last number of the windows."""
        return max((window.last for window in self._windows.values()), default=0)

    @property
    def facts(self) -> Iterable[tuple[int, int]]:
        """All that was seen."""
        return chain(self.rest, *(window.facts for window in self._windows.values()))

    def overdue(self, now: float, at_once: int) -> list[Window]:
        """Return the windows that are to be looked at: the next in turn, and those that were not for too long."""
        longest_ago = sorted(self._windows.values(), key=lambda each: each.seen_at)
        late = [each for each in longest_ago if each.seen_at <= now - _LONGEST_KEPT]
        return longest_ago[: max(at_once, len(late))]

    def saw(self, window: Window) -> None:
        """Remember the results for a window."""
        self._windows[window.after] = window


class Memory:
    """Facts that an overview takes from those before it: for rates, and for the orders by movement, age and depth."""

    def __init__(self) -> None:
        self._rates = Rates()
        self._counted: dict[int, int] = {}
        self._windows: dict[OverviewOrder, tuple[str | None, str | None, Windows]] = {}
        self._depths: dict[int, tuple[float, int]] = {}

    def windows(self, order: OverviewOrder, pattern: str | None, kind: str | None, limit: int) -> Windows:
        """Return earlier results of overviews of the same names and kind, if the previous one had the same length."""
        seen_pattern, seen_kind, seen = self._windows.get(order, (None, None, Windows(0)))
        if (seen_pattern, seen_kind) != (pattern, kind) or limit > seen.limit:
            seen = Windows(limit)
        self._windows[order] = pattern, kind, seen
        return seen

    def depths(self, now: float, counted: Mapping[int, int] | None = None) -> dict[int, int]:
        """Add counted numbers of messages, and return the last minutes' numbers."""
        self._depths.update((number, (now, depth)) for number, depth in (counted or {}).items())
        self._depths = {number: seen for number, seen in self._depths.items() if seen[0] > now - _LONGEST_KEPT}
        return {number: depth for number, (_, depth) in self._depths.items()}

    def rates(self, measured: Iterable[tuple[int, Counters]], moment: float | None = None) -> dict[int, Rate]:
        """Take in measurements of a moment, in seconds, or of now, and return the rates since before."""
        return self._rates.see(monotonic() if moment is None else moment, dict(measured))

    def moved(self, counters: Sequence[tuple[int, int, int, int]]) -> list[int]:
        """Return the destinations through which messages have gone since before, those with the most first."""
        before, self._counted = self._counted, {number: sum(more) for number, *more in counters}
        moves = [
            (total - before.get(number, 0), number)
            for number, total in self._counted.items()
            if before and total > before.get(number, 0)
        ]
        return [number for _, number in sorted(moves, key=lambda each: (-each[0], each[1]))]


def _of_topic(row: tuple[Any, ...]) -> DestinationOverview:
    topic_id, name, paused, *counters = row
    no_messages = (None, None, None, None, None, None, None, None, 0)
    fields = (-topic_id, "topic", Topic(name), None, None, *no_messages, *counters, 0.0, 0, 0.0, *_NO_RATES, paused)
    return DestinationOverview._make(fields)


def _measured(row: tuple[Any, ...]) -> DestinationOverview:
    """Read a destination with exact counts."""
    number, kind, name, subscription, client_id = row[:5]
    oldest, oldest_claim, consumers = row[11:14]
    waited, calls, handled, paused, browsable = row[18:]
    hidden = kind == "topic" or not browsable
    return DestinationOverview._make((
        *(number, kind, Queue(name) if kind == "queue" else Topic(name), subscription, client_id),
        *(None if hidden else BoundedCount(counted) for counted in row[5:11]),
        *(None if oldest is None else _moment(oldest), oldest_claim, consumers),
        *row[14:18],
        *(waited / _MICROSECONDS, calls, handled / _MICROSECONDS),
        *_NO_RATES,
        paused,
    ))  # fmt: skip


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


_sql = SqlFile("overview")
_WANTED = {"wanted": _sql["wanted"]}
_QUEUES = {"queues": _sql["queues"], **ACCESS, **_WANTED}
_last_of_window = _sql.statement("last_of_window", "looking at the destinations", record(tuple))
_oldest = _sql.statement("oldest", "looking at the destinations", rows, _QUEUES)
_pages = _sql.statement("pages", "looking at the destinations", record(tuple))
_sampled = _sql.statement("sampled", "looking at the destinations", rows, _WANTED)
_bounds = _sql.statement("bounds", "looking at the destinations", rows, _QUEUES)
_depths = _sql.statement("depths", "counting messages", rows)
_counters = _sql.statement("counters", "looking at the destinations", rows)
_named: dict[str, Statement[list[Any]]] = {
    "queue": _sql.statement("named_queues", "looking at the queues", column),
    "subscription": _sql.statement("named_subscriptions", "looking at the subscriptions", column),
    "topic": _sql.statement("named_topics", "looking at the topics", column),
}
_topics = _sql.statement("topics", "looking at the topics", records(_of_topic))
_chosen = looks.destination_statement(_sql["chosen"])
_measure = SqlFile("measurement").statement("destinations", "measuring the destinations", records(_measured), ACCESS)
_counts = _sql.statement("counts", "counting messages", records(_Counts._make), ACCESS)
_depth = _sql.statement("depth", "counting messages", value(int))
_dead_letters = _sql.statement("dead_letters", "counting the dead letters", rows)
_unattended = _sql.statement("unattended", "looking for queues without consumers", column, ACCESS)
_notable = _sql.statement("notable", "looking at the destinations", record(Notable._make))


def overview(
    limit: int,
    order: OverviewOrder,
    memory: Memory,
    *,
    count_limit: int | None = COUNTED,
    like: str | None = None,
    kind: str | None = None,
    moment: float | None = None,
) -> Steps[list[DestinationOverview]]:
    """Return the destinations that come first in an order, but for temporary ones.

    Args:
        limit: How many.
        order: Which come first.
        memory: The results of earlier overviews.
        count_limit: Number up to which messages are counted; None counts all, which reads them.
        like: A pattern as for SQL's LIKE, for the name of the destination or subscription.
        kind: Only queues, subscriptions or topics; None: all.
        moment: When that is, in seconds of any clock; None: now.
    """
    if count_limit is None:
        found = yield from measure(like, kind)
    else:
        found = yield from looks.read_only(_bounded(limit, order, memory, count_limit, like, kind))
    moved = _with_rates(found, memory, moment)
    key = _KEYS[order]
    return (moved if key is None else sorted(moved, key=key))[:limit]


def measure(like: str | None = None, kind: str | None = None) -> Query[list[DestinationOverview]]:
    """Return all destinations that are not temporary, by kind and name, with exact counts: it reads all messages."""
    return _measure.bind(pattern=like, kind=kind)


def _bounded(
    limit: int, order: OverviewOrder, memory: Memory, most: int, like: str | None, kind: str | None
) -> Steps[list[DestinationOverview]]:
    wanted = {"pattern": like, "kind": kind, "limit": limit, "most": most}
    numbers = yield from _RANKS[order](memory, wanted)
    found = yield from _described(numbers, wanted)
    if order is OverviewOrder.age:  # some may be empty by now
        found.sort(key=_KEYS[order])
    if len(found) < limit:
        known = {each.number for each in found}
        named = [number for number in (yield from _by_name(wanted)) if number not in known]
        found += yield from _described(named[: limit - len(found)], wanted)
    return (yield from _counted(found[:limit], most))


def _ranked_by_age(memory: Memory, wanted: dict[str, Any]) -> Steps[list[int]]:
    if wanted["kind"] == "topic":
        return []
    windows = memory.windows(OverviewOrder.age, wanted["pattern"], wanted["kind"], wanted["limit"])
    yield from _look_around(windows, _oldest, wanted | {"limit": windows.limit}, _QUEUES_AT_ONCE)
    limit = wanted["limit"] + wanted["limit"] // 10
    return [number for number, _ in sorted(windows.facts, key=itemgetter(1))[:limit]]


def _look_around(
    windows: Windows, statement: Statement[list[Any]], wanted: dict[str, Any], at_once: int
) -> Steps[None]:
    """Look at some of the windows, and at the queues behind the last full one; the first time at all."""
    now = monotonic()
    for window in windows.overdue(now, max(1, _LOOKED_AT_AGAIN // at_once)):
        facts = yield from statement.bind(wanted, after=window.after, last=window.last)
        windows.saw(Window(*window[:2], now, facts))
    after, looked_at = windows.end, at_once
    while looked_at == at_once:
        last, looked_at = yield from _last_of_window.bind(after=after, window=at_once)
        facts = (yield from statement.bind(wanted, after=after, last=last)) if looked_at else []
        if looked_at == at_once:
            windows.saw(Window(after, last, now, facts))
        else:
            windows.rest = facts  # more queues may come behind them, so that they are looked at each time
        after = last


def _ranked_by_depth(memory: Memory, wanted: dict[str, Any]) -> Steps[list[int]]:
    """Return the deepest queues, each counted to a limit.

    A sample finds those that are much deeper than the others, but misses a queue whose messages stand in few pages. So
    the queues are counted: the sampled ones first, then those that can have the most messages, until no other can have
    as many. Where there is too much to count, the next overview goes on.
    """
    if wanted["kind"] == "topic":
        return []
    windows = memory.windows(OverviewOrder.depth, wanted["pattern"], wanted["kind"], wanted["limit"])
    yield from _look_around(windows, _bounds, wanted, _BOUNDED_AT_ONCE)
    present, delayed = yield from _pages.bind()
    shares = {"percentage": _share(present, _SAMPLED_PAGES), "percentage_of_delayed": _share(delayed, 25)}
    sampled: dict[int, int] = dict((yield from _sampled.bind(wanted, **shares)))
    bounds = dict(windows.facts)
    now = monotonic()
    known = memory.depths(now)

    def guess(number: int) -> tuple[int, int, int]:
        return -sampled.get(number, 0), -bounds.get(number, 0), number

    def rank(number: int) -> tuple[int, ...]:
        depth = known.get(number, 0)
        # A sample is another each time, and moves no queue past one that has as many messages.
        return -depth, *((0, 0, number) if 0 < depth <= most else guess(number))

    limit, most = wanted["limit"] + wanted["limit"] // 10, min(wanted["most"], COUNTED)
    candidates = sorted(bounds.keys() | sampled.keys(), key=lambda number: (number in known, *guess(number)))
    possible = list(accumulate((bounds.get(each, most) for each in reversed(candidates)), max))[::-1]
    budget = _COUNTED_LATER if known else _COUNTED_FIRST
    counted: dict[int, int] = {}
    for start in range(0, len(candidates), _FEW):
        part = candidates[start : start + _FEW]
        if _is_decided(counted, limit, min(possible[start], most)) or sum(counted.values()) > budget:
            break
        counted |= yield from _depths_of(part, min(_FEW, most))
        counted |= yield from _depths_of([each for each in part if counted.get(each, 0) > _FEW], most)
    known = memory.depths(now, counted)
    found = [number for number in candidates if known.get(number, 1) or number in sampled]
    return sorted(found, key=rank)[:limit]


def _is_decided(counted: Mapping[int, int], limit: int, possible: int) -> bool:
    """Tell whether so many queues were counted that have as many messages as any other can have."""
    deepest = sorted(counted.values(), reverse=True)[:limit]
    return len(deepest) == limit and deepest[-1] >= possible


def _depths_of(numbers: Sequence[int], most: int) -> Steps[dict[int, int]]:
    found: dict[int, int] = {}
    at_once = max(1, _MOST_ROWS // (2 * most + 3))
    for start in range(0, len(numbers), at_once):
        found |= dict((yield from _depths.bind(queue_ids=numbers[start : start + at_once], most=most + 1)))
    return found


def _share(pages: int, sampled: int) -> float:
    return min(100.0, 100.0 * sampled / max(1, pages))


def _ranked_by_rate(memory: Memory, _: dict[str, Any]) -> Steps[list[int]]:
    return memory.moved((yield from _counters.bind()))


def _ranked_by_name(_: Memory, wanted: dict[str, Any]) -> Steps[list[int]]:
    return (yield from _by_name(wanted))


def _by_name(wanted: dict[str, Any]) -> Steps[list[int]]:
    found: list[int] = []
    for kind, statement in _named.items():
        if wanted["kind"] in {None, kind} and len(found) < wanted["limit"]:
            numbers = yield from statement.bind(wanted)
            found += [-number if kind == "topic" else number for number in numbers]
    return found


_RANKS: dict[OverviewOrder, Callable[[Memory, dict[str, Any]], Steps[list[int]]]] = {
    OverviewOrder.age: _ranked_by_age,
    OverviewOrder.depth: _ranked_by_depth,
    OverviewOrder.busy: _ranked_by_rate,
    OverviewOrder.name: _ranked_by_name,
}
_KEYS: dict[OverviewOrder, Callable[[DestinationOverview], Any] | None] = {
    OverviewOrder.age: lambda each: (each.oldest is None, each.oldest),
    OverviewOrder.depth: lambda each: -(each.messages or NONE).number,
    OverviewOrder.busy: lambda each: (-(each.incoming or 0) - (each.outgoing or 0), -(each.messages or NONE).number),
    OverviewOrder.name: None,
}
"""The final sort keys of the destinations; None: they are."""


def _described(numbers: Sequence[int], wanted: dict[str, Any]) -> Steps[list[DestinationOverview]]:
    """Describe destinations without counting their messages, in their order; those that are gone are left out."""
    described: dict[int, DestinationOverview] = {}
    for start in range(0, len(numbers), looks.DESTINATIONS_AT_ONCE):
        part = numbers[start : start + looks.DESTINATIONS_AT_ONCE]
        for each in (yield from _chosen.bind(wanted, queue_ids=[number for number in part if number > 0])):
            if each.exists and not each.temporary:
                described[each.queue_id] = _of_look(each)
        topic_ids = [-number for number in part if number < 0]
        if topic_ids and wanted["kind"] in {None, "topic"}:
            for topic in (yield from _topics.bind(topic_ids=topic_ids, pattern=wanted["pattern"])):
                described[topic.number] = topic
        if len(described) >= wanted["limit"]:
            break
    return [described[number] for number in numbers if number in described]


def _counted(found: Sequence[DestinationOverview], most: int) -> Steps[list[DestinationOverview]]:
    """Add the numbers of messages, and the consumers."""
    numbers = [each.number for each in found if each.number > 0]
    counts: dict[int, _Counts] = {}
    # Most have few messages, so that one statement counts many of them.
    for limit in sorted({min(most, _FEW), most}):
        at_once = max(1, _MOST_ROWS // (4 * (limit + 1) + _CONSUMERS))
        for start in range(0, len(numbers), at_once):
            part = numbers[start : start + at_once]
            for each in (yield from _counts.bind(queue_ids=part, most=limit + 1)):
                counts[each.queue_id] = each
        numbers = [each for each in numbers if each in counts and counts[each].reached(limit)]
    return [_with_counts(each, counts.get(each.number), most) for each in found]


def _with_counts(each: DestinationOverview, counts: _Counts | None, most: int) -> DestinationOverview:
    if counts is None or each.ready is None:
        return each
    messages, delayed = BoundedCount.of(counts.messages, most), BoundedCount.of(counts.delayed, most)
    has_more = counts.deliveries > most
    present = messages.number - counts.claimed - counts.waiting - counts.expired
    return each._replace(
        ready=BoundedCount(max(0, present), messages.has_more),
        claimed=BoundedCount(counts.claimed, has_more),
        waiting=BoundedCount(counts.waiting, has_more),
        delayed=BoundedCount(delayed.number - counts.delayed_expired, delayed.has_more),
        expired=BoundedCount(counts.expired + counts.delayed_expired, messages.has_more and counts.expired > 0),
        redelivered=BoundedCount(counts.redelivered, has_more),
        oldest_claim=counts.oldest_claim,
        consumers=counts.consumers,
    )


def _of_look(look: DestinationLook) -> DestinationOverview:
    none = NONE if look.browsable else None
    return DestinationOverview(
        look.queue_id,
        look.kind,
        look.destination,
        look.subscription,
        look.client_id,
        *(none, none, none, none, none, none),
        None if look.oldest is None else _moment(look.oldest),
        None,
        0,
        *(look.sent, look.acknowledged, look.rolled_back, look.redelivered),
        *(look.waited / _MICROSECONDS, look.calls, look.handled / _MICROSECONDS),
        *_NO_RATES,
        look.paused,
    )


def _counters_of(each: DestinationOverview) -> Counters:
    messages = each.messages
    depth = (0 if each.kind == "topic" else None) if messages is None or messages.has_more else messages.number
    return Counters(each.sent, each.acknowledged, each.rolled_back, depth)


def _with_rates(
    found: Sequence[DestinationOverview], memory: Memory, moment: float | None = None
) -> list[DestinationOverview]:
    rates = memory.rates(((each.number, _counters_of(each)) for each in found), moment)
    return [_with_rate(each, rates.get(each.number)) for each in found]


def _with_rate(each: DestinationOverview, rate: Rate | None) -> DestinationOverview:
    if rate is None:
        return each
    if each.kind == "topic":  # acknowledgements count for its subscriptions
        return each._replace(incoming=rate.incoming)
    return each._replace(incoming=rate.incoming, outgoing=rate.outgoing, returned=rate.rolled_back)


def store() -> Steps[StoreMeasurement]:
    """Measure the store as a whole; counts go up to a limit."""
    return looks.read_only(measurement.store)


def of(numbers: Sequence[int], memory: Memory, most: int = COUNTED) -> Steps[list[DestinationOverview]]:
    """Return some queues and subscriptions by number, but for those that are gone."""
    looked_at = yield from looks.destinations(numbers)
    found = yield from _counted([_of_look(each) for each in looked_at if each.exists], most)
    return _with_rates(found, memory)


def listed(
    numbers: Sequence[int], memory: Memory, *, limit: int, like: str | None = None, kind: str | None = None
) -> Steps[list[DestinationOverview]]:
    """Return the first destinations of some, by number, in their order, and behind them others by name.

    Args:
        numbers: The numbers of queues and subscriptions, and negative ones of topics.
        memory: The earlier results.
        limit: How many at most.
        like: A pattern as for SQL's LIKE, for the name of the destination or subscription.
        kind: Only queues, subscriptions or topics; None: all.
    """
    wanted = {"pattern": like, "kind": kind, "limit": limit, "most": COUNTED}
    known = set(numbers)
    rest = [number for number in (yield from _by_name(wanted)) if number not in known]
    described = yield from _described([*numbers, *rest], wanted)
    found = yield from _counted(described[:limit], COUNTED)
    return _with_rates(found, memory)


def depth(queue: Queue | int, most: int) -> Steps[BoundedCount]:
    """Count the messages of a queue, or of a subscription by its number, without those that are delayed, to a limit.

    Raises:
        InvalidDestinationException: There is no such queue or subscription.
        JMSSecurityException: The role may not browse it.
    """
    queue_id, _ = yield from looks.located(queue)
    yield from require_access(queue_id, "browse")
    counted = yield from looks.read_only(_depth.bind(queue_id=queue_id, most=most + 1))
    return BoundedCount.of(counted, most)


notable = _notable.bind()
"""Facts that a console shows beside the messages."""


def unattended(letters: Sequence[int]) -> Steps[list[int]]:
    """Return the queues with messages and without a consumer, but for some, and for those that are paused."""
    return looks.read_only(_without_consumers(letters))


def _without_consumers(letters: Sequence[int]) -> Steps[list[int]]:
    found: list[int] = []
    after, looked_at = 0, _UNATTENDED_AT_ONCE
    while looked_at == _UNATTENDED_AT_ONCE:
        last, looked_at = yield from _last_of_window.bind(after=after, window=_UNATTENDED_AT_ONCE)
        if looked_at:
            found += yield from _unattended.bind(after=after, last=last, letters=list(letters))
        after = last
    return found


def dead_letters(most: int | None) -> Steps[list[DeadLetterQueue]]:
    """Count the dead letters in each queue that is named for them, up to a limit; None: all."""
    if most is None:
        return (yield from _counted_letters(None))
    return (yield from looks.read_only(_counted_letters(most)))


def _counted_letters(most: int | None) -> Steps[list[DeadLetterQueue]]:
    letters = sorted(set((yield from notable).letters))
    limit, at_once = (None, len(letters) or 1) if most is None else (most + 1, max(1, _MOST_ROWS // (most + 3)))
    found = []
    for start in range(0, len(letters), at_once):
        part = yield from _dead_letters.bind(queue_ids=letters[start : start + at_once], most=limit)
        found += [DeadLetterQueue(name, BoundedCount.of(number, most), newest) for name, number, newest in part]
    return found
