"""Moving messages from one queue to another, in steps."""

from __future__ import annotations

from collections.abc import Iterator

from jmsql.selectors import Selector
from jmsql.store.autocommit_connection import AutocommitConnection
from jmsql.store.candidates import by_key
from jmsql.store.errors import jms_errors
from jmsql.store.identifier import Schema
from jmsql.store.inspection import Inspection
from jmsql.store.selection import selector_condition

__all__ = ["Move"]

_MOVED_AT_ONCE = 5000


class Move:
    """Moves messages between queues.

    Args:
        connection: Where each step commits.
        schema: The name of the schema.
    """

    def __init__(self, connection: AutocommitConnection, schema: str) -> None:
        self._connection = connection
        self._schema_name = schema
        self._schema = Schema(schema)
        self._inspection = Inspection(connection, schema)

    def steps(self, source: str, target: str, selector: Selector | None, limit: int | None) -> Iterator[int]:
        """Move the messages that are in a queue now, but for those that a session holds.

        Yields:
            How many were moved, after each step. Each step is a transaction: a message is in one of the queues.

        Raises:
            InvalidDestinationException: One of the queues is not there.
            JMSException: They are the same.
        """
        parameters = {"source": self._inspection.queue_id(source), "target": self._inspection.queue_id(target)}
        with jms_errors("moving messages"):
            newest = self._connection.rows(f"select last_value from {self._schema.internal}.message_sequence")[0][0]
        remaining = limit
        for delayed in (False, True):
            while remaining is None or remaining > 0:
                most = _MOVED_AT_ONCE if remaining is None else min(remaining, _MOVED_AT_ONCE)
                moved = self._step(selector, delayed, most=most, newest=newest, **parameters)
                if not moved:
                    break
                remaining = None if remaining is None else remaining - moved
                yield moved

    def _step(self, selector: Selector | None, delayed: bool, **parameters: object) -> int:
        chosen, selecting = self._chosen(selector, delayed)
        statement = f"""
            select {self._schema.internal}.move_step(
                %(source)s, %(target)s, {chosen}, %(newest)s, %(most)s, {str(delayed).lower()})"""
        with jms_errors("moving messages"):
            return int(self._connection.rows(statement, **parameters, **selecting)[0][0])

    def _chosen(self, selector: Selector | None, delayed: bool) -> tuple[str, dict[str, object]]:
        """Return what makes an array of the sequences that a selector chooses, and its parameters."""
        if selector is None:
            return "null", {}
        condition, selecting = selector_condition(selector, self._schema_name)
        if delayed:
            table, state, order = "delayed_message", "", "m.jms_delivery_time"
        else:
            table, order = "message", "m.inverse_priority"
            state = f"left join {by_key(self._schema.internal, 'delivery', 'd', 'm')} on true"
            condition += " and d.claim_id is null"
        return (
            f"""array(
                select m.sequence from {self._schema.internal}.{table} m {state}
                where m.queue_id = %(source)s and m.sequence <= %(newest)s {condition}
                order by m.queue_id, {order}, m.sequence
                limit %(most)s
                for update of m skip locked)""",
            selecting,
        )
