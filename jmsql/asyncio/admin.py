"""Administration, awaited: the names of [`jmsql.admin`][].

    from jmsql.asyncio.admin import Administration

    async with Administration(url) as administration:
        await administration.create_queue("orders")
        async for message, delivery in administration.browse("orders"):
            ...

Iterators that `Administration` and `History` return are read with ``async for``. The values are the same as in
[`jmsql.admin`][]. If a task is cancelled, PostgreSQL interrupts the statement that it waits for: a method that raises
CancelledError has changed nothing, and one that has changed something returns.
"""

from jmsql.client._async.administration.administered_objects import AdministeredObject
from jmsql.client._async.administration.administration import Administration
from jmsql.client._async.administration.history import History
from jmsql.store.administration.activity import Activity
from jmsql.store.administration.batches import BatchSummary
from jmsql.store.administration.cancelling import Cancellation
from jmsql.store.administration.dead_letters import DeadLetter, Retry
from jmsql.store.administration.inspection import (
    BrowsedMessage,
    ClientSummary,
    DeliveryState,
    FoundMessage,
    QueueSummary,
    SubscriptionSummary,
)
from jmsql.store.administration.limits import LimitNow
from jmsql.store.administration.now import ConsumerNow
from jmsql.store.administration.overview import BoundedCount, DestinationOverview, OverviewOrder
from jmsql.store.administration.past_rates import DestinationRate
from jmsql.store.administration.places import Place
from jmsql.store.administration.results import ResultSummary
from jmsql.store.administration.searching import Position, SearchResult
from jmsql.store.destinations.access import AccessSummary
from jmsql.store.destinations.destination_settings import DestinationSettings, DestinationSummary
from jmsql.store.destinations.subscriptions import SubscriptionChange
from jmsql.store.history.partitions import HistoryDay, PruneStep
from jmsql.store.history.past_messages import HistoryEntry, PastMessage
from jmsql.store.schedules.definition import Schedule, ScheduleSummary

__all__ = [
    "AccessSummary",
    "Activity",
    "AdministeredObject",
    "Administration",
    "BatchSummary",
    "BoundedCount",
    "BrowsedMessage",
    "Cancellation",
    "ClientSummary",
    "ConsumerNow",
    "DeadLetter",
    "DeliveryState",
    "DestinationOverview",
    "DestinationRate",
    "DestinationSettings",
    "DestinationSummary",
    "FoundMessage",
    "History",
    "HistoryDay",
    "HistoryEntry",
    "LimitNow",
    "OverviewOrder",
    "PastMessage",
    "Place",
    "Position",
    "PruneStep",
    "QueueSummary",
    "ResultSummary",
    "Retry",
    "Schedule",
    "ScheduleSummary",
    "SearchResult",
    "SubscriptionChange",
    "SubscriptionSummary",
]
