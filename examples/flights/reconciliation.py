"""The proof: what the workers did, held against what the backend stored, by SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy
from sqlalchemy import Connection, Engine

from examples.flights.crew import Casualty
from examples.flights.database import DemoDatabase, flight, handled, received
from examples.flights.routing import DELAY_DESK, FLIGHTS, SUBSCRIPTIONS, Subscription


class Reception(NamedTuple):
    """What a subscription should have received, and what it has."""

    subscription: str
    selector: str | None
    chosen: int
    """How many of the stored flights its selector chooses, by SQL."""
    received: int
    missing: list[int]
    unexpected: list[int]
    """Flights that the selector does not choose."""
    received_twice: list[int]
    left: int
    workers: dict[str, int]

    @property
    def is_reconciled(self) -> bool:
        """True if it has received what it should, once each, and nothing is left."""
        return not (self.missing or self.unexpected or self.received_twice or self.left)


def count_chosen(engine: Engine) -> dict[Subscription, int]:
    """Return how many of the flights that are stored each subscription should receive."""
    with engine.connect() as connection:
        return {each: len(connection.execute(sqlalchemy.text(_chosen(each))).all()) for each in SUBSCRIPTIONS}


def reconcile_subscriptions(engine: Engine, database: DemoDatabase) -> list[Reception]:
    """Compare what each subscription has received with the flights that are stored."""
    with database.administration() as administration:
        left = {
            each.subscription: each.ready + each.claimed + each.waiting + each.expired
            for each in administration.subscriptions()
        }
    with engine.connect() as connection:
        return [_reconcile(connection, each, left.get(each.name, 0)) for each in SUBSCRIPTIONS]


def _chosen(subscription: Subscription) -> str:
    """Return the query for the flights of a subscription: its selector is the condition."""
    condition = "" if subscription.selector is None else f" where {subscription.selector}"
    return f"select flight_id from {flight}{condition}"


def _reconcile(connection: Connection, subscription: Subscription, left: int) -> Reception:
    compared = sqlalchemy.text(
        f"""
        with chosen as ({_chosen(subscription)}),
             got as (
                 select flight_id, count(*) as times from {received} where subscription = :title group by flight_id)
        select pg_catalog.count(c.flight_id), coalesce(sum(g.times), 0)::bigint,
               array(select flight_id from chosen except select flight_id from got order by flight_id),
               array(select flight_id from got except select flight_id from chosen order by flight_id),
               array(select flight_id from got where times > 1 order by flight_id)
        from chosen c full join got g using (flight_id)"""
    )
    by_worker = sqlalchemy.text(
        f"select worker, count(*) from {received} where subscription = :title group by worker order by worker"
    )
    title = {"title": subscription.title}
    chosen, got, missing, unexpected, twice = connection.execute(compared, title).one()
    workers = {str(worker): int(count) for worker, count in connection.execute(by_worker, title)}
    return Reception(subscription.title, subscription.selector, chosen, got, missing, unexpected, twice, left, workers)


# What must not be: each query returns the flights for which it is so.
_DISCREPANCIES = {
    "missing": f"""
        select f.flight_id from {flight} f
        where not exists (select from {handled} h where h.flight_id = f.flight_id)""",
    "handled more than once": f"""
        select h.flight_id from {handled} h group by h.flight_id having count(*) > 1""",
    "handled, but never stored": f"""
        select h.flight_id from {handled} h
        where not exists (select from {flight} f where f.flight_id = h.flight_id)""",
    "handled with another delay": f"""
        select f.flight_id from {flight} f join {handled} h using (flight_id)
        where h.departure_delay is distinct from f.departure_delay""",
    "handled by the wrong worker": f"""
        select f.flight_id from {flight} f join {handled} h using (flight_id)
        where (h.worker = :desk) is distinct from coalesce(f.carrier = 'UA' and f.departure_delay > 60, false)""",
}

# What a worker held when it was killed, others have handled.
_NOT_HANDED_ON = {
    table.name: f"select flight_id from {table} where worker = :killed and flight_id = any(:held)"
    for table in (handled, received)
}

_CARRIERS = f"""
    select f.carrier, pg_catalog.count(distinct f.flight_id) as flights, pg_catalog.count(h.flight_id) as handled,
           count(*) filter (where h.delivery_count > 1) as redelivered,
           count(*) filter (where h.worker = :desk) as at_the_delay_desk,
           avg(f.departure_delay)::float8 as mean_delay
    from {flight} f left join {handled} h using (flight_id)
    group by f.carrier order by flights desc, f.carrier"""

_WORKERS = f"select h.worker, count(*) from {handled} h group by h.worker order by h.worker"

_DURATION = f"""
    select extract(epoch from max(f.stored_at) - min(f.stored_at))::float8,
           extract(epoch from (select max(handled_at) from {handled}) - min(f.stored_at))::float8
    from {flight} f"""

_WHEN_KILLED = f"select extract(epoch from :killed_at - (select min(stored_at) from {flight}))::float8"

_PROGRESS = f"""
    select floor(extract(epoch from at - (select min(stored_at) from {flight}))::float8
                 / cast(:width as float8))::integer as step,
           sum(stored), sum(handled)
    from (select stored_at as at, 1 as stored, 0 as handled from {flight}
          union all select handled_at, 0, 1 from {handled}) as event
    where at is not null group by step order by step"""

_MOST_STEPS = 40
_SHORTEST_STEP = 0.25


class Discrepancy(NamedTuple):
    """Something that must not be, and the flights for which it is so."""

    what: str
    flight_ids: list[int]


class Carrier(NamedTuple):
    """The flights of an airline."""

    carrier: str
    flights: int
    handled: int
    redelivered: int
    at_the_delay_desk: int
    mean_delay: float | None


class Step(NamedTuple):
    """What was stored and handled within a fraction of the demo's time, which begins `at` seconds."""

    at: float
    stored_per_second: float
    handled_per_second: float


