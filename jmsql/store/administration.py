"""What an administrator asks of the store: which queues and clients there are, what a queue holds, and to empty it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import chain, islice
from operator import attrgetter
from types import TracebackType
from typing import Any, NamedTuple, Self

from jmsql.destinations import Queue
from jmsql.exceptions import InvalidDestinationException
from jmsql.messages import Message
from jmsql.selectors import Selector
from jmsql.store.autocommit_connection import AutocommitConnection
from jmsql.store.driver import PsycopgDriver
from jmsql.store.errors import jms_errors
from jmsql.store.identifier import quote_identifier
from jmsql.store.migration import check_schema, current_version
from jmsql.store.rows import MessageRow
from jmsql.store.statements import message_columns
from jmsql.store.subscriptions import Subscriptions

__all__ = [
    "Administration",
    "BrowsedMessage",
    "ClientSummary",
    "QueueSummary",
    "SubscriptionSummary",
    "client_summaries",
    "schema_version",
]

_BROWSED_AT_ONCE = 100
_PURGED_AT_ONCE = 5000


class QueueSummary(NamedTuple):
    """A row of the view ``queues``."""

    queue: str
    ready: int
    claimed: int
    waiting: int
    expired: int
    redelivered: int
    oldest_sent_at: datetime | None
    expiry_queue: str | None
    created_at: datetime
    delayed: int


class SubscriptionSummary(NamedTuple):
    """A row of the view ``subscriptions``."""

    topic: str
    subscription: str | None
    client_id: str | None
    durable: bool
    shared: bool
    selector: str | None
    no_local: bool
    consumers: int
    ready: int
    claimed: int
    waiting: int
    expired: int
    redelivered: int
    oldest_sent_at: datetime | None
    created_at: datetime


class ClientSummary(NamedTuple):
    """A row of the view ``clients``."""

    connection_id: int
    client_id: str | None
    user_name: str
    host: str
    process_id: int
    started_at: datetime
    connected: bool
    claimed: int


class DeliveryState(NamedTuple):
    """Where the delivery of a message stands."""

    state: str
    delivery_count: int
    claimed_by: int | None
    next_attempt: datetime | None
    last_error: str | None


class BrowsedMessage(NamedTuple):
    """A message, and where its delivery stands."""

    message: Message
    delivery: DeliveryState


class Administration:
    """Looks at queues, and looks after them. Each statement commits by itself.

    Args:
        url: Where the database is.
        schema: The name of the schema.

    Raises:
        JMSException: The database cannot be reached, or the schema is missing or of another version.
    """

    def __init__(self, url: str, schema: str) -> None:
        self._schema_name = schema
        self._schema = quote_identifier(schema)
        self._connection = AutocommitConnection(url)
        try:
            with jms_errors("looking at the schema"):
                check_schema(self._connection.sqlalchemy, schema)
        except BaseException:
            self._connection.close()
            raise

    def queues(self) -> list[QueueSummary]:
        """Return all queues, by name, with the number of their messages."""
        columns = ", ".join(QueueSummary._fields)
        with jms_errors("looking at the queues"):
            return [
                QueueSummary._make(row)
                for row in self._connection.rows(f"select {columns} from {self._schema}.queues order by queue")
            ]

    def subscriptions(self) -> list[SubscriptionSummary]:
        """Return all subscriptions, by topic and name, with the number of their messages."""
        columns = ", ".join(SubscriptionSummary._fields)
        statement = f"select {columns} from {self._schema}.subscriptions order by topic, subscription, client_id"
        with jms_errors("looking at the subscriptions"):
            return [SubscriptionSummary._make(row) for row in self._connection.rows(statement)]

    def unsubscribe(self, name: str, client_id: str | None) -> None:
        """End a durable subscription, with its messages.

        Raises:
            InvalidDestinationException: There is none of that name for the client identifier.
            IllegalStateException: It has a consumer, or messages that a session has not acknowledged.
        """
        with jms_errors("ending a subscription"), self._connection.psycopg.transaction():
            Subscriptions(PsycopgDriver(self._connection.psycopg), self._schema_name).unsubscribe(name, client_id)

    def clients(self) -> list[ClientSummary]:
        """Return the connections of clients, the oldest first."""
        return client_summaries(self._connection, self._schema_name)

    def queue_id(self, queue: str) -> int:
        """Return the number of a queue.

        Raises:
            InvalidDestinationException: There is no such queue.
        """
        with jms_errors(f"looking up the queue {queue!r}"):
            rows = self._connection.rows(f"select queue_id from {self._schema}.queue where name = %(name)s", name=queue)
        if not rows:
            raise InvalidDestinationException(f"There is no queue {queue!r}. `jmsql queues` lists those there are.")
        return int(rows[0][0])

    def count(self, queue: str, selector: Selector | None) -> int:
        """Return how many messages a queue holds that match a selector, whatever their state."""
        condition, parameters = self._condition(selector)
        counts = (
            f"(select count(*) from {self._schema}.{table} m where m.queue_id = %(queue_id)s {condition})"
            for table in ("message", "delayed_message")
        )
        statement = f"select {' + '.join(counts)}"
        queue_id = self.queue_id(queue)
        with jms_errors("counting"):
            return int(self._connection.rows(statement, queue_id=queue_id, **parameters)[0][0])

    def browse(self, queue: str, selector: Selector | None, limit: int) -> Iterator[BrowsedMessage]:
        """Return the first messages of a queue in their order, whatever their state; those that are delayed come last.

        Raises:
            InvalidDestinationException: There is no such queue.
        """
        condition, parameters = self._condition(selector)
        parameters |= {"queue_id": self.queue_id(queue), "limit": min(limit, _BROWSED_AT_ONCE)}
        columns = message_columns(self._schema)
        expired = f"m.jms_expiration <= {self._schema}.current_milliseconds()"
        present = f"""
            select {columns}, d.delivery_count, null,
                   case when {expired} then 'expired'
                        when d.claim_id is not null then 'claimed'
                        when d.next_attempt > statement_timestamp() then 'waiting'
                        else 'ready' end,
                   coalesce(d.delivery_count, 0), d.connection_id, d.next_attempt, d.last_error
            from {self._schema}.message m
            left join {self._schema}.delivery d
              on (d.queue_id, d.inverse_priority, d.sequence) = (m.queue_id, m.inverse_priority, m.sequence)
            where m.queue_id = %(queue_id)s
              and (m.inverse_priority, m.sequence) > (%(first)s::smallint, %(sequence)s::bigint)
              {condition}
            order by m.queue_id, m.inverse_priority, m.sequence
            limit %(limit)s"""
        delayed = f"""
            select {columns}, null, null, case when {expired} then 'expired' else 'delayed' end, 0, null, null, null
            from {self._schema}.delayed_message m
            where m.queue_id = %(queue_id)s
              and (m.jms_delivery_time, m.sequence) > (%(first)s::bigint, %(sequence)s::bigint)
              {condition}
            order by m.queue_id, m.jms_delivery_time, m.sequence
            limit %(limit)s"""
        found = chain(
            self._pages(present, parameters, attrgetter("inverse_priority")),
            self._pages(delayed, parameters, attrgetter("jms_delivery_time")),
        )
        for row, state in islice(found, limit):
            yield BrowsedMessage(row.message(Queue(queue)), state)

    def _pages(
        self, statement: str, parameters: dict[str, Any], first: Callable[[MessageRow], int]
    ) -> Iterator[tuple[MessageRow, DeliveryState]]:
        """Return messages page by page.

        Args:
            statement: Returns a page of them, from a place on.
            parameters: Its parameters, but for the place.
            first: The first half of a message's place; the other is its sequence.
        """
        width = len(MessageRow._fields)
        place = {"first": -1, "sequence": 0}
        while True:
            with jms_errors("browsing"):
                rows = self._connection.rows(statement, **place, **parameters)
            for values in rows:
                row = MessageRow._make(values[:width])
                place = {"first": first(row), "sequence": row.sequence}
                yield row, DeliveryState._make(values[width:])
            if len(rows) < parameters["limit"]:
                return

    def purge(self, queue: str, selector: Selector | None) -> Iterator[int]:
        """Delete the messages that are in a queue now, but for those that a session holds.

        Yields:
            How many were deleted, after each step. Each step commits.

        Raises:
            InvalidDestinationException: There is no such queue.
        """
        condition, parameters = self._condition(selector)
        # The state is read under the rows' locks: a claim cannot come in between.
        statement = f"""
            with candidate as materialized (
                select m.ctid as address, m.inverse_priority, m.sequence
                from {self._schema}.message m
                where m.queue_id = %(queue_id)s and m.sequence <= %(newest)s
                  and (m.inverse_priority, m.sequence) > (%(inverse_priority)s::smallint, %(sequence)s::bigint)
                  {condition}
                order by m.queue_id, m.inverse_priority, m.sequence
                limit %(limit)s
                for update of m skip locked),
            state as materialized (
                select s.* from {self._schema}.delivery_state(%(queue_id)s,
                    (select array_agg(inverse_priority) from candidate),
                    (select array_agg(sequence) from candidate)) s),
            deleted as (
                delete from {self._schema}.message m using candidate c
                where m.ctid = c.address and not exists (
                    select from state s where s.claim_id is not null
                      and (s.inverse_priority, s.sequence) = (c.inverse_priority, c.sequence))
                returning m.queue_id, m.inverse_priority, m.sequence),
            forgotten as (
                delete from {self._schema}.delivery d using deleted m
                where (d.queue_id, d.inverse_priority, d.sequence) = (m.queue_id, m.inverse_priority, m.sequence))
            select c.inverse_priority, c.sequence, (select count(*) from deleted)
            from candidate c order by c.inverse_priority desc, c.sequence desc limit 1"""
        place = {"queue_id": self.queue_id(queue), "inverse_priority": -1, "sequence": 0}
        with jms_errors("purging"):
            newest = self._connection.rows(f"select last_value from {self._schema}.message_sequence")[0][0]
        while True:
            with jms_errors("purging"):
                rows = self._connection.rows(statement, newest=newest, limit=_PURGED_AT_ONCE, **place, **parameters)
            if not rows:
                break
            place["inverse_priority"], place["sequence"], deleted = rows[0]
            yield deleted
        delayed = f"""
            with deleted as (
                delete from {self._schema}.delayed_message where ctid = any(array(
                    select m.ctid from {self._schema}.delayed_message m
                    where m.queue_id = %(queue_id)s and m.sequence <= %(newest)s {condition}
                    limit %(limit)s
                    for update skip locked))
                returning queue_id)
            select count(*) from deleted"""
        parameters |= {"queue_id": place["queue_id"], "newest": newest, "limit": _PURGED_AT_ONCE}
        while deleted := self._purge_delayed(delayed, parameters):
            yield deleted

    def _purge_delayed(self, statement: str, parameters: dict[str, object]) -> int:
        with jms_errors("purging"):
            return int(self._connection.rows(statement, **parameters)[0][0])

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _condition(self, selector: Selector | None) -> tuple[str, dict[str, object]]:
        if selector is None:
            return "", {}
        chosen = selector.to_sql(self._schema_name)
        return f"and ({chosen.condition})", chosen.parameters


def client_summaries(connection: AutocommitConnection, schema: str) -> list[ClientSummary]:
    """Return the connections of clients, the oldest first."""
    columns = ", ".join(ClientSummary._fields)
    with jms_errors("looking at the clients"):
        rows = connection.rows(f"select {columns} from {quote_identifier(schema)}.clients order by connection_id")
    return [ClientSummary._make(row) for row in rows]


def schema_version(url: str, schema: str) -> str | None:
    """Return the version of the schema in a database, or None if the schema is not there.

    Raises:
        JMSException: The database cannot be reached.
    """
    with AutocommitConnection(url) as connection, jms_errors("looking at the schema"):
        return current_version(connection.sqlalchemy, schema)
