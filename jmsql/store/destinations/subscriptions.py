"""Making, joining, leaving and ending subscriptions, each in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from jmsql.exceptions import IllegalStateException, InvalidDestinationException, JMSException, JMSSecurityException
from jmsql.public_names import set_module
from jmsql.selectors import Selector
from jmsql.store.destinations.lookup import topic_id
from jmsql.store.statement import SqlFile, Steps, column, nothing, records, row_count, rows, value
from jmsql.values.counting import counted
from jmsql.values.postgresql_text import from_postgresql, optional_to_postgresql, to_postgresql


@set_module("jmsql.admin")
class SubscriptionChange(StrEnum):
    """The action on a durable subscription that a consumer opens with another topic, selector or `no_local`."""

    DROP = "drop"
    """It is made again, and the messages that it has collected are deleted, as JMS requires (4.2.3)."""

    KEEP = "keep"
    """The new selector applies to messages from now on; those collected before stay, and are delivered."""

    REFUSE = "refuse"
    """It stays as it is, and the consumer gets an IllegalStateException."""


class ChangeRefusedException(IllegalStateException):
    """A durable subscription stays as it is, though a consumer wants another."""

    def __init__(self, reason: str, *, is_active: bool, same_topic: bool) -> None:
        super().__init__(reason)
        self.is_active = is_active
        self.same_topic = same_topic


class SubscriptionDefinition(NamedTuple):
    """The definition of a subscription, as a consumer gives it.

    `name` and `client_id` identify a durable or shared subscription; the rest may differ from the existing
    subscription; `if_changed` then decides.
    """

    topic: str
    selector: Selector | None = None
    name: str | None = None
    client_id: str | None = None
    durable: bool = False
    shared: bool = False
    no_local: bool = False
    if_changed: SubscriptionChange = SubscriptionChange.DROP

    def __str__(self) -> str:
        kind = "durable subscription" if self.durable else "subscription"
        return f"the {kind} {self.name!r}" if self.name is not None else f"a subscription to topic://{self.topic}"


class Attachment(NamedTuple):
    """A consumer's part in a subscription."""

    queue_id: int
    dropped: int | None = None
    """How many messages were deleted, if the subscription was another before."""


class _Existing(NamedTuple):
    queue_id: int
    topic_id: int
    topic: str
    selector: str | None
    shared: bool
    no_local: bool
    is_active: bool


_sql = SqlFile("subscriptions")
_lock_topic = _sql.statement("lock_topic", "joining a subscription", nothing)
lock_named = _sql.statement("lock_named", "looking up a subscription", row_count)
find_named = _sql.statement("find", "looking up a subscription", records(_Existing._make))
_create = _sql.statement("create", "making a subscription", value(int))
_redefine = _sql.statement("redefine", "changing a subscription", nothing)
_rejoin = _sql.statement("rejoin", "joining subscriptions again", column)
_attach = _sql.statement("attach", "joining a subscription", nothing)
_lock = _sql.statement("lock", "looking up a subscription", nothing)
_find_use = _sql.statement("find_use", "joining a subscription", rows)
_detach = _sql.statement("detach", "leaving a subscription", nothing)
_is_abandoned = _sql.statement("is_abandoned", "leaving a subscription", row_count)
_remove = _sql.statement("remove", "ending a subscription", row_count)
_count = _sql.statement("count_messages", "looking at a subscription", value(int))
_count_held = _sql.statement("count_held_messages", "ending a subscription", value(int))

_UNIQUE_VIOLATION = "23505"


