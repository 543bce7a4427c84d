"""Messages that have left their destinations: which ones are meant, a look at them, and their way back to a queue."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg

from jmsql.destinations import Destination, Queue, Topic
from jmsql.messages import Message
from jmsql.selectors import Selector
from jmsql.store.autocommit_connection import AutocommitConnection
from jmsql.store.columns import message_columns
from jmsql.store.errors import jms_errors
from jmsql.store.identifier import Schema
from jmsql.store.inspection import Inspection
from jmsql.store.rows import MessageRow
from jmsql.store.selection import selector_condition

__all__ = ["HistoryEntry", "HistoryRange", "PastMessage", "PastMessages"]

_READ_AT_ONCE = 100
_REPLAYED_AT_ONCE = 5000


class HistoryEntry(NamedTuple):
    """How a message left its destination, as the view ``history`` says it."""

    destination: str
    destination_type: str
    subscription: str | None
    acknowledged_at: datetime
    outcome: str
    delivery_count: int
    time_in_queue: timedelta | None
    consumed_by: int | None
    client_id: str | None
    user_name: str


class PastMessage(NamedTuple):
    """A message, and how it left its destination."""

    message: Message
    entry: HistoryEntry


@dataclass(frozen=True, slots=True)
class HistoryRange:
    """Which messages of the history are meant. What is None does not matter.

    Args:
        destination: Where they were.
        since: They left it then or later.
        until: They left it before.
        selector: What they match.
        outcomes: How they left it: "acknowledged", "expired", "dead-lettered", "purged".
        subscription: The name of the subscription to the topic.
        message_id: The JMSMessageID.
    """

    destination: Destination | None = None
    since: datetime | None = None
    until: datetime | None = None
    selector: Selector | None = None
    outcomes: Sequence[str] | None = None
    subscription: str | None = None
    message_id: str | None = None

    def condition(self, schema: str) -> tuple[str, dict[str, object]]:
        """Return the condition on a row `m` of the history, and its parameters."""
        chosen, parameters = selector_condition(self.selector, schema)
        conditions = {
            "m.destination = %(destination)s": None if self.destination is None else self.destination.name,
            "m.is_topic = %(is_topic)s": None if self.destination is None else isinstance(self.destination, Topic),
            "m.acknowledged_at >= %(since)s": self.since,
            "m.acknowledged_at < %(until)s": self.until,
            "m.outcome::text = any(%(outcomes)s::text[])": None if self.outcomes is None else list(self.outcomes),
            "m.subscription = %(subscription)s": self.subscription,
            "m.jms_message_id::text = %(message_id)s": self.message_id and self.message_id.removeprefix("ID:"),
        }
        given = {condition: value for condition, value in conditions.items() if value is not None}
        parameters |= {condition.partition("%(")[2].partition(")")[0]: value for condition, value in given.items()}
        return f"{' and '.join(['true', *given])} {chosen}", parameters


class PastMessages:
    """Reads the history, and sends what is in it again.

    Args:
        connection: Where to ask.
        schema: The name of the schema.
    """

    def __init__(self, connection: AutocommitConnection, schema: str) -> None:
        self._connection = connection
        self._schema_name = schema
        self._schema = Schema(schema)

    def count(self, which: HistoryRange) -> int:
        """Return how many there are."""
        condition, parameters = which.condition(self._schema_name)
        statement = f"select count(*) from {self._schema.internal}.message_history m where {condition}"
        with jms_errors("counting the history"):
            return int(self._connection.rows(statement, **parameters)[0][0])

    def read(self, which: HistoryRange, limit: int) -> Iterator[PastMessage]:
        """Return up to `limit` of them, the last one to leave first."""
        condition, parameters = which.condition(self._schema_name)
        statement = f"""
            select {message_columns(self._schema.internal)}, null, greatest(m.delivery_count - 1, 0), null,
                   m.transaction_id::text, m.destination, case when m.is_topic then 'topic' else 'queue' end,
                   m.subscription, m.acknowledged_at, m.outcome::text, m.delivery_count,
                   m.acknowledged_at - {self._schema.internal}.to_timestamp(greatest(m.jms_timestamp,
                       m.jms_delivery_time)),
                   m.connection_id, m.client_id, m.user_name
            from {self._schema.internal}.message_history m
            where (m.transaction_id, m.sequence) < (%(transaction)s::xid8, %(sequence)s::bigint) and {condition}
            order by m.transaction_id desc, m.sequence desc
            limit %(limit)s"""
        width = len(MessageRow._fields)
        place: dict[str, Any] = {"transaction": str(2**64 - 1), "sequence": 0}
        while limit > 0:
            wanted = min(limit, _READ_AT_ONCE)
            with jms_errors("reading the history"):
                rows = self._connection.rows(statement, limit=wanted, **place, **parameters)
            for values in rows:
                row, entry = MessageRow._make(values[:width]), HistoryEntry._make(values[width + 1 :])
                place = {"transaction": values[width], "sequence": row.sequence}
                origin = Topic(entry.destination) if entry.destination_type == "topic" else Queue(entry.destination)
                yield PastMessage(row.message(origin), entry)
            limit = limit - wanted if len(rows) == wanted else 0

    def replay(
        self, which: HistoryRange, target: str, *, keep_ids: bool, progress: Callable[[int, int], None] | None
    ) -> int:
        """Send messages to a queue again, each once, in the order in which they were sent, in one transaction.

        Args:
            which: The messages, of one destination.
            target: The name of the queue.
            keep_ids: Whether they keep their message ids and timestamps.
            progress: Called with how many were sent and how many there are; None: nobody wants to know.

        Returns:
            How many were sent.

        Raises:
            InvalidDestinationException: There is no such queue.
        """
        assert which.destination is not None
        condition, parameters = which.condition(self._schema_name)
        queue_id = Inspection(self._connection, self._schema_name).queue_id(target)
        # A message of a topic is in the history of each subscription that had it.
        identity = "coalesce(m.jms_message_id::text, m.sequence::text)"
        keys = f"""
            select transaction_id::text, sequence from (
                select distinct on ({identity}) m.transaction_id, m.sequence
                from {self._schema.internal}.message_history m where {condition} order by {identity}, m.sequence) k
            order by sequence"""
        send = f"""
            select {self._schema.internal}.replay_messages(
                %(source)s, %(transactions)s::xid8[], %(sequences)s::bigint[], %(since)s::timestamptz,
                %(until)s::timestamptz, %(target)s::integer, %(keep_ids)s)"""
        fixed = {
            "source": which.destination.name,
            "since": which.since or "-infinity",
            "until": which.until or "infinity",
            "target": queue_id,
            "keep_ids": keep_ids,
        }
        sent = 0
        connection = self._connection.psycopg
        with jms_errors("replaying"), connection.transaction():
            # What is pruned meanwhile is still there for this transaction.
            connection.execute("set transaction isolation level repeatable read")
            with connection.cursor("replay", scrollable=True) as found:
                found.execute(keys.encode(), parameters)
                total = connection.execute("move forward all in replay").rowcount
                connection.execute("move absolute 0 in replay")
                while rows := found.fetchmany(_REPLAYED_AT_ONCE):
                    transactions, sequences = zip(*rows, strict=True)
                    sent += _number(
                        connection,
                        send,
                        {**fixed, "transactions": list(transactions), "sequences": list(sequences)},
                    )
                    if progress is not None:
                        progress(sent, total)
            notify = "select pg_notify(%(schema)s, %(queue)s)"
            connection.execute(notify, {"schema": self._schema_name, "queue": str(queue_id)})
        return sent


def _number(connection: psycopg.Connection[Any], statement: str, parameters: dict[str, object]) -> int:
    found = connection.execute(statement.encode(), parameters).fetchone()
    assert found is not None
    return int(found[0])
