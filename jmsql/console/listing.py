"""Pages that list all destinations, and lead from a dead letter to the one that it comes from."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.exceptions import HTTPException

from jmsql.admin import BoundedCount, DestinationOverview, OverviewOrder
from jmsql.console.access import Level
from jmsql.console.database import Database
from jmsql.console.poller import Poller, Snapshot
from jmsql.console.views import Reply, RouteRow, View
from jmsql.store.administration import lists, overview
from jmsql.store.administration.lists import Lag, Origin
from jmsql.store.statement import Steps
from jmsql.values.postgresql_text import escape_like

_SHOWN = 50
_MOST_SHOWN = 200
_MEMORIES = 16
_KINDS = ("queue", "subscription", "topic")


class Sort(NamedTuple):
    """An order of the table: its column, and the destinations that come first."""

    name: str
    column: str
    first: str


SORTS = (
    Sort("name", "Destination", "queues, then subscriptions, then topics, each by name"),
    Sort("depth", "Messages", "the most messages first"),
    Sort("age", "Oldest", "the oldest messages first"),
    Sort("busy", "In and out", "the most messages in and out first"),
    Sort("consumers", "Consumers", "queues that wait for a consumer, then those with the most consumers"),
    Sort("letters", "Dead letters", "the most dead letters first"),
    Sort("paused", "Paused", "paused ones first"),
)
"""The orders. An overview's orders come first."""
_ORDERS = {each.value for each in OverviewOrder}


class Row(NamedTuple):
    """A destination of the table."""

    each: DestinationOverview
    letters: BoundedCount | None
    lag: Lag | None
    """The subscriptions, of a topic."""
    slowest: DestinationOverview | None
    """The subscription that lags most, of a topic."""


class Wanted(NamedTuple):
    """The part of all destinations that a visitor wants to see."""

    sort: str
    text: str
    kind: str
    limit: int

    def query(self, *, sort: str | None = None, limit: int | None = None) -> str:
        """Return the query of an address that shows it, in another order or with more rows."""
        fields = {"sort": sort or self.sort, "q": self.text, "kind": self.kind}
        shown = self.limit if limit is None else limit
        if shown != _SHOWN:
            fields["limit"] = str(shown)
        return urlencode({name: value for name, value in fields.items() if value})


