"""Metrics of a store, by SQL, independent of its clients."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from jmsql.client._sync.link.opening import open_runner
from jmsql.exceptions import JMSException
from jmsql.logs import contained_logger
from jmsql.public_names import set_module
from jmsql.store.administration import measurement, overview
from jmsql.store.administration.measurement import LONGEST_LOOK, STATES, StoreMeasurement, TableMeasurement
from jmsql.store.administration.overview import (
    BoundedCount,
    DeadLetterQueue,
    DestinationOverview,
    Memory,
    OverviewOrder,
)
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.values.clock import monotonic

logger = contained_logger("jmsql.metrics")

_REST = 4.0
"""How many times as long as a look took, the store is left alone after it."""

_SUMS = (
    *("consumers", "sent", "acknowledged", "rolled_back", "redeliveries"),
    *("time_in_queue", "calls", "handling_time"),
)
_DESTINATION = ["kind", "destination", "subscription", "client_id"]


@set_module("jmsql.metrics")
class StoreCollector(Collector):
    """Looks at a store whenever it is asked, but for a while after a look that took long.

    Where the database cannot be reached, ``jmsql_database_up`` is 0 and stands alone. It keeps one connection, and
    makes another one when that is lost.

    Args:
        url: Where the database is.
        schema: The name of the schema.
        count_limit: Number up to which a destination's messages and deliveries are counted. None counts all, which
            reads them.
        max_destinations: Maximum number of destinations, those with the oldest messages if there are more. A scrape
            looks for these among the next 2,800 or more queues and subscriptions, the first one among all.
    """

    def __init__(
        self, url: str, schema: str = "jmsql", *, count_limit: int | None = 1000, max_destinations: int = 500
    ) -> None:
        self._url = url
        self._schema = schema
        self._count_limit = count_limit
        self._max_destinations = max_destinations
        self._memory = Memory()
        self._lock = threading.Lock()
        self._runner: PsycopgRunner | None = None
        self._metrics: list[Metric] = []
        self._valid_until = 0.0

    def collect(self) -> Iterator[Metric]:
        """Return the metrics."""
        with self._lock:
            started = monotonic()
            if started >= self._valid_until:
                self._metrics = self._look()
                finished = monotonic()
                self._valid_until = finished + _REST * (finished - started)
            return iter(self._metrics)

    def require(self) -> None:
        """Make sure that the store can be measured.

        Raises:
            JMSException: The database cannot be reached, or has no schema of this version.
        """
        with self._lock:
            if self._runner is None:
                self._runner = open_runner(self._url, self._schema, statement_timeout=LONGEST_LOOK)

    def describe(self) -> Sequence[Metric]:
        """Return nothing, so that registering does not look at the store."""
        return ()

    def close(self) -> None:
        """End the connection."""
        with self._lock:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def _look(self) -> list[Metric]:
        is_up = "jmsql_database_up", "Whether the database answers, and has the schema."
        started = time.perf_counter()
        try:
            if self._runner is not None and self._runner.was_ended:  # as the server, or a pooler, ends idle ones
                self._disconnect()
            if self._runner is None:
                self._runner = open_runner(self._url, self._schema, statement_timeout=LONGEST_LOOK)
            store = self._runner.run(overview.store())
            metrics = [
                *self._of_destinations(self._runner, store.server_time),
                *_of_dead_letters(self._runner.run(overview.dead_letters(self._count_limit))),
                *_of_store(store),
                *_of_tables(self._runner.run(measurement.tables)),
            ]
        except JMSException as error:
            logger.warning("The store cannot be measured: %s", error)
            self._disconnect()
            return [_gauge(*is_up, 0)]
        took = "jmsql_measurement_duration_seconds", "How long it took to measure all this."
        return [_gauge(*is_up, 1), _gauge(*took, time.perf_counter() - started), *metrics]

    def _of_destinations(self, runner: PsycopgRunner, now: float) -> Iterator[Metric]:
        limit = self._max_destinations if self._count_limit is not None else 2**31
        found = runner.run(overview.overview(limit + 1, OverviewOrder.age, self._memory, count_limit=self._count_limit))
        yield _gauge(
            "jmsql_count_limit",
            "How far the messages of a destination are counted: one that has more is shown with so many. 0: all are.",
            self._count_limit or 0,
        )
        yield _gauge(
            "jmsql_destinations_complete",
            "Whether there are metrics of all destinations, and not only of those with the oldest messages.",
            len(found) <= limit,
        )
        yield from _of_destinations(found[:limit], now)


def _of_destinations(measured: Sequence[DestinationOverview], now: float) -> Iterator[Metric]:
    messages = GaugeMetricFamily(
        "jmsql_messages",
        "Messages in a queue or subscription, by state, counted up to jmsql_count_limit: ready, claimed (held by a "
        "client), waiting (for their next attempt), delayed (until their delivery time), expired.",
        labels=[*_DESTINATION, "state"],
    )
    redelivered = GaugeMetricFamily(
        "jmsql_messages_redelivered", "Messages that were delivered before and are still there.", labels=_DESTINATION
    )
    age = GaugeMetricFamily(
        "jmsql_oldest_message_age_seconds",
        "How long the oldest message has been ready for delivery; 0 if there is none.",
        labels=_DESTINATION,
    )
    claim_age = GaugeMetricFamily(
        "jmsql_oldest_claim_age_seconds",
        "How long a client has held the message that is held longest; 0 if none is held.",
        labels=_DESTINATION,
    )
    consumers = GaugeMetricFamily("jmsql_consumers", "Consumers that are open.", labels=_DESTINATION)
    sent = CounterMetricFamily(
        "jmsql_messages_sent",
        "Messages that clients have sent to a queue or published on a topic.",
        labels=_DESTINATION,
    )
    deliveries = CounterMetricFamily(
        "jmsql_deliveries",
        "Deliveries that have ended: acknowledged (or committed), or rolled_back.",
        labels=[*_DESTINATION, "outcome"],
    )
    redeliveries = CounterMetricFamily(
        "jmsql_redeliveries", "Those of the deliveries that were not the first of their message.", labels=_DESTINATION
    )
    time_in_queue = SummaryMetricFamily(
        "jmsql_time_in_queue_seconds",
        "How long the acknowledged messages were in a queue or subscription, from their sending or delivery time on.",
        labels=_DESTINATION,
    )
    handling_time = SummaryMetricFamily(
        "jmsql_handling_time_seconds",
        "How long the calls of workers' handlers took, with their commits, whatever their outcome.",
        labels=_DESTINATION,
    )
    for each in _by_labels(measured):
        labels = [each.kind, each.destination.name, each.subscription or "", each.client_id or ""]
        sent.add_metric(labels, each.sent)
        if each.kind == "topic":
            continue
        if each.redelivered is not None:  # else the role may not know
            for state in STATES:
                messages.add_metric([*labels, state], getattr(each, state).number)
            redelivered.add_metric(labels, each.redelivered.number)
            age.add_metric(labels, _seconds_since(each.oldest, now))
            claim_age.add_metric(labels, _seconds_since(each.oldest_claim, now))
        consumers.add_metric(labels, each.consumers)
        deliveries.add_metric([*labels, "acknowledged"], each.acknowledged)
        deliveries.add_metric([*labels, "rolled_back"], each.rolled_back)
        redeliveries.add_metric(labels, each.redeliveries)
        time_in_queue.add_metric(labels, each.acknowledged, each.time_in_queue)
        handling_time.add_metric(labels, each.calls, each.handling_time)
    yield from (messages, redelivered, age, claim_age, consumers, sent)
    yield from (deliveries, redeliveries, time_in_queue, handling_time)


def _by_labels(measured: Sequence[DestinationOverview]) -> Iterable[DestinationOverview]:
    """Return the destinations, those that have the same labels as one: a topic's subscriptions without a name.

    A series that stands twice in a scrape is refused by Prometheus.
    """
    found: dict[tuple[str, str, str | None, str | None], DestinationOverview] = {}
    for each in measured:
        labels = each.kind, each.destination.name, each.subscription, each.client_id
        found[labels] = _sum(found[labels], each) if labels in found else each
    return found.values()


def _sum(first: DestinationOverview, second: DestinationOverview) -> DestinationOverview:
    changes: dict[str, Any] = {name: getattr(first, name) + getattr(second, name) for name in _SUMS}
    for name in (*STATES, "redelivered"):
        changes[name] = _sum_of_counts(getattr(first, name), getattr(second, name))
    for name in ("oldest", "oldest_claim"):
        changes[name] = _earlier(getattr(first, name), getattr(second, name))
    return first._replace(**changes)


def _sum_of_counts(first: BoundedCount | None, second: BoundedCount | None) -> BoundedCount | None:
    if first is None or second is None:
        return None
    return BoundedCount(first.number + second.number, first.has_more or second.has_more)


def _earlier(first: datetime | None, second: datetime | None) -> datetime | None:
    return min((each for each in (first, second) if each is not None), default=None)


def _seconds_since(moment: datetime | None, now: float) -> float:
    return 0.0 if moment is None else max(0.0, now - moment.timestamp())


def _of_dead_letters(measured: Sequence[DeadLetterQueue]) -> Iterator[Metric]:
    letters = GaugeMetricFamily(
        "jmsql_dead_letters",
        "Messages whose delivery failed, by the queue that they are in, counted up to jmsql_count_limit.",
        labels=["destination"],
    )
    newest = GaugeMetricFamily(
        "jmsql_newest_dead_letter_age_seconds",
        "How long ago the newest of them came; absent if there is none.",
        labels=["destination"],
    )
    for each in measured:
        letters.add_metric([each.name], each.letters.number)
        if each.newest_seconds is not None:
            newest.add_metric([each.name], each.newest_seconds)
    yield from (letters, newest)


def _of_store(measured: StoreMeasurement) -> Iterator[Metric]:
    clients = GaugeMetricFamily(
        "jmsql_clients", "Connections of clients: connected, or lost without being closed.", labels=["state"]
    )
    clients.add_metric(["connected"], measured.connected_clients)
    clients.add_metric(["gone"], measured.gone_clients)
    yield clients
    yield _gauge(
        *("jmsql_holding_transactions", "Open transactions that have sent or received messages."),
        measured.holding_transactions,
    )
    yield _gauge(
        *("jmsql_longest_holding_transaction_seconds", "How long the oldest of them has been open."),
        measured.longest_transaction_seconds,
    )
    yield _gauge(
        *("jmsql_prepared_transactions", "Transactions that wait for the second phase of their commit."),
        measured.prepared_transactions,
    )
    yield _gauge(
        *("jmsql_longest_prepared_transaction_seconds", "How long the oldest of them has waited."),
        measured.longest_prepared_seconds,
    )
    yield _gauge(
        "jmsql_notification_queue_usage_ratio",
        "The part of the server's queue of notifications that is in use; commits fail at 1.",
        measured.notification_queue_usage,
    )
    yield _gauge(
        "jmsql_overdue_messages",
        "Delayed messages that should have been moved to their queues more than 5 seconds ago.",
        measured.delayed_messages_due,
    )


def _gauge(name: str, documentation: str, value: float) -> Metric:
    gauge = GaugeMetricFamily(name, documentation)
    gauge.add_metric([], value)
    return gauge


def _of_tables(measured: Sequence[TableMeasurement]) -> Iterator[Metric]:
    rows = GaugeMetricFamily(
        "jmsql_table_rows",
        "Rows of the tables, as the statistics estimate them: live or dead.",
        labels=["table", "state"],
    )
    size = GaugeMetricFamily(
        "jmsql_table_size_bytes", "The size of the tables on disk, with their indexes.", labels=["table"]
    )
    for each in measured:
        rows.add_metric([each.table, "live"], each.live_rows)
        rows.add_metric([each.table, "dead"], each.dead_rows)
        size.add_metric([each.table], each.bytes)
    yield from (rows, size)