class Outcome(NamedTuple):
    """The result of the demo."""

    flights: int
    handled: int
    redelivered: int
    left_in_queue: int
    sending_seconds: float
    seconds: float
    killed_after: list[float]
    carriers: list[Carrier]
    workers: dict[str, int]
    steps: list[Step]
    discrepancies: list[Discrepancy]
    receptions: list[Reception]

    @property
    def is_reconciled(self) -> bool:
        """True if every flight was handled and received exactly once where it should be, and nothing is left."""
        return (
            not self.discrepancies
            and not self.left_in_queue
            and all(reception.is_reconciled for reception in self.receptions)
        )


def reconcile(engine: Engine, database: DemoDatabase, casualties: Sequence[Casualty]) -> Outcome:
    """Compare what was handled with what was stored."""
    with database.administration() as administration:
        left_in_queue = administration.count(FLIGHTS.name, None)
    with engine.connect() as connection:
        carriers = [Carrier._make(row) for row in _query(connection, _CARRIERS, desk=DELAY_DESK)]
        sending_seconds, seconds = (float(value or 0.0) for value in _query(connection, _DURATION)[0])
        return Outcome(
            sum(carrier.flights for carrier in carriers),
            sum(carrier.handled for carrier in carriers),
            sum(carrier.redelivered for carrier in carriers),
            left_in_queue,
            sending_seconds,
            seconds,
            [_query(connection, _WHEN_KILLED, killed_at=each.killed_at)[0][0] for each in casualties],
            carriers,
            {str(name): int(count) for name, count in _query(connection, _WORKERS)},
            _steps(connection, max(seconds / _MOST_STEPS, _SHORTEST_STEP)),
            _discrepancies(connection, casualties),
            reconcile_subscriptions(engine, database),
        )


def _discrepancies(connection: Connection, casualties: Sequence[Casualty]) -> list[Discrepancy]:
    found = [
        Discrepancy(what, _flights(connection, query, **({"desk": DELAY_DESK} if ":desk" in query else {})))
        for what, query in _DISCREPANCIES.items()
    ]
    for casualty in casualties:
        query = _NOT_HANDED_ON[casualty.table]
        kept = _flights(connection, query, held=casualty.flight_ids, killed=casualty.worker)
        found.append(Discrepancy(f"not taken over from {casualty.worker}, which was killed", kept))
    return [each for each in found if each.flight_ids]


def _flights(connection: Connection, query: str, **values: object) -> list[int]:
    return sorted(row[0] for row in _query(connection, query, **values))


def _steps(connection: Connection, width: float) -> list[Step]:
    return [
        Step(step * width, stored / width, handled / width)
        for step, stored, handled in _query(connection, _PROGRESS, width=width)
    ]


def _query(connection: Connection, query: str, **values: object) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in connection.execute(sqlalchemy.text(query), values)]
