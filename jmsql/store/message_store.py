"""The operations on queues and messages, each one statement on the connection it is given."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from jmsql.destinations import Queue, TemporaryTopic, Topic
from jmsql.exceptions import IllegalStateException, InvalidDestinationException, TransactionRolledBackException
from jmsql.postgresql_text import optional_to_postgresql
from jmsql.selectors import Selector
from jmsql.store.access import Action
from jmsql.store.automatic_creation import AutomaticCreation
from jmsql.store.candidates import first_of_groups
from jmsql.store.delay_statements import delay_statements
from jmsql.store.dequeue import GroupScan
from jmsql.store.driver import Driver
from jmsql.store.errors import jms_errors
from jmsql.store.message_key import MessageKey, key_parameters
from jmsql.store.notification import DELAYED_CHANNEL, notify
from jmsql.store.redelivery import Redelivery
from jmsql.store.rows import MessageRow, OutgoingMessage, array_literal, send_parameters, single_send_parameters
from jmsql.store.runner import Runner
from jmsql.store.statements import SelectedStatement, Statements, statements
from jmsql.store.temporary_destinations import TemporaryDestinations
from jmsql.store.topic_statements import topic_statements

__all__ = ["Client", "MessageStore", "Publisher"]


class Client(Protocol):
    """Who receives messages."""

    @property
    def connection_id(self) -> int:
        """The number of the client's connection."""

    def may_keep_history(self, queue_ids: Collection[int]) -> bool:
        """Tell whether one of the queues keeps history, as far as the client knows."""


class Publisher(NamedTuple):
    """Who publishes, for the subscriptions that do not want what comes from their own client."""

    connection_id: int | None = None
    client_id: str | None = None


