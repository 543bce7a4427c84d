"""Which destinations a client receives from: its control connection writes down what has changed, once a second."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from jmsql.store.rows.arrays import array_literal
from jmsql.store.statement import Query, SqlFile, nothing
from jmsql.values.postgresql_text import to_postgresql

__all__ = ["Consumption", "replace_consumers"]


class Consumption(NamedTuple):
    """What a consumer receives: all messages of a queue, or those that a selector chooses."""

    queue_id: int
    selector: str | None


_replace = SqlFile("control").statement("replace_consumers", "writing down the consumers", nothing)


def replace_consumers(connection_id: int, consumers: Mapping[Consumption, int]) -> Query[None]:
    """Write down which consumers a connection has, in place of what was written before; it is to commit by itself.

    Args:
        connection_id: The number of the client's connection.
        consumers: How many consumers there are of each kind.
    """
    return _replace.bind(
        connection_id=connection_id,
        queue_ids=array_literal(each.queue_id for each in consumers),
        selectors=array_literal(to_postgresql(each.selector or "") for each in consumers),
        consumers=array_literal(consumers.values()),
    )
