"""What a task of Spark has committed, as it tells the driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from jmsql.destinations import Queue, Topic, parse_destination

__all__ = ["Attempt", "queue_names", "topic_names"]


class Attempt(NamedTuple):
    """What a task has committed.

    Args:
        transaction_id: The number of its transaction.
        messages: How many messages there are, by the URI of where they go.
        delayed: How many of them are delivered later.
    """

    transaction_id: str
    messages: Mapping[str, int]
    delayed: int


def queue_names(destinations: Iterable[str]) -> list[str]:
    """Return the names of the queues among destinations, which are given as URIs."""
    return _names(destinations, Queue)


def topic_names(destinations: Iterable[str]) -> list[str]:
    """Return the names of the topics among destinations, which are given as URIs."""
    return _names(destinations, Topic)


def _names(destinations: Iterable[str], kind: type[Queue | Topic]) -> list[str]:
    parsed = map(parse_destination, sorted(destinations))
    return [destination.name for destination in parsed if isinstance(destination, kind)]
