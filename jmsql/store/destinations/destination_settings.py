"""Making, changing and deleting queues and topics: a thin cover of the SQL functions that do it."""

import json
import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypedDict

from jmsql.exceptions import InvalidDestinationException, JMSException
from jmsql.public_names import set_module
from jmsql.store.statement import Query, SqlFile, Steps, nothing, records, value
from jmsql.values.destinations import AnyQueue, Destination, Topic, destination_of


@set_module("jmsql.admin")
class DestinationSettings(TypedDict, total=False):
    """The settings of a queue, or of the subscriptions of a topic. None stands for the default.

    Attributes:
        paused: Whether it takes messages and delivers none.
        expiry_queue: The queue for messages that expire. By default they are deleted.
        maximum_deliveries: How often a message is delivered, until it moves to the dead-letter queue. By default it is
            delivered until it is acknowledged.
        redelivery_delay: Seconds (or a `timedelta`) before the first redelivery. By default there is none.
        redelivery_multiplier: The factor from each delay to the next; 1 by default.
        maximum_redelivery_delay: The longest delay. By default there is none.
        redelivery_jitter: The share, 0 to 1, by which delays vary at random; 0 by default.
        dead_letter_queue: The queue for messages that were delivered `maximum_deliveries` times; ``DLQ`` by default.
        visibility_timeout: After how many seconds (or a `timedelta`) a session that is not transacted loses a message
            that it has not acknowledged. By default it holds it for as long as its client lives.
        deduplication_window: For how many seconds (or a `timedelta`) a deduplication id counts; 0: not at
            all. A day by default.
        history: Whether messages go to the history when they leave. By default they are deleted.
        history_days: How many whole days they stay there. By default they stay until they are removed.
    """

    paused: bool | None
    expiry_queue: AnyQueue | None
    maximum_deliveries: int | None
    redelivery_delay: float | timedelta | None
    redelivery_multiplier: float | None
    maximum_redelivery_delay: float | timedelta | None
    redelivery_jitter: float | None
    dead_letter_queue: AnyQueue | None
    visibility_timeout: float | timedelta | None
    deduplication_window: float | timedelta | None
    history: bool | None
    history_days: int | None


@set_module("jmsql.admin")
class DestinationSummary(NamedTuple):
    """A row of the view ``destinations``."""

    kind: str
    destination: str
    temporary: bool
    settings: dict[str, Any]
    created_at: datetime


_sql = SqlFile("administration")
_temporary = SqlFile("destinations")
_create_queue = _sql.statement("create_queue", "making {destination}", value(bool))
_create_topic = _sql.statement("create_topic", "making {destination}", value(bool))
_alter = _sql.statement("alter", "changing {destination}", nothing)
_delete = _sql.statement("delete", "deleting {destination}", nothing)
destinations = _sql.statement("destinations", "looking at the destinations", records(DestinationSummary._make)).bind()
"""All destinations, queues first, by name."""
_create_temporary_queue = _temporary.statement("create_temporary_queue", "making {destination}", nothing)
_create_temporary_topic = _temporary.statement("create_temporary_topic", "making {destination}", nothing)
_delete_temporary_queue = _temporary.statement("delete_temporary_queue", "deleting {destination}", nothing)
_delete_temporary_topic = _temporary.statement("delete_temporary_topic", "deleting {destination}", nothing)
_find = _sql.statement("destination", "looking at {destination}", records(DestinationSummary._make))


def create(destination: Destination, settings: DestinationSettings) -> Query[bool]:
    """Make a destination if it is not there, change its settings, and return whether it was made."""
    statement = _create_topic if isinstance(destination, Topic) else _create_queue
    return statement.bind(destination=destination, name=destination.name, settings=_json(settings))


def alter(destination: Destination, settings: DestinationSettings) -> Query[None]:
    """Change settings of a destination."""
    return _alter.bind(destination=destination, uri=destination.uri, settings=_json(settings))


def reset(destination: Destination, names: Sequence[str]) -> Query[None]:
    """Reset settings of a destination to their defaults."""
    return _alter.bind(destination=destination, uri=destination.uri, settings=json.dumps(dict.fromkeys(names)))


def delete(destination: Destination, *, force: bool) -> Query[None]:
    """Delete a destination, with its messages; also while it has consumers, if forced."""
    return _delete.bind(destination=destination, uri=destination.uri, force=force)


def create_temporary(destination: Destination, connection_id: int) -> Query[None]:
    """Make a destination for a connection; if it is there, it goes with this connection from now on."""
    create = _create_temporary_topic if isinstance(destination, Topic) else _create_temporary_queue
    return create.bind(destination=destination, name=destination.name, connection_id=connection_id)


def delete_temporary(destination: Destination) -> Query[None]:
    """Delete a destination of a connection, if it is there."""
    delete = _delete_temporary_topic if isinstance(destination, Topic) else _delete_temporary_queue
    return delete.bind(destination=destination, name=destination.name)


def destination_summary(destination: Destination) -> Steps[DestinationSummary]:
    """Return one destination.

    Raises:
        InvalidDestinationException: It is not there.
    """
    kind = "topic" if isinstance(destination, Topic) else "queue"
    found = yield from _find.bind(destination=destination, kind=kind, name=destination.name)
    if not found:
        raise InvalidDestinationException(
            f"There is no {kind} {destination.name!r}. `jmsql destination list` lists those there are."
        )
    return found[0]


def _json(settings: DestinationSettings) -> str:
    for name, setting in settings.items():
        if isinstance(setting, float) and not math.isfinite(setting):
            raise JMSException(f'The setting "{name}" cannot be {setting}: expected a finite number.', "JMS03")
    return json.dumps(settings, default=_json_value)


def _json_value(value: object) -> object:
    if isinstance(value, timedelta):
        return value.total_seconds()
    found = destination_of(value)
    if isinstance(found, Destination):
        return found.uri
    raise TypeError(f"{value!r} is not a value of a setting.")
