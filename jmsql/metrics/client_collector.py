"""Metrics of this process's connections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from jmsql.client.process_counters import ProcessCounters
from jmsql.public_names import set_module
from jmsql.store.control.counters import Counts


def client_metrics(counted: Mapping[str, Counts]) -> Iterator[Metric]:
    """Return the metrics of counts by the destinations' URIs."""
    sent = CounterMetricFamily(
        "jmsql_client_messages_sent", "Messages that this process has sent, by destination.", labels=["destination"]
    )
    deliveries = CounterMetricFamily(
        "jmsql_client_deliveries",
        "Deliveries to this process that have ended: acknowledged (or committed), or rolled_back.",
        labels=["destination", "outcome"],
    )
    redeliveries = CounterMetricFamily(
        "jmsql_client_redeliveries",
        "Those of the deliveries that were not the first of their message.",
        labels=["destination"],
    )
    unsent = CounterMetricFamily(
        "jmsql_client_messages_unsent",
        "Sends of this process that have sent nothing: their deduplication id was sent before (duplicate), or a "
        "message with their key waits (coalesced).",
        labels=["destination", "reason"],
    )
    for destination, counts in sorted(counted.items()):
        unsent.add_metric([destination, "duplicate"], counts.duplicates)
        unsent.add_metric([destination, "coalesced"], counts.coalesced)
        sent.add_metric([destination], counts.sent)
        deliveries.add_metric([destination, "acknowledged"], counts.acknowledged)
        deliveries.add_metric([destination, "rolled_back"], counts.rolled_back)
        redeliveries.add_metric([destination], counts.redelivered)
    yield from (sent, unsent, deliveries, redeliveries)


@set_module("jmsql.metrics")
class ClientCollector(Collector):
    """Shows the counters of a process.

    Args:
        counters: The process's counters.
    """

    def __init__(self, counters: ProcessCounters) -> None:
        self._counters = counters

    def collect(self) -> Iterator[Metric]:
        """Return the metrics."""
        return client_metrics(self._counters.counts())

    def close(self) -> None:
        """Count no more."""
        self._counters.close()
