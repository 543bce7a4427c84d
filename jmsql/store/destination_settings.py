"""Making, changing and deleting queues and topics: a thin cover of the SQL functions that do it."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypedDict

from jmsql.destinations import Destination, Queue, Topic
from jmsql.exceptions import InvalidDestinationException
from jmsql.store.autocommit_connection import AutocommitConnection
from jmsql.store.errors import jms_errors
from jmsql.store.identifier import Schema

__all__ = ["DestinationSettings", "DestinationSummary", "Destinations"]


class DestinationSettings(TypedDict, total=False):
    """What can be set for a queue, or for the subscriptions of a topic. None: what it is by default.

    Attributes:
        paused: Whether it takes messages and delivers none.
        expiry_queue: Where messages go that expire. By default they are gone.
        maximum_deliveries: How often a message is delivered, until it moves to the dead-letter queue. By default it is
            delivered until it is acknowledged.
        redelivery_delay: Seconds (or a `timedelta`) before the first redelivery. By default there is none.
        redelivery_multiplier: What each further delay is multiplied with; 1 by default.
        maximum_redelivery_delay: The longest delay. By default there is none.
        redelivery_jitter: The share, 0 to 1, by which delays vary at random; 0 by default.
        dead_letter_queue: Where messages go that were delivered `maximum_deliveries` times; ``DLQ`` by default.
        claim_time_limit: After how many seconds (or a `timedelta`) a session that is not transacted loses a message
            that it has not acknowledged. By default it holds it for as long as its client lives.
        history: Whether messages go to the history when they leave. By default they are gone.
        history_days: How many whole days they stay there. By default they stay until somebody removes them.
    """

    paused: bool | None
    expiry_queue: Queue | str | None
    maximum_deliveries: int | None
    redelivery_delay: float | timedelta | None
    redelivery_multiplier: float | None
    maximum_redelivery_delay: float | timedelta | None
    redelivery_jitter: float | None
    dead_letter_queue: Queue | str | None
    claim_time_limit: float | timedelta | None
    history: bool | None
    history_days: int | None


class DestinationSummary(NamedTuple):
    """A row of the view ``destinations``."""

    kind: str
    destination: str
    temporary: bool
    settings: dict[str, Any]
    created_at: datetime


class Destinations:
    """Makes, changes and deletes queues and topics.

    Args:
        connection: Where each change commits.
        schema: The name of the schema.
    """

    def __init__(self, connection: AutocommitConnection, schema: str) -> None:
        self._connection = connection
        self._schema = Schema(schema)

    def create(self, destination: Destination, settings: DestinationSettings) -> bool:
        """Make a destination if it is not there, change its settings, and return whether it was made."""
        kind = "topic" if isinstance(destination, Topic) else "queue"
        statement = f"select {self._schema}.create_{kind}(%(name)s, %(settings)s::jsonb)"
        with jms_errors(f"making {destination}"):
            rows = self._connection.rows(statement, name=destination.name, settings=_json(settings))
        return bool(rows[0][0])

    def alter(self, destination: Destination, settings: DestinationSettings) -> None:
        """Change settings of a destination."""
        self._alter(destination, _json(settings))

    def reset(self, destination: Destination, names: Sequence[str]) -> None:
        """Change settings of a destination to what they are by default."""
        self._alter(destination, json.dumps(dict.fromkeys(names)))

    def _alter(self, destination: Destination, settings: str) -> None:
        statement = f"select {self._schema}.alter_destination(%(destination)s, %(settings)s::jsonb)"
        with jms_errors(f"changing {destination}"):
            self._connection.rows(statement, destination=destination.uri, settings=settings)

    def delete(self, destination: Destination, *, force: bool) -> None:
        """Delete a destination, with its messages; also while somebody receives from it, if forced."""
        statement = f"select {self._schema}.delete_destination(%(destination)s, %(force)s)"
        with jms_errors(f"deleting {destination}"):
            self._connection.rows(statement, destination=destination.uri, force=force)

    def summaries(self) -> list[DestinationSummary]:
        """Return all destinations, queues first, by name."""
        with jms_errors("looking at the destinations"):
            return self._summaries("")

    def summary(self, destination: Destination) -> DestinationSummary:
        """Return one destination.

        Raises:
            InvalidDestinationException: It is not there.
        """
        kind = "topic" if isinstance(destination, Topic) else "queue"
        with jms_errors(f"looking at {destination}"):
            found = self._summaries(
                "where kind = %(kind)s and destination = %(name)s", kind=kind, name=destination.name
            )
        if not found:
            raise InvalidDestinationException(
                f"There is no {kind} {destination.name!r}. `jmsql destination list` lists those there are."
            )
        return found[0]

    def _summaries(self, condition: str, **parameters: object) -> list[DestinationSummary]:
        columns = ", ".join(DestinationSummary._fields)
        statement = f"select {columns} from {self._schema}.destinations {condition} order by kind, destination"
        return [DestinationSummary._make(row) for row in self._connection.rows(statement, **parameters)]


def _json(settings: DestinationSettings) -> str:
    return json.dumps(settings, default=_json_value)


def _json_value(value: object) -> object:
    if isinstance(value, Destination):
        return value.name
    if isinstance(value, timedelta):
        return value.total_seconds()
    raise TypeError(f"{value!r} is no value of a setting.")
