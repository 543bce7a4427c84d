"""Metrics for Prometheus (the extra ``metrics``): of this process's clients, and of a store."""

from __future__ import annotations

try:
    from prometheus_client import REGISTRY, CollectorRegistry
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f'{error.name} is missing: pip install "jmsql[metrics]".', name=error.name) from error

from jmsql.client.process_counters import ProcessCounters
from jmsql.metrics.client_collector import ClientCollector
from jmsql.metrics.store_collector import StoreCollector

__all__ = ["ClientCollector", "ProcessCounters", "StoreCollector", "register"]


def register(registry: CollectorRegistry = REGISTRY) -> ClientCollector:
    """Count the messages that this process's connections send and receive from now on, and show them in a registry.

    Args:
        registry: Where; the global registry of `prometheus_client`, if nothing is given.

    Returns:
        The collector. Its `close` ends the counting; unregister it, too.
    """
    collector = ClientCollector(ProcessCounters())
    registry.register(collector)
    return collector
