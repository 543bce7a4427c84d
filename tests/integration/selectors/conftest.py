"""A table of messages that selectors are evaluated on, in PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Iterator

import psycopg
import pytest

from jmsql.messages import Message
from jmsql.selectors import Selector, SelectorSQL
from jmsql.store.identifier import in_schema


class MessageTable:
    """The table ``message`` of a schema, within a transaction that is rolled back."""

    def __init__(self, connection: psycopg.Connection, schema: str) -> None:
        self.connection = connection
        self.schema = schema

    def insert(self, message: Message) -> None:
        """Write a message as a row, as a producer does."""
        encoded = message.encode()
        self.connection.execute(
            f'insert into "{self.schema}_internal".message (queue_id, message_type, inverse_priority, '
            "jms_delivery_mode,"
            " jms_message_id, jms_timestamp, jms_correlation_id, jms_type, properties, property_types)"
            " values (1, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            (
                encoded.message_type,
                9 - message.jms_priority,
                int(message.jms_delivery_mode),
                message.jms_message_id and message.jms_message_id.removeprefix("ID:"),
                message.jms_timestamp or None,
                encoded.correlation_id,
                encoded.type,
                encoded.properties,
                encoded.property_types,
            ),
        )

    def insert_properties(self, properties: object) -> None:
        """Write a row with properties that no producer would write."""
        text = properties if isinstance(properties, str) else json.dumps(properties)
        self.connection.execute(
            f'insert into "{self.schema}_internal".message'
            " (queue_id, message_type, inverse_priority, jms_delivery_mode, properties)"
            " values (1, 'Message', 5, 2, %s)",
            (text,),
        )

    def condition(self, selector: Selector) -> SelectorSQL:
        """Return a selector's condition for the schema."""
        sql = selector.to_sql()
        return sql._replace(condition=in_schema(sql.condition, self.schema))

    def evaluate(self, selector: str) -> list[bool | None]:
        """What the selector says of each row, in the order of their insertion."""
        parsed = Selector.parse(selector)
        assert parsed is not None
        return self.evaluate_sql(self.condition(parsed))

    def evaluate_sql(self, sql: SelectorSQL) -> list[bool | None]:
        """What a condition says of each row, in the order of their insertion."""
        query = f'select {sql.condition} from "{self.schema}_internal".message m where queue_id = 1 order by sequence'
        return [row[0] for row in self.connection.execute(query, sql.parameters)]


@pytest.fixture
def message_table(jmsql_url: str, jmsql_schema: str) -> Iterator[MessageTable]:
    """The table, empty of messages of queue 1."""
    with psycopg.connect(jmsql_url) as connection:
        yield MessageTable(connection, jmsql_schema)
        connection.rollback()