def attach(definition: SubscriptionDefinition, connection_id: int, *, create_topic: bool = True) -> Steps[Attachment]:
    """Join a subscription as a consumer of a connection, in one transaction.

    The subscription is made if it is not there. If it is another now (of another topic, with another selector or
    `no_local`), and has no consumer, the definition's `if_changed` decides.

    Raises:
        ChangeRefusedException: It is another, and has a consumer, or is not to be changed.
        IllegalStateException: It has a consumer, and is not shared; or it is shared and should not be, or the other
            way round.
    """
    wanted_topic = yield from _lock_for_making(definition, create_topic=create_topic)
    existing = yield from _find_existing(definition, connection_id)
    if existing is not None and existing.shared != definition.shared:
        raise IllegalStateException(
            f"{definition} is {'' if existing.shared else 'not '}shared; unsubscribe it first, or choose another name."
        )
    dropped = None
    if existing is not None and not _is_same(definition, existing, wanted_topic):
        change = yield from _permitted_change(definition, existing, wanted_topic)
        if change is SubscriptionChange.KEEP:
            yield from _redefine.bind(
                queue_id=existing.queue_id, selector=_selector_text(definition), no_local=definition.no_local
            )
        else:
            dropped = yield from _count.bind(queue_id=existing.queue_id)
            yield from _end(definition, existing.queue_id)
            existing = None
    if existing is not None and existing.is_active and not definition.shared:
        raise IllegalStateException(f"{definition} has an active consumer; close that one first.")
    queue_id = (yield from _make(definition, wanted_topic)) if existing is None else existing.queue_id
    yield from _attach.bind(queue_id=queue_id, connection_id=connection_id)
    return Attachment(queue_id, dropped)


def occupy(queue_id: int, connection_id: int) -> Steps[None]:
    """Be a consumer of a subscription that is there, as it is, with a connection; the only one if it is not shared.

    Raises:
        IllegalStateException: It is gone, or is not shared and has another active consumer.
    """
    yield from _lock.bind(queue_id=queue_id)
    found = yield from _find_use.bind(queue_id=queue_id, connection_id=connection_id)
    if not found:
        raise IllegalStateException("The subscription was ended.")
    is_shared, name, is_active, is_own = found[0]
    if is_active and not is_shared:
        raise IllegalStateException(f"the durable subscription {name!r} has an active consumer; close that one first.")
    if not is_own:
        yield from _attach.bind(queue_id=queue_id, connection_id=connection_id)


def create_durable(definition: SubscriptionDefinition) -> Steps[bool]:
    """Make a durable subscription that collects until a consumer comes, and return whether it was not there.

    Raises:
        IllegalStateException: There is another of its name: of another topic, with another selector or `no_local`,
            or shared and the other not.
    """
    wanted_topic = yield from _lock_for_making(definition, create_topic=True)
    existing = yield from _find_existing(definition)
    if existing is None:
        yield from _make(definition, wanted_topic)
        return True
    if existing.shared != definition.shared or not _is_same(definition, existing, wanted_topic):
        raise IllegalStateException(
            f"{definition} is there, and wants something else (topic, selector or no_local) or is shared by "
            "others; unsubscribe it first, or choose another name."
        )
    return False


def rejoin(former_ids: Sequence[int], connection_id: int) -> Steps[set[int]]:
    """Move a client's subscriptions to its new connection id; return the queues' ids.

    Those that have ended meanwhile are not among them.
    """
    return set((yield from _rejoin.bind(former_ids=list(former_ids), connection_id=connection_id)))


def detach(queue_id: int, connection_id: int) -> Steps[None]:
    """Leave a subscription; one that is not durable ends with its last consumer."""
    yield from _lock.bind(queue_id=queue_id)
    yield from _detach.bind(queue_id=queue_id, connection_id=connection_id)
    if (yield from _is_abandoned.bind(queue_id=queue_id)):
        yield from _remove.bind(queue_id=queue_id)


def end_if_abandoned(queue_id: int) -> Steps[None]:
    """End a subscription that is not durable if its last consumer is gone, without having left it."""
    yield from _lock.bind(queue_id=queue_id)
    if (yield from _is_abandoned.bind(queue_id=queue_id)):  # it has no new consumer
        yield from _remove.bind(queue_id=queue_id)


def unsubscribe(name: str, client_id: str | None) -> Steps[None]:
    """End a durable subscription, with its messages.

    Raises:
        InvalidDestinationException: There is none of that name.
        IllegalStateException: It has a consumer, or messages that a session has not acknowledged.
    """
    definition = SubscriptionDefinition("", name=name, client_id=client_id, durable=True)
    existing = yield from _find_existing(definition)
    if existing is None:
        client = "without a client identifier" if client_id is None else f"with the client identifier {client_id!r}"
        raise InvalidDestinationException(
            f"There is no durable subscription {name!r} {client}. `jmsql subscriptions` lists those there are."
        )
    if existing.is_active:
        raise IllegalStateException(f"{definition} has an active consumer; close that one first.")
    yield from _end(definition, existing.queue_id)


