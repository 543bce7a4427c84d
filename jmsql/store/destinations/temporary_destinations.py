"""Destinations that live as long as a client's connection."""

from __future__ import annotations

from jmsql.exceptions import InvalidDestinationException
from jmsql.store.destinations.lookup import find_queue, find_topic
from jmsql.store.statement import Query, SqlFile, Steps, nothing
from jmsql.values.destinations import Destination, Topic

__all__ = ["create_temporary", "delete_temporary", "require_temporary"]

_sql = SqlFile("destinations")
_create_queue = _sql.statement("create_temporary_queue", "making {destination}", nothing)
_create_topic = _sql.statement("create_temporary_topic", "making {destination}", nothing)
_delete_queue = _sql.statement("delete_temporary_queue", "deleting {destination}", nothing)
_delete_topic = _sql.statement("delete_temporary_topic", "deleting {destination}", nothing)


def create_temporary(destination: Destination, connection_id: int) -> Query[None]:
    """Make a destination for a connection; if it is there, it goes with this connection from now on."""
    create = _create_topic if isinstance(destination, Topic) else _create_queue
    return create.bind(destination=destination, name=destination.name, connection_id=connection_id)


def delete_temporary(destination: Destination) -> Query[None]:
    """Delete a destination, if it is there."""
    delete = _delete_topic if isinstance(destination, Topic) else _delete_queue
    return delete.bind(destination=destination, name=destination.name)


def require_temporary(destination: Destination) -> Steps[None]:
    """Make sure that a destination is there.

    Raises:
        InvalidDestinationException: It is gone.
    """
    find = find_topic if isinstance(destination, Topic) else find_queue
    if (yield from find(destination.name)) is None:
        raise InvalidDestinationException(f"{destination} is gone: its connection or its owner closed it.")
