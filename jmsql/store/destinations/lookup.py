"""Queues and topics by their names: their numbers, and whether the first use of one makes it."""

from __future__ import annotations

from typing import NamedTuple

from jmsql.exceptions import InvalidDestinationException, JMSException, JMSSecurityException
from jmsql.store.destinations.access import Action
from jmsql.store.lock_waits import NO_LOCK, limit_lock_waits
from jmsql.store.statement import Query, SqlFile, Statement, Steps, nothing, optional_value, record, value
from jmsql.values.destinations import Destination, Queue, Topic


class Circumstances(NamedTuple):
    """The settings of a transaction that decide its view of others, and its rights."""

    isolation_level: str
    role: str


_sql = SqlFile("destinations")
_find_queue = _sql.statement("find_queue", "looking up the queue {name!r}", optional_value(int))
_create_queue = _sql.statement("create_queue", "creating the queue {name!r}", nothing)
_find_topic = _sql.statement("find_topic", "looking up the topic {name!r}", optional_value(int))
_create_topic = _sql.statement("create_topic", "creating the topic {name!r}", nothing)
last_sequence = SqlFile("inspection").statement("last_sequence", "looking at the queue", value(int)).bind()
"""The sequence of the last message sent to any queue: later messages have higher ones."""
automatic_creation = _sql.statement("automatic_creation", "looking at the configuration", value(bool)).bind()
"""True if the first use of a queue or topic makes it."""
_set_automatic_creation = _sql.statement("set_automatic_creation", "changing the configuration", nothing)
_circumstances = _sql.statement("circumstances", "looking at the transaction", record(Circumstances._make))
_assume_role = _sql.statement("assume_role", "assuming a role", nothing)
_patience = _sql.statement("patience", "creating the queue {name!r}", value(str))
_set_patience = _sql.statement("set_patience", "creating the queue {name!r}", nothing)
_require_access = _sql.statement("require_access", "looking at the queue", value(bool))

_ATTEMPTS = 3


def find_queue(name: str) -> Query[int | None]:
    """Return the number of a queue, or None if it is not there."""
    return _find_queue.bind(name=name)


def queue_id(name: str, *, create: bool = True) -> Steps[int]:
    """Return the number of a queue, which is created if it is not there.

    Raises:
        InvalidDestinationException: It was not there, and could not be created, or the schema's configuration does not
            want it to be.
    """
    return _number(Queue, name, _find_queue, _create_queue if create else None)


def queue_id_in_transaction(name: str, lock_timeout: float) -> Steps[int]:
    """Return the number of a queue as `queue_id` does, in a transaction that goes on.

    Until that ends, others who make the same queue wait for it, as it waits here for them.

    Args:
        name: The queue's name.
        lock_timeout: For how many seconds it waits.

    Raises:
        JMSException: Another transaction has made the queue, or holds a lock, and has not ended.
    """
    patience = yield from _patience.bind(name=name)
    yield from limit_lock_waits(lock_timeout)
    try:
        found = yield from queue_id(name)
    except JMSException as error:
        if error.error_code != NO_LOCK:
            raise
        raise JMSException(
            f"The queue {name!r} was not created within {lock_timeout:g} s: another transaction that has not ended "
            "creates it, too, or locks the table. End that, or create queues beforehand: `jmsql destination create`.",
            NO_LOCK,
        ) from error
    yield from _set_patience.bind(name=name, patience=patience)
    return found


def existing_queue(name: str) -> Steps[int]:
    """Return the number of a queue that is to be there.

    Raises:
        InvalidDestinationException: There is no such queue.
    """
    found = yield from find_queue(name)
    if found is None:
        raise InvalidDestinationException(
            f"There is no queue {name!r}. `jmsql destination list` lists those there are."
        )
    return found


def find_topic(name: str) -> Query[int | None]:
    """Return the number of a topic, or None if it is not there."""
    return _find_topic.bind(name=name)


def topic_id(name: str, *, create: bool = True) -> Steps[int]:
    """Return the number of a topic; see `queue_id`."""
    return _number(Topic, name, _find_topic, _create_topic if create else None)


def require_temporary(destination: Destination) -> Steps[None]:
    """Make sure that a temporary destination is there.

    Raises:
        InvalidDestinationException: It is gone.
    """
    find = find_topic if isinstance(destination, Topic) else find_queue
    if (yield from find(destination.name)) is None:
        raise InvalidDestinationException(f"{destination} is gone: its connection or its owner closed it.")


def circumstances() -> Query[Circumstances]:
    """Return the isolation level of the open transaction, and its role."""
    return _circumstances.bind()


def assume_role(role: str) -> Query[None]:
    """Work as another role until the transaction ends."""
    return _assume_role.bind(role=role)


def require_access(queue_id: int, action: Action) -> Query[bool]:
    """Make sure that policies do not hide a queue's messages, and tell whether they hide anything from the role.

    It fails with a JMSSecurityException if they do.
    """
    return _require_access.bind(queue_id=queue_id, action=action)


def set_automatic_creation(*, enabled: bool) -> Query[None]:
    """Say whether the first use of a queue or topic makes it."""
    return _set_automatic_creation.bind(enabled=enabled)


def _number(
    kind: type[Queue | Topic], name: str, find: Statement[int | None], create: Statement[None] | None
) -> Steps[int]:
    for _ in range(_ATTEMPTS):
        found = yield from find.bind(name=name)
        if found is not None:
            return found
        if create is None:
            break
        try:
            yield from create.bind(name=name)
        except JMSSecurityException as error:
            raise _lacks_right_to_make(kind(name), error) from error
    raise (yield from _refusal(kind(name), by_client=create is None))


def _lacks_right_to_make(destination: Queue | Topic, error: JMSException) -> JMSSecurityException:
    """Return the error for a missing destination that the role may not make, perhaps since its name is misspelt."""
    kind = "topic" if isinstance(destination, Topic) else "queue"
    name = destination.uri if kind == "topic" else destination.name
    return JMSSecurityException(
        f"There is no {kind} {destination.name!r}, and the role may not make it: only access to all destinations does "
        f"so by their use. Check the name, or have an administrator run `jmsql destination create {name}` ({error}).",
        error.error_code,
    )


def _refusal(destination: Queue | Topic, *, by_client: bool) -> Steps[InvalidDestinationException]:
    """Return the error for a missing destination that was not made, perhaps by the client's choice."""
    kind = "topic" if isinstance(destination, Topic) else "queue"
    if not by_client and (yield from automatic_creation):
        return InvalidDestinationException(f"The {kind} {destination.name!r} was deleted as fast as it was created.")
    name = destination.uri if kind == "topic" else destination.name
    return InvalidDestinationException(
        f"There is no {kind} {destination.name!r}, and its use does not make it: automatic creation is off. "
        f"`jmsql destination create {name}` makes it."
    )
