"""Dead letters: a look at them, and the way back to where they come from."""

from datetime import datetime
from typing import Any, NamedTuple

from jmsql.selectors import Selector
from jmsql.store.autocommit_connection import AutocommitConnection
from jmsql.store.driver import Driver
from jmsql.store.errors import jms_errors
from jmsql.store.identifier import Schema
from jmsql.store.inspection import Inspection
from jmsql.store.selection import selector_condition

__all__ = ["DeadLetter", "DeadLetters", "Retry", "dead_letter_queues"]


class DeadLetter(NamedTuple):
    """A row of the view ``dead_letters``."""

    queue: str
    sequence: int
    original_destination: str | None
    original_subscription: str | None
    reason: str
    deliveries: int | None
    error: str | None
    first_failed_at: datetime | None
    died_at: datetime
    message_id: str | None
    type: str
    priority: int
    sent_at: datetime | None
    expires_at: datetime | None
    correlation_id: str | None
    jms_type: str | None
    properties: dict[str, Any]
    body: str | None
    original_client_id: str | None
    last_error: str | None


class Retry(NamedTuple):
    """What a retry has done."""

    returned: dict[str, int]
    """How many dead letters went back, by destination."""
    left: int
    """How many stay, since a session holds them, or the destination or subscription that they come from is gone."""


class DeadLetters:
    """The dead letters in a database.

    Args:
        connection: Where each call is a transaction.
        schema: The name of the schema.
    """

    def __init__(self, connection: AutocommitConnection, schema: str) -> None:
        self._connection = connection
        self._schema_name = schema
        self._schema = Schema(schema)

    def first(self, queue: str | None, selector: Selector | None, limit: int) -> list[DeadLetter]:
        """Return the dead letters that died last, at most so many.

        Args:
            queue: Those in this queue; None: in all.
            selector: Which of them; None: all.
            limit: How many.
        """
        condition, parameters = self._chosen(selector)
        if queue is not None:
            condition += " and m.queue_id = %(queue_id)s"
            parameters["queue_id"] = Inspection(self._connection, self._schema_name).queue_id(queue)
        columns = ", ".join(f"d.{name}" for name in DeadLetter._fields)
        statement = f"""
            select {columns}
            from {self._schema}.dead_letters d
            join {self._schema.internal}.queue q on q.name = d.queue
            join {self._schema.internal}.message m on m.queue_id = q.queue_id and m.sequence = d.sequence
            where {condition}
            order by d.died_at desc, d.sequence desc
            limit %(limit)s"""
        with jms_errors("looking at dead letters"):
            return [DeadLetter._make(row) for row in self._connection.rows(statement, limit=limit, **parameters)]

    def retry(self, queue: str, selector: Selector | None, limit: int | None) -> Retry:
        """Move dead letters back to where they come from, in one transaction.

        Raises:
            InvalidDestinationException: There is no such queue.
        """
        queue_id = Inspection(self._connection, self._schema_name).queue_id(queue)
        condition, parameters = self._chosen(selector)
        statement = f"""
            with chosen as materialized (
                select m.inverse_priority, m.sequence from {self._schema.internal}.message m
                where m.queue_id = %(queue_id)s and {condition}
                order by m.queue_id, m.inverse_priority, m.sequence
                limit %(limit)s::bigint)
            select r.destination, r.subscription, r.returned
            from (select array_agg(inverse_priority) as inverse_priorities, array_agg(sequence) as sequences
                  from chosen) k
            cross join lateral {self._schema.internal}.return_dead_letters(
                %(queue_id)s, k.inverse_priorities, k.sequences) r
            union all
            select null, null, count(*) from chosen"""
        with jms_errors("moving dead letters back"):
            rows = self._connection.rows(statement, queue_id=queue_id, limit=limit, **parameters)
        returned = {
            destination if subscription is None else f"{destination} ({subscription})": int(count)
            for destination, subscription, count in rows
            if destination is not None
        }
        chosen = next(int(count) for destination, _, count in rows if destination is None)
        return Retry(returned, chosen - sum(returned.values()))

    def _chosen(self, selector: Selector | None) -> tuple[str, dict[str, object]]:
        condition, parameters = selector_condition(selector, self._schema_name)
        return f"m.properties ? 'JMS_jmsql_DeadLetterReason' {condition}", parameters


def dead_letter_queues(driver: Driver, schema: str) -> list[str]:
    """Return the names of the queues in which dead letters wait.

    Args:
        driver: Where to look.
        schema: The plain name of the schema.
    """
    quoted = Schema(schema)
    statement = f"""
        select q.name from {quoted.internal}.queue q
        where q.name is not null and exists (
            select from {quoted.internal}.message m
            where m.queue_id = q.queue_id and m.properties ? 'JMS_jmsql_DeadLetterReason')
        order by q.name"""
    return [name for (name,) in driver.execute(statement).rows]
