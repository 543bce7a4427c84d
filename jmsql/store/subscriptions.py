"""Making, joining, leaving and ending subscriptions, each in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import psycopg

from jmsql.destinations import Topic
from jmsql.exceptions import IllegalStateException, InvalidDestinationException, JMSException, JMSSecurityException
from jmsql.postgresql_text import from_postgresql, optional_to_postgresql, to_postgresql
from jmsql.selectors import Selector
from jmsql.store.automatic_creation import AutomaticCreation
from jmsql.store.driver import Driver
from jmsql.store.errors import jms_errors
from jmsql.store.topic_statements import topic_statements

__all__ = ["Attachment", "ChangeRefusedException", "SubscriptionChange", "SubscriptionDefinition", "Subscriptions"]


class SubscriptionChange(StrEnum):
    """What happens to a durable subscription that a consumer wants with another topic, selector or `no_local`."""

    DROP = "drop"
    """It is made again, and the messages that it has collected are deleted: what JMS asks for (4.2.3)."""

    KEEP = "keep"
    """The new selector decides about what is published from now on; what is collected stays, and is delivered."""

    REFUSE = "refuse"
    """It stays as it is, and the consumer gets an IllegalStateException."""


class ChangeRefusedException(IllegalStateException):
    """A durable subscription stays as it is, though a consumer wants another.

    Args:
        reason: What the difference is.
        is_active: Whether consumers keep it from being changed.
        same_topic: Whether it is to the topic that is wanted.
    """

    def __init__(self, reason: str, *, is_active: bool, same_topic: bool) -> None:
        super().__init__(reason)
        self.is_active = is_active
        self.same_topic = same_topic


class SubscriptionDefinition(NamedTuple):
    """What is wanted of a topic, and by whom.

    `name` and `client_id` identify a durable or shared subscription; the rest may differ from what it is now, and
    `if_changed` says what happens then.
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


