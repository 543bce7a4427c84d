"""A past: messages that real consumers have received, let fail, and not received in time, and an archive of it."""

from __future__ import annotations

import urllib.parse
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pyarrow as pa
import pyarrow.parquet

import jmsql
from jmsql.testing import wait_for

__all__ = ["MARKUP", "archive_history", "make_past"]

MARKUP = "<b>&'\"$x$"
"""The name of a queue that means something in HTML, and to who sets mathematics."""

_PROPERTY = pa.struct(
    [
        ("type", pa.string()),
        ("boolean", pa.bool_()),
        ("long", pa.int64()),
        ("double", pa.float64()),
        ("string", pa.string()),
    ]
)
_DEAD: LiteralString = "select count(*) from jmsql.dead_letters"
_EXPIRED: LiteralString = "select count(*) from jmsql.history where outcome = 'expired'"
_TIME = pa.timestamp("us", tz="UTC")
_SCHEMA = pa.schema(
    [
        ("sequence", pa.int64()),
        ("message_id", pa.string()),
        ("sent_at", _TIME),
        ("delivery_time", _TIME),
        ("properties", pa.map_(pa.string(), _PROPERTY)),
        ("text_body", pa.string()),
        ("json_body", pa.string()),
        ("bytes_body", pa.binary()),
        ("delivery_count", pa.int32()),
        ("acknowledged_at", _TIME),
        ("outcome", pa.string()),
        ("subscription", pa.string()),
        ("subscription_client_id", pa.string()),
        ("connection_id", pa.int64()),
        ("client_id", pa.string()),
        ("transaction_id", pa.int64()),
    ]
)


def make_past(factory: jmsql.ConnectionFactory, database: psycopg.Connection[Any]) -> None:
    """Send and receive, and spread over some hours what has been acknowledged."""
    with jmsql.admin.Administration(factory) as administration:
        orders = administration.create_queue("orders", history=True, maximum_deliveries=2)
        administration.create_queue("DLQ", history=True)
        odd = administration.create_queue(MARKUP, history=True)
        prices = administration.create_topic("prices", history=True)
    with factory.create_connection() as connection:
        session = connection.create_session(transacted=True)
        connection.start()
        audit = session.create_shared_durable_consumer(prices, "audit")
        producer = session.create_producer()
        for number in range(60):
            message = session.create_text_message("é" * (number % 7))
            if number % 3:
                message.set_string_property("JMSXGroupID", f"customer {number % 5}")
            producer.send(message, orders)
        for number in range(8):
            item = session.create_map_message()
            item["number"] = number
            producer.delivery_delay = 0.01 if number % 2 else 0.0
            producer.send(item, odd)
            producer.delivery_delay = 0.0
            price = session.create_bytes_message()
            price.write_bytes(bytes(number))
            producer.send(price, prices)
        session.commit()
        for _ in range(8):
            assert audit.receive(timeout=5) is not None
        session.commit()
    _take(factory, orders, 25, "warehouse")
    _take(factory, orders, 20, "warehouse", fail_first=4)
    _take(factory, orders, 15, None)
    wait_for(lambda: database.execute("select count(*) from jmsql_internal.delayed_message").fetchone() == (0,))
    _take(factory, odd, 8, None)
    _let_some_die(factory, database, orders)
    _spread(database)


def _take(
    factory: jmsql.ConnectionFactory, queue: jmsql.Queue, number: int, client_id: str | None, *, fail_first: int = 0
) -> None:
    with factory.create_connection() as connection:
        if client_id is not None:
            connection.client_id = client_id
        session = connection.create_session(transacted=True)
        connection.start()
        consumer = session.create_consumer(queue)
        for count, end in ((fail_first, session.rollback), (number, session.commit)):
            for _ in range(count):
                assert consumer.receive(timeout=5) is not None
            end()


def _let_some_die(factory: jmsql.ConnectionFactory, database: psycopg.Connection[Any], orders: jmsql.Queue) -> None:
    """Three messages fail for good, one of which is taken from the dead-letter queue, and two expire."""
    with factory.create_connection() as connection:
        session = connection.create_session(transacted=True)
        connection.start()
        producer = session.create_producer(orders)
        consumer = session.create_consumer(orders)
        consumer.redelivery_policy = jmsql.RedeliveryPolicy(maximum_deliveries=2)
        for number, mistake in enumerate(("no such kite", "no such kite", "out of wind"), start=1):
            producer.send(session.create_text_message("poison"))
            session.commit()
            for _ in range(2):
                assert consumer.receive(timeout=5) is not None
                session.rollback(KeyError(mistake))
            wait_for(lambda number=number: database.execute(_DEAD).fetchone() == (number,))  # type: ignore[misc]
        assert session.create_consumer(jmsql.Queue("DLQ"), "JMS_jmsql_Deliveries = 2").receive(timeout=5) is not None
        consumer.close()
        for _ in range(2):
            producer.send(session.create_text_message("late"), time_to_live=0.01)
        session.commit()
        wait_for(lambda: database.execute(_EXPIRED).fetchone() == (2,))


def _spread(database: psycopg.Connection[Any]) -> None:
    """Let what was acknowledged be so within three hours on two days, after some time in the queue."""
    days: LiteralString = "select jmsql_internal.make_history_partition(current_date - n) from generate_series(0, 2) n"
    database.execute(days)
    database.execute(
        """
        update jmsql_internal.message_history
        set acknowledged_at = moment,
            jms_timestamp = extract(epoch from moment - interval '7 milliseconds' * (sequence * 131 %% 977)) * 1000,
            jms_delivery_time = jms_delivery_time - extract(epoch from acknowledged_at - moment)::bigint * 1000
        from (select h.sequence as number,
                     date_trunc('day', now(), 'UTC') - interval '45 minutes' + interval '29 minutes' * (h.sequence %% 5)
                     + interval '1 microsecond' * h.sequence as moment
              from jmsql_internal.message_history h) as new
        where number = sequence and outcome = 'acknowledged' and destination <> 'DLQ'""",
        [],
    )


def archive_history(database: psycopg.Connection[Any], directory: Path, condition: LiteralString) -> int:
    """Write a part of the history to an archive, and return how many messages that are."""
    found = database.execute(
        f"""
        select destination_type || '://' || destination as uri, (acknowledged_at at time zone 'UTC')::date as day,
               sequence, message_id, sent_at, delivery_time, properties, text_body, json_body::text as json_body,
               bytes_body, delivery_count, acknowledged_at, outcome, subscription, subscription_client_id,
               consumed_by as connection_id, client_id, transaction_id::text::bigint as transaction_id
        from jmsql.history where {condition}"""
    )
    assert found.description is not None
    names = [column.name for column in found.description]
    parts: dict[Path, list[dict[str, Any]]] = {}
    for values in found.fetchall():
        row = dict(zip(names, values, strict=True))
        name = urllib.parse.quote(row.pop("uri"), safe=" <>&$")
        row["properties"] = {key: _typed(value) for key, value in row["properties"].items()}
        parts.setdefault(directory / f"destination={name}" / f"day={row.pop('day')}" / "batch=0", []).append(row)
    for place, rows in parts.items():
        place.mkdir(parents=True)
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows, _SCHEMA), place / "part-0.parquet")
    return sum(map(len, parts.values()))


def _typed(value: object) -> dict[str, object]:
    return {"type": "string", "string": value} if isinstance(value, str) else {"type": "long", "long": value}