class MessageStore:
    """The store, seen through one connection and the transaction that it is in.

    Args:
        driver: Runs the statements.
        schema: The name of the schema.
        client: Who receives messages through it; None: somebody without a connection of jmsql's.
        restricted: Whether policies hide something from the role.
    """

    def __init__(self, driver: Driver, schema: str, client: Client | None = None, *, restricted: bool = False) -> None:
        self._driver = driver
        self._schema = schema
        self._client = client
        self._restricted = restricted
        self._statements = statements(schema, restricted=restricted)
        self._recording = statements(schema, record=True, restricted=restricted)
        self.redelivery = Redelivery(driver, schema, restricted=restricted)

    def _statements_for(self, queue_ids: Collection[int]) -> Statements:
        """Return the statements to acknowledge messages of these queues with: who keeps no history pays for none."""
        keeps = self._client is None or self._client.may_keep_history(queue_ids)
        return self._recording if keeps else self._statements

    @property
    def _connection_id(self) -> int | None:
        return None if self._client is None else self._client.connection_id

    def find_queue(self, name: str) -> int | None:
        """Return the id of a queue, or None if it is not there."""
        with jms_errors(f"looking up the queue {name!r}"):
            found = self._driver.execute(self._statements.find_queue, {"name": name}).rows
        return int(found[0][0]) if found else None

    def queue_id(self, name: str, *, create: bool = True) -> int:
        """Return the id of a queue, which is created if it is not there.

        Args:
            name: The queue's name.
            create: Whether to create it; if not, it has to be there.

        Raises:
            InvalidDestinationException: It was not there, and could not be created, or the schema's configuration does
                not want it to be.
        """
        for _ in range(3):
            found = self.find_queue(name)
            if found is not None:
                return found
            if not create:
                break
            with jms_errors(f"creating the queue {name!r}"):
                self._driver.execute(self._statements.create_queue, {"name": name})
        raise AutomaticCreation(self._driver, self._schema).refusal(Queue(name), by_client=not create)

    def require_access(self, queue_id: int, action: Action) -> bool:
        """Make sure that policies do not hide a queue's messages, and tell whether they hide anything from the role.

        Raises:
            JMSSecurityException: They do.
        """
        with jms_errors("looking at the queue"):
            rows = self._driver.execute(self._statements.require_access, {"queue_id": queue_id, "action": action}).rows
        return bool(rows[0][0])

    def send(self, messages: Sequence[OutgoingMessage], *, flush: bool = True) -> None:
        """Insert messages, in their order: all of them, or none if a queue does not exist.

        Args:
            messages: At least one; all of them have a delivery time to wait for, or none has.
            flush: False lets the transaction of this statement alone commit without waiting for the disk.

        Raises:
            InvalidDestinationException: A queue does not exist.
            JMSException: PostgreSQL refused.
        """
        known = self._statements
        if messages[0].jms_delivery_time is not None:
            later = delay_statements(self._schema)
            send, send_without_flush = later.send, later.send_without_flush
            parameters = send_parameters(messages)
        elif len(messages) == 1:
            send, send_without_flush = known.send_one, known.send_one_without_flush
            parameters = single_send_parameters(messages[0])
        else:
            send, send_without_flush = known.send, known.send_without_flush
            parameters = send_parameters(messages)
        with jms_errors("sending"):
            sent = self._driver.execute(send if flush else send_without_flush, parameters).row_count
        if sent != len(messages):
            names = ", ".join(sorted({message.destination for message in messages}))
            raise InvalidDestinationException(f"Nothing was sent, since one of these queues does not exist: {names}.")

    def publish(
        self, topic: Topic, messages: Sequence[OutgoingMessage], publisher: Publisher, *, flush: bool = True
    ) -> None:
        """Insert messages, in their order, for each subscription of a topic that wants them.

        Args:
            topic: The topic, which need not be there if it is not temporary.
            messages: At least one; all of them have a delivery time to wait for, or none has.
            publisher: Who sends them.
            flush: False lets the transaction of this statement alone commit without waiting for the disk.

        Raises:
            InvalidDestinationException: The topic is temporary, and gone.
            JMSException: PostgreSQL refused.
        """
        if isinstance(topic, TemporaryTopic):
            TemporaryDestinations(self._driver, self._schema).require(topic)
        delayed = messages[0].jms_delivery_time is not None
        publish = topic_statements(self._schema).publish
        self.publish_with(
            topic,
            lambda selectors: publish(selectors, flush=flush, delayed=delayed),
            send_parameters(messages),
            publisher,
        )

    def publish_with(
        self,
        topic: Topic,
        statement_for: Callable[[tuple[str, ...]], SelectedStatement],
        messages: Mapping[str, object],
        publisher: Publisher,
    ) -> None:
        """Insert messages for each subscription of a topic that wants them.

        Args:
            topic: The topic.
            statement_for: Composes the statement for the selectors that it is to know.
            messages: Its parameters that say which messages.
            publisher: Who sends them.
        """
        topics = topic_statements(self._schema)
        parameters = {
            **messages,
            "topic": topic.name,
            "connection_id": publisher.connection_id,
            "client_id": optional_to_postgresql(publisher.client_id),
        }
        with jms_errors("publishing"):
            while True:
                statement = statement_for(topics.known_selectors.get(topic.name, ()))
                unknown = self._driver.execute(statement.text, parameters | statement.parameters).rows
                if not unknown:
                    return
                topics.known_selectors[topic.name] = tuple(sorted(row[0] for row in unknown))

    def notify(self, queues: Collection[str], topics: Collection[str], *, delayed: bool) -> None:
        """Tell all clients, with the commit of the open transaction, that destinations have new messages.

        Args:
            queues: The names of the queues.
            topics: The names of the topics.
            delayed: Whether there are new messages that are delivered later.
        """
        with jms_errors("notifying"):
            if delayed:
                Runner(self._driver, self._schema).run(notify([str(DELAYED_CHANNEL)]))
            if queues:
                self._driver.execute(self._statements.notify_queues, {"channel": self._schema, "names": list(queues)})
            if topics:
                statement = topic_statements(self._schema).notify_topics
                self._driver.execute(statement, {"channel": self._schema, "names": list(topics)})

    def require_read_committed(self) -> None:
        """Make sure that the open transaction can receive.

        Raises:
            IllegalStateException: Its isolation level is above READ COMMITTED. What others have claimed since it
                began is hidden from it then, and it would deliver their messages a second time.
        """
        with jms_errors("receiving"):
            level = self._driver.execute(self._statements.isolation).rows[0][0]
        if level != "read committed":
            raise IllegalStateException(
                f"The transaction's isolation level is {level}; messages are received in READ COMMITTED alone. Begin "
                "the transaction with `set transaction isolation level read committed`, or make it the connection's."
            )

    def has_groups(self, queue_id: int) -> bool:
        """Return whether the queue has, or had, messages of groups."""
        with jms_errors("receiving"):
            return bool(self._driver.execute(self._statements.has_groups, {"queue_id": queue_id}).rows[0][0])

    def first_of_groups(self, queue_id: int, selector: Selector | None, groups: Iterable[int]) -> list[tuple[int, int]]:
        """Return where the first messages of groups are, as (inverse priority, sequence)."""
        statement = first_of_groups(self._schema, selector)
        parameters = {"queue_id": queue_id, "groups": array_literal(groups), **statement.parameters}
        with jms_errors("receiving"):
            rows = self._driver.execute(statement.text, parameters).rows
        return [(inverse_priority, sequence) for inverse_priority, sequence in rows]

    def lock(
        self,
        queue_id: int,
        selector: Selector | None,
        lowest: Sequence[int],
        limit: int,
        groups: GroupScan | None = None,
    ) -> list[MessageRow]:
        """Lock the next messages for the open transaction, until it ends or deletes them.

        Args:
            queue_id: The queue.
            selector: Which of its messages are wanted; None: all.
            lowest: From where on to look, for each inverse priority.
            limit: The most messages to return.
            groups: What to know of groups; None returns nothing from a queue that has, or had, messages of groups.
        """
        statement = self._statements.lock(selector, grouped=groups is not None)
        return self._next(statement, queue_id, lowest, limit, groups)

    def take(
        self,
        queue_id: int,
        selector: Selector | None,
        lowest: Sequence[int],
        limit: int,
        groups: GroupScan | None = None,
    ) -> list[MessageRow]:
        """Take the next messages off their queue, with the same arguments."""
        statement = self._statements_for((queue_id,)).take(selector, grouped=groups is not None)
        return self._next(statement, queue_id, lowest, limit, groups, connection_id=self._connection_id)

    def claim(
        self,
        queue_id: int,
        selector: Selector | None,
        lowest: Sequence[int],
        limit: int,
        connection_id: int,
        time_limit: float | None = None,
        groups: GroupScan | None = None,
    ) -> list[MessageRow]:
        """Claim the next messages for a connection, until it acknowledges or releases them, or dies.

        With a time limit, in seconds, the claim is taken away when nobody extends it in time.
        """
        statement = self._statements.claim(selector, grouped=groups is not None)
        more = {"connection_id": connection_id, "time_limit": time_limit}
        return self._next(statement, queue_id, lowest, limit, groups, **more)

    def _next(
        self,
        statement: SelectedStatement,
        queue_id: int,
        lowest: Sequence[int],
        limit: int,
        groups: GroupScan | None,
        **more: object,
    ) -> list[MessageRow]:
        parameters = {
            "queue_id": queue_id,
            "lowest": array_literal(lowest),
            "limit": limit,
            **more,
            **statement.parameters,
        }
        if groups is not None:
            parameters["limit"] = groups.candidates(limit)
            parameters["place_priorities"] = array_literal(inverse_priority for inverse_priority, _ in groups.places)
            parameters["place_sequences"] = array_literal(sequence for _, sequence in groups.places)
            parameters["place_limit"] = groups.limit
            parameters["own_claims"] = array_literal(groups.own_claims)
        with jms_errors("receiving"):
            return [MessageRow._make(row) for row in self._driver.execute(statement.text, parameters).rows]

    def highest_sequences(self, queue_id: int) -> list[int]:
        """Return the highest sequence in the queue, for each inverse priority; 0 where there is none."""
        with jms_errors("receiving"):
            highest: list[int] = self._driver.execute(self._statements.highest_sequences, {"queue_id": queue_id}).rows[
                0
            ][0]
        return highest

    def delete_locked(self, rows: Sequence[MessageRow], queue_ids: Collection[int]) -> None:
        """Delete messages that the open transaction has locked.

        Args:
            rows: The messages.
            queue_ids: The queues that they are in.

        Raises:
            TransactionRolledBackException: Some of them are not there any more: the locks were lost. Nothing that was
                done with the messages may be committed.
        """
        known = self._statements_for(queue_ids)
        parameters: dict[str, object] = {"addresses": '{"' + '","'.join([row.handle for row in rows]) + '"}'}
        if self._restricted:
            parameters["connection_id"] = self._connection_id
        elif known is self._recording:
            parameters |= {
                "queue_ids": array_literal(queue_ids),
                "deliveries": array_literal(row.delivery_count for row in rows),
                "connection_id": self._connection_id,
            }
        with jms_errors("acknowledging"):
            deleted = self._driver.execute(known.delete_locked, parameters).row_count
        if deleted != len(rows):
            raise TransactionRolledBackException(
                f"{len(rows) - deleted} of {len(rows)} messages were taken away from the transaction that had locked "
                "them: part of it was rolled back, or ended, by other means than the session's. Call rollback(), and "
                "do the work again."
            )

    def present(self, keys: Sequence[MessageKey]) -> list[MessageKey]:
        """Return those of some messages that the open transaction sees."""
        with jms_errors("acknowledging"):
            found = {tuple(row) for row in self._driver.execute(self._statements.present, key_parameters(keys)).rows}
        return [key for key in keys if (key.queue_id, key.inverse_priority, key.sequence) in found]

    def forget_deliveries(self, keys: Sequence[MessageKey]) -> None:
        """Forget how often messages were delivered before that the open transaction has deleted."""
        with jms_errors("acknowledging"):
            self._driver.execute(self._statements.forget_deliveries, key_parameters(keys))

    def is_connected(self, connection_id: int) -> bool:
        """Return whether a client lives for the others, so that they leave it what it has claimed."""
        with jms_errors("receiving"):
            return bool(self._driver.execute(self._statements.is_connected, {"id": connection_id}).rows[0][0])

    def acknowledge(self, claimed: Sequence[tuple[MessageKey, int]]) -> int:
        """Delete claimed messages, given with their claims, and return how many of the claims still held them."""
        keys, claim_ids = zip(*claimed, strict=True)
        with jms_errors("acknowledging"):
            parameters = {**key_parameters(keys), "claim_ids": array_literal(claim_ids)}
            known = self._statements_for({key.queue_id for key in keys})
            return int(self._driver.execute(known.acknowledge, parameters).rows[0][0])

    def browse(self, queue_id: int, selector: Selector | None, after: tuple[int, int], limit: int) -> list[MessageRow]:
        """Read the messages after a key, given as (inverse priority, sequence), in the order of delivery."""
        statement = self._statements.browse(selector)
        parameters = {
            "queue_id": queue_id,
            "inverse_priority": after[0],
            "sequence": after[1],
            "limit": limit,
            **statement.parameters,
        }
        with jms_errors("browsing"):
            return [MessageRow._make(row) for row in self._driver.execute(statement.text, parameters).rows]
