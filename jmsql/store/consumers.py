"""Which destinations a client receives from: its control connection writes down what has changed, once a second."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from jmsql.postgresql_text import to_postgresql
from jmsql.store.driver import Driver
from jmsql.store.identifier import quote_identifier
from jmsql.store.rows import array_literal

__all__ = ["Consumption", "write_consumers"]


class Consumption(NamedTuple):
    """What a consumer receives: all messages of a queue, or those that a selector chooses."""

    queue_id: int
    selector: str | None


@cache
def _statement(schema_name: str) -> str:
    schema = quote_identifier(schema_name)
    return f"""
        with given as (
            select g.* from unnest(%(queue_ids)s::integer[], %(selectors)s::text[], %(consumers)s::integer[])
                as g (queue_id, selector, consumers)
            where exists (select from {schema}.connection c where c.connection_id = %(connection_id)s)),
        gone as (
            update {schema}.consumer c set consumers = 0
            where c.connection_id = %(connection_id)s
              and not exists (select from given g where (g.queue_id, g.selector) = (c.queue_id, c.selector)))
        insert into {schema}.consumer as c (connection_id, queue_id, selector, consumers)
        select %(connection_id)s, g.* from given g
        on conflict (connection_id, queue_id, selector) do update set consumers = excluded.consumers
        where c.consumers <> excluded.consumers"""


def write_consumers(driver: Driver, schema_name: str, connection_id: int, consumers: Mapping[Consumption, int]) -> None:
    """Write down which consumers a connection has, in place of what was written before.

    Args:
        driver: A connection in autocommit mode.
        schema_name: The plain name of the schema.
        connection_id: The number of the client's connection.
        consumers: How many consumers there are of each kind.
    """
    parameters = {
        "connection_id": connection_id,
        "queue_ids": array_literal(each.queue_id for each in consumers),
        "selectors": array_literal(to_postgresql(each.selector or "") for each in consumers),
        "consumers": array_literal(consumers.values()),
    }
    driver.execute(_statement(schema_name), parameters)