def _lock_for_making(definition: SubscriptionDefinition, *, create_topic: bool) -> Steps[int]:
    """Keep others from making the subscription until the transaction ends, and return the id of its topic."""
    found = yield from topic_id(definition.topic, create=create_topic)
    yield from _lock_topic.bind(topic_id=found)
    return found


def _find_existing(definition: SubscriptionDefinition, connection_id: int = 0) -> Steps[_Existing | None]:
    """Lock a named subscription, and return it; consumers of the connection count as active, also if that is lost."""
    if definition.name is None:
        return None
    parameters = {
        "durable": definition.durable,
        "client_id": optional_to_postgresql(definition.client_id),
        "name": to_postgresql(definition.name),
    }
    for _ in range(2):  # one that comes in between is locked the second time
        locked = yield from lock_named.bind(parameters)
        found = yield from find_named.bind(parameters, connection_id=connection_id)
        if not found:
            return None
        if locked:
            return found[0]
    raise JMSSecurityException(
        f"{definition} is to a topic from which the role may not receive; `jmsql destination grant` gives access."
    )


def _permitted_change(
    definition: SubscriptionDefinition, existing: _Existing, wanted_topic: int
) -> Steps[SubscriptionChange]:
    same_topic = existing.topic_id == wanted_topic
    if existing.is_active:
        raise ChangeRefusedException(
            f"{definition} has a consumer that wants something else ({_difference(definition, existing)}); close "
            "that one first.",
            is_active=True,
            same_topic=same_topic,
        )
    if not definition.durable:  # it has ended with its last consumer, though it is not removed yet
        return SubscriptionChange.DROP
    if definition.if_changed is SubscriptionChange.DROP:
        return SubscriptionChange.DROP
    if definition.if_changed is SubscriptionChange.KEEP and same_topic:
        return SubscriptionChange.KEEP
    messages = yield from _count.bind(queue_id=existing.queue_id)
    raise ChangeRefusedException(
        f"{definition} is another ({_difference(definition, existing)}), and holds "
        f"{'no message' if not messages else counted(messages, 'message')}.",
        is_active=False,
        same_topic=same_topic,
    )


def _is_same(definition: SubscriptionDefinition, existing: _Existing, wanted_topic: int) -> bool:
    wanted = (wanted_topic, _selector_text(definition), definition.no_local)
    return wanted == (existing.topic_id, existing.selector, existing.no_local)


def _make(definition: SubscriptionDefinition, wanted_topic: int) -> Steps[int]:
    try:
        return (
            yield from _create.bind(
                topic_id=wanted_topic,
                client_id=optional_to_postgresql(definition.client_id),
                name=optional_to_postgresql(definition.name),
                selector=_selector_text(definition),
                durable=definition.durable,
                shared=definition.shared,
                no_local=definition.no_local,
            )
        )
    except JMSException as error:
        if error.error_code != _UNIQUE_VIOLATION:
            raise
        # Another one to the same topic, made meanwhile, has waited for its lock.
        raise IllegalStateException(
            f"{definition} was made at the same moment, and wants something else (another topic); unsubscribe it "
            "first, or choose another name."
        ) from error


def _end(definition: SubscriptionDefinition, queue_id: int) -> Steps[None]:
    held = yield from _count_held.bind(queue_id=queue_id)
    if held:
        raise IllegalStateException(
            f"{definition} has {counted(held, 'message')} received and not acknowledged or committed; do that first."
        )
    if not (yield from _remove.bind(queue_id=queue_id)):
        raise JMSException(f"{definition} was ended at the same time.")


def _difference(definition: SubscriptionDefinition, existing: _Existing) -> str:
    """Return the differences between a subscription and its definition."""
    differences = []
    if existing.topic != to_postgresql(definition.topic):
        differences.append(f"its topic is {from_postgresql(existing.topic)!r}, and {definition.topic!r} is wanted")
    if existing.selector != _selector_text(definition):
        now = "no selector" if existing.selector is None else f"the selector {from_postgresql(existing.selector)!r}"
        wanted = "none" if definition.selector is None else repr(definition.selector.text)
        differences.append(f"it has {now}, and {wanted} is wanted")
    if existing.no_local != definition.no_local:
        differences.append(f"its no_local is {existing.no_local}, and {definition.no_local} is wanted")
    return "; ".join(differences)


def _selector_text(definition: SubscriptionDefinition) -> str | None:
    return None if definition.selector is None else to_postgresql(definition.selector.text)
