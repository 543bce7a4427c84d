"""Administration: destinations, subscriptions, dead letters, administered objects, access and the history.

A program starts with [`Administration`][jmsql.admin.Administration]; its methods take and return the other names.
"""

from jmsql.client._sync.administration.administered_objects import AdministeredObject
from jmsql.client._sync.administration.administration import Administration
from jmsql.client._sync.administration.history import History
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