class ListingPages:
    """Makes the page of all destinations."""

    def __init__(self, database: Database, poller: Poller) -> None:
        self._database = database
        self._poller = poller
        self._memories = _Memories()

    def routes(self) -> Iterator[RouteRow]:
        """Return the pages: address, function, the level that a visitor needs, and True if it is for forms."""
        yield "/destinations", self.destinations, Level.LOOK, False
        yield "/origin", self.origin, Level.LOOK, False

    def destinations(self, view: View) -> Reply:
        """Show the destinations that come first in an order."""
        wanted = _wanted(view)
        snapshot = self._poller.snapshot()
        rows = self._poller.shared(("destinations", wanted), lambda: self._rows(wanted, snapshot))
        values: dict[str, Any] = {
            "wanted": wanted,
            "rows": rows,
            "sorts": SORTS,
            "kinds": _KINDS,
            "order": next(each for each in SORTS if each.name == wanted.sort),
            "most": _MOST_SHOWN,
            "more": min(wanted.limit * 2, _MOST_SHOWN) if len(rows) >= wanted.limit < _MOST_SHOWN else None,
            "snapshot": snapshot,
            "title": "Destinations",
        }
        return Reply("destinations.html", values, is_fragment=view.is_fragment)

    def _rows(self, wanted: Wanted, snapshot: Snapshot) -> list[Row]:
        memory = self._memories.of(wanted)
        like = f"%{escape_like(wanted.text)}%" if wanted.text else None
        kind = wanted.kind or None
        if wanted.sort in _ORDERS:
            order = OverviewOrder(wanted.sort)
            with self._database.runner() as runner:
                found = runner.run(overview.overview(wanted.limit, order, memory, like=like, kind=kind))
        else:
            found = self._database.read(self._ranked(wanted, snapshot, memory, like, kind))
        lags, slowest = self._database.read(_lags([-each.number for each in found if each.kind == "topic"]))
        rows = []
        for each in found:
            lag = lags.get(-each.number)
            behind = None if lag is None or lag.slowest is None else slowest.get(lag.slowest)
            rows.append(Row(each, snapshot.origins.get(_origin(each)), lag, behind))
        return rows

    def _ranked(
        self, wanted: Wanted, snapshot: Snapshot, memory: overview.Memory, like: str | None, kind: str | None
    ) -> Steps[list[DestinationOverview]]:
        """Return destinations in an order that no overview has."""
        if wanted.sort == "letters":
            numbers = yield from lists.numbers_of(list(snapshot.origins))
            ranked = sorted(numbers, key=lambda origin: (-snapshot.origins[origin].number, numbers[origin]))
            first = [numbers[origin] for origin in ranked]
        elif wanted.sort == "paused":
            first = [
                each.queue_id if each.topic_id is None or each.is_subscription else -each.topic_id
                for each in snapshot.paused
            ]
        else:
            first = list(snapshot.unattended)
            first += [each for each in (yield from lists.most_consumers(wanted.limit)) if each not in set(first)]
        return (yield from overview.listed(first, memory, limit=wanted.limit, like=like, kind=kind))

    def origin(self, view: View) -> Reply:
        """Go to the destination that a dead letter comes from, or to its history."""
        client_id = view.query.get("client_id") or None
        origin = Origin(view.query.get("destination"), view.query.get("subscription") or None, client_id)
        numbers = self._database.read(lists.numbers_of([origin]))
        message = view.query.get("history")
        if origin in numbers:
            address = f"/destinations/{numbers[origin]}"
        else:
            topic = self._database.read(lists.topic_number(origin))
            if topic is None:
                raise HTTPException(404)
            address = f"/topics/{topic}"
        return Reply(redirect=f"{address}/history?{urlencode({'message': message})}" if message else address)


def _wanted(view: View) -> Wanted:
    sort, kind, limit = view.query.get("sort") or "depth", view.query.get("kind"), view.query.get("limit")
    if sort not in {each.name for each in SORTS}:
        names = ", ".join(each.name for each in SORTS)
        raise HTTPException(400, f"There is no such order. There are {names}.")
    if kind and kind not in _KINDS:
        raise HTTPException(400, f"There is no such kind. There are {', '.join(_KINDS)}.")
    shown = int(limit) if limit.isascii() and limit.isdecimal() and len(limit) < 4 else _SHOWN
    return Wanted(sort, view.query.get("q"), kind, max(1, min(shown, _MOST_SHOWN)))


def _lags(topics: list[int]) -> Steps[tuple[dict[int, Lag], dict[int, DestinationOverview]]]:
    """Return the subscriptions of topics, and those that lag most, by number."""
    if not topics:
        return {}, {}
    found = yield from lists.lagging(topics)
    slowest = [each.slowest for each in found if each.slowest is not None]
    described = yield from overview.of(slowest, overview.Memory())
    return {each.topic_id: each for each in found}, {each.number: each for each in described}


def _origin(each: DestinationOverview) -> Origin:
    return Origin(each.destination.uri, each.subscription, each.client_id)


class _Memories:
    """Earlier figures of the lists that were shown last, from which their rates follow."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[tuple[str, str, str], overview.Memory] = OrderedDict()

    def of(self, wanted: Wanted) -> overview.Memory:
        key = wanted[:3]
        with self._lock:
            memory = self._kept.pop(key, None) or overview.Memory()
            self._kept[key] = memory
            while len(self._kept) > _MEMORIES:
                self._kept.popitem(last=False)
        return memory
