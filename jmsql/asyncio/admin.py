"""Administration, awaited: the names of [`jmsql.admin`][].

    from jmsql.asyncio.admin import Administration

    async with Administration(url) as administration:
        await administration.create_queue("orders")
        async for message, delivery in administration.browse("orders"):
            ...

What `Administration` and `History` return is iterated over with ``async for`` where it is an iterator. The values are
those of [`jmsql.admin`][]. If a task is cancelled, PostgreSQL interrupts the statement that it waits for: a method that
raises CancelledError has changed nothing, and one that has changed something returns.
"""

from jmsql.client._async.administration.administered_objects import AdministeredObject
from jmsql.client._async.administration.administration import Administration
from jmsql.client._async.administration.history import History
from jmsql.store.access import AccessSummary
from jmsql.store.dead_letters import DeadLetter, Retry
from jmsql.store.destination_settings import DestinationSettings, DestinationSummary
from jmsql.store.history_partitions import HistoryDay, PruneStep
from jmsql.store.inspection import (
    BrowsedMessage,
    ClientSummary,
    DeliveryState,
    FoundMessage,
    QueueSummary,
    SubscriptionSummary,
)
from jmsql.store.past_messages import HistoryEntry, PastMessage
from jmsql.store.subscription_change import SubscriptionChange

__all__ = [
    "AccessSummary",
    "AdministeredObject",
    "Administration",
    "BrowsedMessage",
    "ClientSummary",
    "DeadLetter",
    "DeliveryState",
    "DestinationSettings",
    "DestinationSummary",
    "FoundMessage",
    "History",
    "HistoryDay",
    "HistoryEntry",
    "PastMessage",
    "PruneStep",
    "QueueSummary",
    "Retry",
    "SubscriptionChange",
    "SubscriptionSummary",
]
