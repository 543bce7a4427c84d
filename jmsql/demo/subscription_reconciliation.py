"""The proof for the subscriptions: what each has received, held against the rows that its selector chooses, by SQL."""

from __future__ import annotations

from typing import NamedTuple

import sqlalchemy
from sqlalchemy import Connection, Engine

from jmsql.demo.database import DemoDatabase
from jmsql.demo.routing import SUBSCRIPTIONS, Subscription
from jmsql.demo.tables import flight, received

__all__ = ["Reception", "count_chosen", "reconcile_subscriptions"]


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
        """Whether it has received what it should, once each, and nothing is left."""
        return not (self.missing or self.unexpected or self.received_twice or self.left)


def count_chosen(engine: Engine) -> dict[Subscription, int]:
    """Return how many of the flights that are stored each subscription should receive."""
    with engine.connect() as connection:
        return {each: len(connection.execute(sqlalchemy.text(_chosen(each))).all()) for each in SUBSCRIPTIONS}


def reconcile_subscriptions(engine: Engine, database: DemoDatabase) -> list[Reception]:
    """Compare what each subscription has received with the flights that are stored.

    Args:
        engine: Where the tables are.
        database: Where the subscriptions are.
    """
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
        select count(c.flight_id), coalesce(sum(g.times), 0)::bigint,
               coalesce(array_agg(c.flight_id order by c.flight_id) filter (where g.flight_id is null), '{{}}'),
               coalesce(array_agg(g.flight_id order by g.flight_id) filter (where c.flight_id is null), '{{}}'),
               coalesce(array_agg(g.flight_id order by g.flight_id) filter (where g.times > 1), '{{}}')
        from chosen c full join got g using (flight_id)"""
    )
    by_worker = sqlalchemy.text(
        f"select worker, count(*) from {received} where subscription = :title group by worker order by worker"
    )
    title = {"title": subscription.title}
    chosen, got, missing, unexpected, twice = connection.execute(compared, title).one()
    workers = {str(worker): int(count) for worker, count in connection.execute(by_worker, title)}
    return Reception(subscription.title, subscription.selector, chosen, got, missing, unexpected, twice, left, workers)
