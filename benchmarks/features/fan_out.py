"""Messages that go to many subscriptions."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from benchmarks.database import BODY, BenchmarkDatabase
from benchmarks.measurement import BenchmarkResult, Contender, Work, at_least, compare
from benchmarks.setting import Setting
from jmsql import Topic

_SUBSCRIPTIONS = 100
_BATCH = 100
_LARGE_BODY = "x" * 65_536
_LARGE_BATCH = 10
_TOPIC = Topic("prices")

_COPY = """
    insert into jmsql_internal.message
        (queue_id, inverse_priority, jms_message_id, jms_timestamp, jms_delivery_mode, message_type, text_body)
    select q.queue_id, 5, s.jms_message_id, s.jms_timestamp, 2, 'TextMessage', s.text_body
    from unnest(%s::uuid[], %s::bigint[], %s::text[]) as s (jms_message_id, jms_timestamp, text_body)
    cross join jmsql_internal.subscription q"""


def fan_out(setting: Setting) -> list[BenchmarkResult]:
    """Publish to 100 durable subscriptions, 100 messages a commit; and bodies of 64 KiB, 10 a commit."""
    database = setting.database
    _subscribe(database)
    found: list[BenchmarkResult] = []
    for name, body, batch in (("", BODY, _BATCH), (", 64 KiB", _LARGE_BODY, _LARGE_BATCH)):
        contenders = [
            Contender(f"jmsql{name}", partial(_publish, database, body, batch), partial(_empty, database)),
            Contender(f"floor{name}", partial(_copy, database, body, batch), partial(_empty, database)),
        ]
        samples = setting.measure(contenders, batch)
        found += compare("fan-out", samples, f"jmsql{name}", {f"floor{name}": at_least(0.6)})
    return found


def selected_fan_out(setting: Setting) -> list[BenchmarkResult]:
    """Publish to 100 durable subscriptions with distinct selectors, beside 100 without; 100 messages a commit."""
    database = setting.database
    topics = {
        "no selectors": None,
        "selectors that choose all messages": "number >= 0 and symbol <> 'none {}'",
        "selectors that choose one message in 100": "symbol = 'symbol {}'",
    }
    for name, selector in topics.items():
        _subscribe(database, Topic(name), selector)
    contenders = [
        Contender(name, partial(_publish_prices, database, Topic(name)), partial(_empty, database)) for name in topics
    ]
    samples = setting.measure(contenders, _BATCH)
    without, *selected = topics
    return [
        result for name in selected for result in compare("fan-out-selectors", samples, name, {without: at_least(0.5)})
    ]


def _subscribe(database: BenchmarkDatabase, topic: Topic = _TOPIC, selector: str | None = None) -> None:
    with database.factory.create_connection() as connection:
        connection.client_id = f"subscribers to {topic.name}"
        with connection.create_session() as session:
            for number in range(_SUBSCRIPTIONS):
                own = None if selector is None else selector.format(number)
                session.create_durable_subscriber(topic, f"subscription {number}", own).close()


def _empty(database: BenchmarkDatabase, _: int) -> None:
    database.execute("truncate jmsql_internal.message, jmsql_internal.body")


@contextmanager
def _publish(database: BenchmarkDatabase, body: str, batch: int) -> Iterator[Work]:
    with database.factory.create_connection() as connection, connection.create_session(transacted=True) as session:
        producer = session.create_producer(_TOPIC)

        def work(count: int) -> None:
            for _ in range(count // batch):
                for _ in range(batch):
                    producer.send(session.create_text_message(body))
                session.commit()

        yield work


@contextmanager
def _publish_prices(database: BenchmarkDatabase, topic: Topic) -> Iterator[Work]:
    """Publish messages with two properties, in batches of 100."""
    with database.factory.create_connection() as connection, connection.create_session(transacted=True) as session:
        producer = session.create_producer(topic)

        def work(count: int) -> None:
            for _ in range(count // _BATCH):
                for number in range(_BATCH):
                    message = session.create_text_message(BODY)
                    message.properties["number"] = number
                    message.properties["symbol"] = f"symbol {number % _SUBSCRIPTIONS}"
                    producer.send(message)
                session.commit()

        yield work


@contextmanager
def _copy(database: BenchmarkDatabase, body: str, batch: int) -> Iterator[Work]:
    with database.connect(autocommit=False) as connection:

        def work(count: int) -> None:
            for _ in range(count // batch):
                now = time.time_ns() // 1_000_000
                parameters = ([uuid.uuid4() for _ in range(batch)], [now] * batch, [body] * batch)
                connection.execute(_COPY, parameters, prepare=True)
                connection.commit()

        yield work
