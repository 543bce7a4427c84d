"""Polls the store for all pages of a console, and only while a visitor uses one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from jmsql.admin import Administration, BoundedCount, DestinationOverview
from jmsql.concurrency.threads import start_thread
from jmsql.console.database import Database
from jmsql.console.problems import explain
from jmsql.console.rates import Past, Rate
from jmsql.doctor import Finding, Health, Thresholds, examine_quickly, judge_paused, judge_unattended
from jmsql.exceptions import JMSException
from jmsql.logs import contained_logger
from jmsql.store.administration import looks, overview
from jmsql.store.administration.diagnosis import PausedDestination, WaitingQueue
from jmsql.store.administration.incidents import DeadLetters, Incident, incidents
from jmsql.store.administration.lists import Origin, Totals, totals
from jmsql.store.administration.looks import DestinationLook
from jmsql.store.statement import Steps
from jmsql.values.clock import monotonic

T = TypeVar("T")

logger = contained_logger("jmsql.console")

INTERVAL = 2.0
"""Seconds between two looks."""
PATIENCE = 10.0
"""Seconds after the last page was asked for, in which looks go on."""
_REST = 4.0
"""How many times as long as a look took, the store is left alone after it."""
_EXAMINATION = 15.0
"""Seconds between two examinations by the doctor."""
_FIRST_LOOK = 5.0
"""Seconds that a page waits for the first look."""
SHOWN = 50
_TRACKED = 100
"""How many destinations a look includes: of those that are not shown, the rates are kept for their pages."""
_MOST = 300
_RECENT = 12.0
"""Seconds over which the rates of all destinations are taken: clients record their counts once a second."""
_MOST_LOOKS = 10
_LETTER_QUEUES = 10
_NAMED = 10
"""How many queues without a consumer are counted for a finding, which names fewer."""
_FEW_DESTINATIONS = 5000
"""Up to so many destinations, each look finds the queues without a consumer; else each examination does."""
_MOST_CACHED = 500
_ORDER = {Health.problem: 0, Health.note: 1, Health.ok: 2}


class Further(NamedTuple):
    """The dead letters that are not shown."""

    groups: int
    messages: int
    queues: int
    """The number of queues whose dead letters were not looked at."""


class Figures(NamedTuple):
    """The store as a whole: messages a second, the connections that receive, and the paused destinations."""

    incoming: float
    outgoing: float
    failed: float
    receiving: int
    paused: int


@dataclass(frozen=True)
class Snapshot:
    """The results of a poll.

    `attention` are the destinations with the oldest messages, `origins` counts the dead letters by where they come
    from. `error` is why there was no look since `taken_at`, which is in seconds since the epoch.
    """

    taken_at: float = 0.0
    destinations: int = 0
    attention: list[DestinationOverview] = field(default_factory=list)
    past: dict[int, list[Rate]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    dead_letters: list[DeadLetters] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    administers: bool = False
    further: Further = field(default_factory=lambda: Further(0, 0, 0))
    paused: list[DestinationLook] = field(default_factory=list)
    letter_queues: list[DestinationLook] = field(default_factory=list)
    origins: dict[Origin, BoundedCount] = field(default_factory=dict)
    unattended: list[int] = field(default_factory=list)
    figures: Figures = field(default_factory=lambda: Figures(0.0, 0.0, 0.0, 0, 0))
    error: str | None = None


class Poller:
    """Looks at the store in a thread that ends by itself."""

    def __init__(
        self, database: Database, *, hidden: bool, interval: float = INTERVAL, patience: float = PATIENCE
    ) -> None:
        self._database = database
        self._hidden = hidden
        self._interval = interval
        self._patience = patience
        # Held for the fields down to `_watched`, which pages use, too; only the thread writes `_snapshot`, `_looks` and
        # `_begun`. Those after them are the thread's own, but for `_cache`, which has locks of its own.
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._asked_at = 0.0
        self._is_closed = False
        self._snapshot = Snapshot()
        self._looks = 0
        self._begun = 0
        self._needed = 0
        """The number of the first look that sees the effect of the last action."""
        self._past = Past()
        self._watched: dict[int, float] = {}
        self._totals: list[tuple[float, Totals]] = []
        self._memory_of_watched = overview.Memory()
        self._administration: Administration | None = None
        self._findings: list[Finding] = []
        self._unattended: list[int] = []
        self._examined_at = 0.0
        self._cache = _Cache()

    def snapshot(self) -> Snapshot:
        """Return the results of the last poll, and keep polling for a while."""
        with self._changed:
            self._touch()
            is_stale = self._database.now() - self._snapshot.taken_at > self._patience
            if is_stale and self._snapshot.error is None:
                self._needed = max(self._needed, self._looks + 1)
                self._changed.notify_all()  # ends the rest after a look that took long
            if self._looks < self._needed and self._snapshot.error is None:
                self._changed.wait_for(lambda: self._looks >= self._needed or self._is_closed, timeout=_FIRST_LOOK)
            return self._snapshot

    def forget(self) -> None:
        """Drop recent results, which an action has outdated, and poll at once."""
        self._cache.clear()
        with self._changed:
            # A look that has begun may have read before the action: it does not count.
            self._needed = self._begun + 1
            self._changed.notify_all()

    def touch(self) -> None:
        """Have looks go on for a while."""
        with self._changed:
            self._touch()

    def shared(self, key: Hashable, look: Callable[[], T]) -> T:
        """Return the result of a query, or a recent result for another visitor."""
        return self._cache.get(key, self._interval * 0.9, look)

    def rates(self, number: int) -> tuple[Rate, list[Rate]]:
        """Return the rates of a destination, now and in the last quarter of an hour, and have looks include it."""
        with self._changed:
            self._watched[number] = monotonic()
            return self._past.rate(number), self._past.rates(number, self._database.now())

    def _touch(self) -> None:
        self._asked_at = monotonic()
        if self._thread is None and not self._is_closed:
            thread = threading.Thread(target=self._run, name="jmsql console", daemon=True)
            start_thread(thread)  # it may raise; the next page tries again
            self._thread = thread

    def close(self) -> None:
        """End the looks."""
        with self._changed:
            self._is_closed = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            started = monotonic()
            with self._changed:
                self._begun += 1
            snapshot = self._attempt()
            with self._changed:
                self._snapshot = snapshot
                self._looks += 1
                self._changed.notify_all()
                pause = max(self._interval, _REST * (monotonic() - started))
                self._changed.wait_for(lambda: self._is_closed or self._needed > self._begun, timeout=pause)
                if not self._is_over():
                    continue
            self._disconnect()
            self._database.close_idle()
            self._cache.clear()
            with self._changed:
                if self._is_over():  # else a page was asked for meanwhile
                    self._thread = None
                    return

    def _is_over(self) -> bool:
        return self._is_closed or monotonic() - self._asked_at > self._patience

    def _disconnect(self) -> None:
        if self._administration is not None:
            self._administration.close()
            self._administration = None
        # The next rates would be means of all the time in between, as if that was one interval.
        self._memory_of_watched = overview.Memory()

    def _attempt(self) -> Snapshot:
        try:
            return self._look()
        except JMSException as error:
            self._disconnect()
            logger.info("The console cannot look at the store: %s", error)
            return replace(self._snapshot, error=explain(self._database, error).text)
        except Exception:  # a page must say so, and the next look may succeed
            logger.exception("The console's look at the store has failed")
            return replace(self._snapshot, error="The look has failed; the console's log says why.")

    def _look(self) -> Snapshot:
        if self._administration is None:
            self._administration = Administration(self._database.factory)
        notable, paused, letters, totals, rights = self._database.read(_surroundings())
        full = {each.queue_id for each in letters if each.has_messages}
        found = self._administration.overview(min(_TRACKED + len(full), _MOST))
        waiting = [each for each in found if each.number not in full and each.messages is not None]
        attention = [each for each in waiting if each.messages and each.messages.number][:SHOWN]
        watched = self._watched_besides({each.number for each in found})
        now = self._database.now()
        with self._changed:
            self._past.see(now, [*found, *watched])
            past = {each.number: self._past.rates(each.number, now) for each in attention}
        with_letters = [each for each in letters if each.queue_id in full and each.browsable]
        dead = self._dead_letters(with_letters[:_LETTER_QUEUES])
        shown = _most_telling(dead)
        further = Further(
            len(dead) - len(shown),
            sum(each.group.messages for each in dead) - sum(each.group.messages for each in shown),
            len(with_letters[_LETTER_QUEUES:]),
        )
        if monotonic() - self._examined_at > _EXAMINATION:
            self._findings = self._examine()
            self._examined_at = monotonic()
            self._unattended = self._database.read(overview.unattended(notable.letters))
        elif notable.destinations <= _FEW_DESTINATIONS:
            self._unattended = self._database.read(overview.unattended(notable.letters))
        known = {each.number: each for each in [*found, *watched]}
        judged = [
            *judge_paused(self._paused(paused, known), max(len(paused), notable.all_paused)),
            *judge_unattended(self._waiting(attention, known), len(self._unattended)),
        ]
        findings = sorted(
            [*self._findings, *(each for each in judged if each.health is not Health.ok)],
            key=lambda each: _ORDER[each.health],
        )
        return Snapshot(
            taken_at=now,
            destinations=notable.destinations,
            attention=attention,
            past=past,
            findings=findings,
            dead_letters=shown,
            incidents=incidents(dead),
            administers=rights.administers,
            further=further,
            paused=paused,
            letter_queues=[each for each in letters if each.queue_id in full],
            origins=_by_origin(dead),
            unattended=self._unattended,
            figures=self._figures(now, totals, notable.all_paused),
        )

    def _figures(self, now: float, seen: Totals, paused: int) -> Figures:
        """Return the rates of all destinations, over the looks of the last ten seconds."""
        self._totals = [(then, before) for then, before in self._totals if then > now - _RECENT][-_MOST_LOOKS:]
        self._totals.append((now, seen))
        then, before = self._totals[0]
        seconds = now - then
        sent, acknowledged, rolled_back, _ = (
            max(0, last - first) / seconds if seconds else 0.0 for last, first in zip(seen, before, strict=True)
        )
        return Figures(sent, acknowledged, rolled_back, seen.receiving, paused)

    def _paused(self, paused: list[DestinationLook], known: dict[int, DestinationOverview]) -> list[PausedDestination]:
        queues = [each.queue_id for each in paused if each.topic_id is None]
        counted = known | self._counted([number for number in queues if number not in known])
        return [
            PausedDestination("queue", each.name or "", _number(counted.get(each.queue_id)))
            if each.topic_id is None
            else PausedDestination("topic", f"topic://{each.name}", 0)
            for each in paused
        ]

    def _waiting(
        self, attention: list[DestinationOverview], known: dict[int, DestinationOverview]
    ) -> list[WaitingQueue]:
        """Return the first queues without a consumer: those with the oldest messages, if these are among the shown."""
        unattended = set(self._unattended)
        numbers = [each.number for each in attention if each.number in unattended]
        numbers += [number for number in self._unattended if number not in set(numbers)]
        counted = known | self._counted([number for number in numbers[:_NAMED] if number not in known])
        # For how long stands in the table; here, the page would never be the same twice.
        return [
            WaitingQueue(each.destination.name, _number(each), None)
            for each in map(counted.get, numbers[:_NAMED])
            if each is not None
        ]

    def _counted(self, numbers: list[int]) -> dict[int, DestinationOverview]:
        found = self._database.read(overview.of(numbers, overview.Memory())) if numbers else []
        return {each.number: each for each in found}

    def _watched_besides(self, known: set[int]) -> list[DestinationOverview]:
        """Look at the destinations whose pages are open, but for those that were looked at already."""
        with self._changed:
            oldest = monotonic() - self._patience
            self._watched = {number: asked_at for number, asked_at in self._watched.items() if asked_at > oldest}
            numbers = [number for number in self._watched if number not in known][:SHOWN]
        return self._database.read(overview.of(numbers, self._memory_of_watched)) if numbers else []

    def _dead_letters(self, queues: list[DestinationLook]) -> list[DeadLetters]:
        """Return the groups of dead letters, the last that died first."""
        found = []
        for queue in queues:
            groups, has_more = self._database.read(looks.dead_letters(queue.queue_id, hidden=self._hidden))
            found += [DeadLetters(queue, group, has_more) for group in groups]
        return sorted(found, key=_died_at, reverse=True)

    def _examine(self) -> list[Finding]:
        with self._database.runner() as runner:
            return list(examine_quickly(runner, Thresholds(), hides_statements=self._hidden))


class _Surroundings(NamedTuple):
    notable: overview.Notable
    paused: list[DestinationLook]
    letters: list[DestinationLook]
    totals: Totals
    rights: looks.Rights


def _surroundings() -> Steps[_Surroundings]:
    """Look at paused destinations, and at the queues of dead and expired messages."""
    notable = yield from overview.notable
    paused = yield from looks.destinations(notable.paused)
    letters = yield from looks.destinations(sorted(set(notable.letters)))
    named = [each for each in paused if each.name is not None and not each.is_subscription]
    return _Surroundings(notable, named, letters, (yield from totals), (yield from looks.rights))


def _by_origin(letters: list[DeadLetters]) -> dict[Origin, BoundedCount]:
    """Return how many dead letters come from each queue and subscription."""
    found: dict[Origin, BoundedCount] = {}
    for _, group, has_more in letters:
        if group.origin is not None:
            origin = Origin(group.origin, group.subscription, group.client_id)
            known = found.get(origin, BoundedCount(0))
            found[origin] = BoundedCount(known.number + group.messages, known.has_more or has_more)
    return found


def _died_at(letters: DeadLetters) -> float:
    moment = letters.group.last_died_at
    return 0.0 if moment is None else moment.timestamp()


def _most_telling(found: list[DeadLetters]) -> list[DeadLetters]:
    """Return as many groups as a page shows: of too many, the largest ones for one half, and the newest ones."""
    if len(found) <= SHOWN:
        return found
    largest = sorted(range(len(found)), key=lambda place: -found[place].group.messages)[: SHOWN // 2]
    newest = (place for place in range(len(found)) if place not in set(largest))
    return [found[place] for place in sorted([*largest, *islice(newest, SHOWN - len(largest))])]


def _number(each: DestinationOverview | None) -> int:
    return 0 if each is None or each.messages is None else each.messages.number


class _Cached(NamedTuple):
    value: Any
    valid_until: float


class _Cache:
    """Recent results of queries; of several concurrent requests, one queries."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[Hashable, threading.Lock] = {}
        self._cached: dict[Hashable, _Cached] = {}
        self._clearings = 0

    def get(self, key: Hashable, seconds: float, look: Callable[[], T]) -> T:
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            cached = self._cached.get(key)
            if cached is not None and monotonic() < cached.valid_until:
                known: T = cached.value
                return known
            clearings = self._clearings
            value = look()
            now = monotonic()
            with self._lock:
                if self._clearings == clearings:  # else the query may have read before an action
                    self._cached[key] = _Cached(value, now + seconds)
                if len(self._cached) > _MOST_CACHED:
                    self._forget(now)
            return value

    def _forget(self, now: float) -> None:
        for old in [key for key, cached in self._cached.items() if cached.valid_until <= now]:
            del self._cached[old]
            self._locks.pop(old, None)

    def clear(self) -> None:
        with self._lock:
            self._cached.clear()
            self._locks.clear()
            self._clearings += 1