class Subscriptions:
    """The subscriptions, seen through one connection.

    Args:
        driver: Runs the statements, each method's in one transaction that the caller opens and ends.
        schema: The name of the schema.
        create_topics: Whether to create topics that are not there.
    """

    def __init__(self, driver: Driver, schema: str, *, create_topics: bool = True) -> None:
        self._driver = driver
        self._schema = schema
        self._create_topics = create_topics
        self._statements = topic_statements(schema)

    def topic_id(self, name: str) -> int:
        """Return the id of a topic, which is created if it is not there.

        Raises:
            InvalidDestinationException: It was not there, and could not or should not be created.
        """
        for _ in range(3):
            with jms_errors(f"looking up the topic {name!r}"):
                found = self._driver.execute(self._statements.find_topic, {"name": name}).rows
                if found:
                    return int(found[0][0])
                if not self._create_topics:
                    break
                self._driver.execute(self._statements.create_topic, {"name": name})
        creation = AutomaticCreation(self._driver, self._schema)
        raise creation.refusal(Topic(name), by_client=not self._create_topics)

    def attach(self, definition: SubscriptionDefinition, connection_id: int) -> Attachment:
        """Join a subscription as a consumer of a connection.

        The subscription is made if it is not there. If it is another now (of another topic, with another selector or
        `no_local`), and has no consumer, the definition's `if_changed` says what happens.

        Raises:
            ChangeRefusedException: It is another, and has a consumer, or is not to be changed.
            IllegalStateException: It has a consumer, and is not shared; or it is shared and should not be, or the other
                way round.
        """
        with jms_errors(f"joining {definition}"):
            topic_id = self._lock(definition)
            existing = self._find(definition)
            if existing is not None and existing.shared != definition.shared:
                raise IllegalStateException(
                    f"{definition} is {'' if existing.shared else 'not '}shared; unsubscribe it first, or choose "
                    "another name."
                )
            dropped = None
            if existing is not None and not self._is_same(definition, existing, topic_id):
                change = self._permitted_change(definition, existing, topic_id)
                if change is SubscriptionChange.KEEP:
                    self._redefine(definition, existing.queue_id)
                else:
                    dropped = self._count(existing.queue_id)
                    self._remove(definition, existing.queue_id)
                    existing = None
            if existing is not None and existing.is_active and not definition.shared:
                raise IllegalStateException(f"{definition} has an active consumer; close that one first.")
            queue_id = self._create(definition, topic_id) if existing is None else existing.queue_id
            self._driver.execute(self._statements.attach, {"queue_id": queue_id, "connection_id": connection_id})
            return Attachment(queue_id, dropped)

    def occupy(self, queue_id: int, connection_id: int) -> None:
        """Be a consumer of a subscription that is there, as it is, with a connection; the only one if it is not shared.

        Raises:
            IllegalStateException: It is gone, or is not shared and has another active consumer.
        """
        parameters = {"queue_id": queue_id, "connection_id": connection_id}
        with jms_errors("joining a subscription"):
            self._driver.execute(self._statements.lock_subscription, parameters)
            found = self._driver.execute(self._statements.use_of_subscription, parameters).rows
            if not found:
                raise IllegalStateException("The subscription was ended.")
            is_shared, name, is_active, is_own = found[0]
            if is_active and not is_shared:
                raise IllegalStateException(
                    f"the durable subscription {name!r} has an active consumer; close that one first."
                )
            if not is_own:
                self._driver.execute(self._statements.attach, parameters)

    def create(self, definition: SubscriptionDefinition) -> bool:
        """Make a durable subscription that collects until a consumer comes, and return whether it was not there.

        Raises:
            IllegalStateException: There is another of its name: of another topic, with another selector or `no_local`,
                or shared and the other not.
        """
        with jms_errors(f"making {definition}"):
            topic_id = self._lock(definition)
            existing = self._find(definition)
            if existing is None:
                self._create(definition, topic_id)
                return True
            if existing.shared != definition.shared or not self._is_same(definition, existing, topic_id):
                raise IllegalStateException(
                    f"{definition} is there, and wants something else (topic, selector or no_local) or is shared by "
                    "others; unsubscribe it first, or choose another name."
                )
            return False

    def rejoin(self, former_ids: Sequence[int], connection_id: int) -> set[int]:
        """Be under a new connection id what the client was under former ones; return the ids of the queues concerned.

        What upkeep has taken from it meanwhile is not among them.
        """
        parameters = {"former_ids": list(former_ids), "connection_id": connection_id}
        with jms_errors("joining subscriptions again"):
            return {row[0] for row in self._driver.execute(self._statements.rejoin, parameters).rows}

    def detach(self, queue_id: int, connection_id: int) -> None:
        """Leave a subscription; one that is not durable ends with its last consumer."""
        parameters = {"queue_id": queue_id, "connection_id": connection_id}
        with jms_errors("leaving a subscription"):
            self._driver.execute(self._statements.lock_subscription, {"queue_id": queue_id})
            self._driver.execute(self._statements.detach, parameters)
            if self._driver.execute(self._statements.is_abandoned, {"queue_id": queue_id}).row_count:
                self._driver.execute(self._statements.remove_subscription, {"queue_id": queue_id})

    def unsubscribe(self, name: str, client_id: str | None) -> None:
        """End a durable subscription, with its messages.

        Raises:
            InvalidDestinationException: There is none of that name.
            IllegalStateException: It has a consumer, or messages that a session has not acknowledged.
        """
        definition = SubscriptionDefinition("", name=name, client_id=client_id, durable=True)
        with jms_errors(f"ending {definition}"):
            existing = self._find(definition)
            if existing is None:
                client = "no client identifier" if client_id is None else f"the client identifier {client_id!r}"
                raise InvalidDestinationException(f"There is no durable subscription {name!r} for {client}.")
            if existing.is_active:
                raise IllegalStateException(f"{definition} has an active consumer; close that one first.")
            self._remove(definition, existing.queue_id)

    def _lock(self, definition: SubscriptionDefinition) -> int:
        """Keep others from making the subscription until the transaction ends, and return the id of its topic."""
        topic_id = self.topic_id(definition.topic)
        self._driver.execute(self._statements.lock_topic, {"topic_id": topic_id})
        return topic_id

    def _find(self, definition: SubscriptionDefinition) -> _Existing | None:
        if definition.name is None:
            return None
        parameters = {
            "durable": definition.durable,
            "client_id": optional_to_postgresql(definition.client_id),
            "name": to_postgresql(definition.name),
        }
        for _ in range(2):  # one that comes in between is locked the second time
            locked = self._driver.execute(self._statements.lock_named_subscription, parameters).row_count
            found = self._driver.execute(self._statements.find_subscription, parameters).rows
            if not found:
                return None
            if locked:
                return _Existing._make(found[0])
        raise JMSSecurityException(
            f"{definition} is to a topic from which the role may not receive; `jmsql destination grant` gives access."
        )

    def _permitted_change(
        self, definition: SubscriptionDefinition, existing: _Existing, topic_id: int
    ) -> SubscriptionChange:
        same_topic = existing.topic_id == topic_id
        if existing.is_active:
            raise ChangeRefusedException(
                f"{definition} has a consumer that wants something else ({_difference(definition, existing)}); close "
                "that one first.",
                is_active=True,
                same_topic=same_topic,
            )
        if not definition.durable:  # it has ended with its last consumer, though nobody has removed it yet
            return SubscriptionChange.DROP
        if definition.if_changed is SubscriptionChange.DROP:
            return SubscriptionChange.DROP
        if definition.if_changed is SubscriptionChange.KEEP and same_topic:
            return SubscriptionChange.KEEP
        messages = self._count(existing.queue_id)
        raise ChangeRefusedException(
            f"{definition} is another ({_difference(definition, existing)}), and "
            f"{'no message waits' if not messages else f'{messages:,} message(s) wait'} in it.",
            is_active=False,
            same_topic=same_topic,
        )

    def _count(self, queue_id: int) -> int:
        return int(self._driver.execute(self._statements.count_messages, {"queue_id": queue_id}).rows[0][0])

    def _redefine(self, definition: SubscriptionDefinition, queue_id: int) -> None:
        parameters = {
            "queue_id": queue_id,
            "selector": _selector_text(definition),
            "no_local": definition.no_local,
        }
        self._driver.execute(self._statements.redefine_subscription, parameters)

    def _is_same(self, definition: SubscriptionDefinition, existing: _Existing, topic_id: int) -> bool:
        wanted = (topic_id, _selector_text(definition), definition.no_local)
        return wanted == (existing.topic_id, existing.selector, existing.no_local)

    def _create(self, definition: SubscriptionDefinition, topic_id: int) -> int:
        parameters = {
            **definition._asdict(),
            "client_id": optional_to_postgresql(definition.client_id),
            "name": optional_to_postgresql(definition.name),
            "topic_id": topic_id,
            "selector": _selector_text(definition),
        }
        try:
            return int(self._driver.execute(self._statements.create_subscription, parameters).rows[0][0])
        except psycopg.errors.UniqueViolation as error:  # who makes one to the same topic has waited for its lock
            raise IllegalStateException(
                f"{definition} was made at the same moment, and wants something else (another topic); unsubscribe it "
                "first, or choose another name."
            ) from error

    def _remove(self, definition: SubscriptionDefinition, queue_id: int) -> None:
        held: int = self._driver.execute(self._statements.held_messages, {"queue_id": queue_id}).rows[0][0]
        if held:
            raise IllegalStateException(
                f"{held} message(s) of {definition} are received and not acknowledged or committed; do that first."
            )
        if not self._driver.execute(self._statements.remove_subscription, {"queue_id": queue_id}).row_count:
            raise JMSException(f"{definition} was ended at the same time.")


def _difference(definition: SubscriptionDefinition, existing: _Existing) -> str:
    """Return in what way a subscription is not what is wanted."""
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
