"""What the metrics of a store say is what is in it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest
import sqlalchemy
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import jmsql
from jmsql.metrics import StoreCollector, register
from jmsql.testing import receive_all, wait_for
from tests.integration.metrics.dead_letters import insert_letters


def labels(destination: str, kind: str = "queue", subscription: str = "", **more: str) -> dict[str, str]:
    return {"kind": kind, "destination": destination, "subscription": subscription, "client_id": "", **more}


@pytest.fixture
def registry(jmsql_clean_url: str) -> Iterator[CollectorRegistry]:
    """One that looks at the store."""
    registry = CollectorRegistry()
    collector = StoreCollector(jmsql_clean_url)
    registry.register(collector)
    yield registry
    collector.close()


@pytest.fixture
def connection(jmsql_factory: jmsql.ConnectionFactory) -> Iterator[jmsql.Connection]:
    with jmsql_factory.create_connection() as connection:
        connection.start()
        yield connection


def states(registry: CollectorRegistry, destination: str) -> dict[str, float]:
    found = {
        state: registry.get_sample_value("jmsql_messages", labels(destination, state=state))
        for state in ("ready", "claimed", "waiting", "delayed", "expired")
    }
    return {state: number for state, number in found.items() if number}


def test_depth_by_state(registry: CollectorRegistry, connection: jmsql.Connection) -> None:
    session = connection.create_session(acknowledge_mode=jmsql.AcknowledgeMode.CLIENT)
    orders = jmsql.Queue("orders")
    producer = session.create_producer(orders)
    for _ in range(3):
        producer.send(session.create_message())
    producer.delivery_delay = 600.0
    producer.send(session.create_message())
    consumer = session.create_consumer(orders)
    receive_all(consumer)
    session.recover()
    consumer.receive(0)
    consumer.close()
    assert states(registry, "orders") == {"ready": 2.0, "claimed": 1.0, "delayed": 1.0}
    assert registry.get_sample_value("jmsql_messages_redelivered", labels("orders")) == 3.0
    claim_age = registry.get_sample_value("jmsql_oldest_claim_age_seconds", labels("orders"))
    assert claim_age is not None
    assert 0 < claim_age < 60


def test_the_age_of_the_oldest(registry: CollectorRegistry, connection: jmsql.Connection, jmsql_clean_url: str) -> None:
    session = connection.create_session()
    session.create_producer(jmsql.Queue("orders")).send(session.create_message())
    url = sqlalchemy.make_url(jmsql_clean_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url) as database:
        database.execute("update jmsql_internal.message set jms_timestamp = jms_timestamp - 90000")
    age = registry.get_sample_value("jmsql_oldest_message_age_seconds", labels("orders"))
    assert age is not None
    assert 90 <= age < 150


def test_counters_and_consumers(registry: CollectorRegistry, connection: jmsql.Connection) -> None:
    session = connection.create_session(transacted=True)
    orders = jmsql.Queue("orders")
    for _ in range(2):
        session.create_producer(orders).send(session.create_message())
    session.commit()
    consumer = session.create_consumer(orders)
    receive_all(consumer)
    session.rollback()
    receive_all(consumer)
    session.commit()

    def deliveries(outcome: str) -> float | None:
        return registry.get_sample_value("jmsql_deliveries_total", labels("orders", outcome=outcome))

    wait_for(lambda: deliveries("acknowledged") == 2.0)
    assert deliveries("rolled_back") == 2.0
    assert registry.get_sample_value("jmsql_messages_sent_total", labels("orders")) == 2.0
    assert registry.get_sample_value("jmsql_redeliveries_total", labels("orders")) == 2.0
    assert registry.get_sample_value("jmsql_time_in_queue_seconds_count", labels("orders")) == 2.0
    assert registry.get_sample_value("jmsql_handling_time_seconds_count", labels("orders")) == 0.0
    wait_for(lambda: registry.get_sample_value("jmsql_consumers", labels("orders")) == 1.0)
    assert registry.get_sample_value("jmsql_clients", {"state": "connected"}) == 1.0


@pytest.mark.parametrize("most", [1000, None], ids=["bounded", "exact"])
def test_times_are_sums_in_seconds_beside_their_counts(
    jmsql_clean_url: str, connection: jmsql.Connection, most: int | None
) -> None:
    connection.create_session().create_shared_durable_consumer(jmsql.Topic("prices"), "audit")
    with psycopg.connect(jmsql_clean_url) as database:
        database.execute(
            "insert into jmsql_internal.destination_counters (destination_id, acknowledged, waited, calls, handled) "
            "select queue_id, 4, 6000000, 3, 750000 from jmsql_internal.subscription "
            "union all select -topic_id, 0, 0, 0, 0 from jmsql_internal.topic"
        )
    registry = CollectorRegistry()
    collector = StoreCollector(jmsql_clean_url, count_limit=most)
    registry.register(collector)
    try:
        text = generate_latest(registry).decode()
    finally:
        collector.close()
    found = {
        sample.name: (sample.labels["subscription"], sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if family.name in {"jmsql_time_in_queue_seconds", "jmsql_handling_time_seconds"}
    }
    assert found == {
        "jmsql_time_in_queue_seconds_count": ("audit", 4.0),
        "jmsql_time_in_queue_seconds_sum": ("audit", 6.0),
        "jmsql_handling_time_seconds_count": ("audit", 3.0),
        "jmsql_handling_time_seconds_sum": ("audit", 0.75),
    }


def test_topics_and_subscriptions(registry: CollectorRegistry, connection: jmsql.Connection) -> None:
    session = connection.create_session()
    prices = jmsql.Topic("prices")
    session.create_shared_durable_consumer(prices, "audit")
    session.create_producer(prices).send(session.create_message())
    depth = labels("prices", "subscription", "audit", state="ready")
    assert registry.get_sample_value("jmsql_messages", depth) == 1.0
    wait_for(lambda: registry.get_sample_value("jmsql_messages_sent_total", labels("prices", "topic")) == 1.0)


@pytest.mark.parametrize("most", [1000, None], ids=["bounded", "exact"])
def test_subscriptions_without_a_name_are_one_series(
    jmsql_clean_url: str, connection: jmsql.Connection, most: int | None
) -> None:
    session = connection.create_session(acknowledge_mode=jmsql.AcknowledgeMode.CLIENT)
    prices = jmsql.Topic("prices")
    consumers = [session.create_consumer(prices) for _ in range(3)]
    session.create_producer(prices).send(session.create_message())
    session.create_producer(prices).send(session.create_message())
    assert consumers[0].receive(60) is not None
    registry = CollectorRegistry()
    collector = StoreCollector(jmsql_clean_url, count_limit=most)
    registry.register(collector)
    try:
        lines = [line.rpartition(" ") for line in generate_latest(registry).decode().splitlines() if line[0] != "#"]
    finally:
        collector.close()
    assert len({name for name, _, _ in lines}) == len(lines)
    depth = {name: float(value) for name, _, value in lines if name.startswith("jmsql_messages{") and "prices" in name}
    assert sum(depth.values()) == 6


def test_temporary_destinations_are_left_out(registry: CollectorRegistry, connection: jmsql.Connection) -> None:
    session = connection.create_session()
    session.create_producer(session.create_temporary_queue()).send(session.create_message())
    found = [
        sample.labels["destination"]
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "jmsql_messages"
    ]
    assert not [name for name in found if name.startswith("temporary")]


def test_transactions_that_hold_messages(registry: CollectorRegistry, connection: jmsql.Connection) -> None:
    session = connection.create_session(transacted=True)
    session.create_producer(jmsql.Queue("orders")).send(session.create_message())
    # The connection's maintenance has transactions of its own, which last for a moment.
    wait_for(lambda: registry.get_sample_value("jmsql_holding_transactions") == 0.0)
    session.database.execute(sqlalchemy.text("select 1"))
    wait_for(lambda: registry.get_sample_value("jmsql_holding_transactions") == 1.0)
    first = registry.get_sample_value("jmsql_longest_holding_transaction_seconds")
    assert first is not None
    wait_for(lambda: (registry.get_sample_value("jmsql_longest_holding_transaction_seconds") or 0.0) > first)
    session.rollback()
    wait_for(lambda: registry.get_sample_value("jmsql_holding_transactions") == 0.0)


def test_dead_letters(
    registry: CollectorRegistry, connection: jmsql.Connection, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    orders = jmsql.Queue("orders")
    session = connection.create_session(transacted=True)
    session.create_producer(orders).send(session.create_message())
    session.commit()
    with jmsql.admin.Administration(jmsql_factory.url) as administration:
        administration.alter(orders, maximum_deliveries=1)
    assert session.create_consumer(orders).receive(0) is not None
    session.rollback()
    wait_for(lambda: registry.get_sample_value("jmsql_dead_letters", {"destination": "DLQ"}) == 1.0, 60.0)


@pytest.mark.parametrize(("most", "shown"), [(3, 3.0), (None, 5.0)], ids=["bounded", "exact"])
def test_the_newest_dead_letter_shows_however_many_there_are(
    jmsql_clean_url: str, most: int | None, shown: float
) -> None:
    with jmsql.admin.Administration(jmsql_clean_url) as administration:
        administration.create_queue("late")
        administration.create_queue("orders", expiry_queue="late")
    registry = CollectorRegistry()
    collector = StoreCollector(jmsql_clean_url, count_limit=most)
    registry.register(collector)
    try:
        assert registry.get_sample_value("jmsql_newest_dead_letter_age_seconds", {"destination": "DLQ"}) is None
        insert_letters(jmsql_clean_url, 5, seconds_ago=7200)
        wait_for(lambda: registry.get_sample_value("jmsql_dead_letters", {"destination": "DLQ"}) == shown)
        age = registry.get_sample_value("jmsql_newest_dead_letter_age_seconds", {"destination": "DLQ"}) or 0.0
        assert 7200 <= age < 10800
        insert_letters(jmsql_clean_url, 1, seconds_ago=0)
        wait_for(
            lambda: (
                (registry.get_sample_value("jmsql_newest_dead_letter_age_seconds", {"destination": "DLQ"}) or age)
                < 3600
            )
        )
        assert registry.get_sample_value("jmsql_dead_letters", {"destination": "late"}) == 0.0
    finally:
        collector.close()


def test_a_database_that_cannot_be_reached_and_comes_back(jmsql_clean_url: str) -> None:
    collector = StoreCollector(jmsql_clean_url, "nowhere")
    registry = CollectorRegistry()
    registry.register(collector)
    assert registry.get_sample_value("jmsql_database_up") == 0.0
    assert registry.get_sample_value("jmsql_holding_transactions") is None
    collector.close()


def test_an_idle_connection_that_was_ended_is_made_again_before_it_is_used(jmsql_clean_url: str) -> None:
    url = sqlalchemy.make_url(jmsql_clean_url).set(drivername="postgresql").render_as_string(hide_password=False)
    collector = StoreCollector(jmsql_clean_url)
    collector.require()
    with psycopg.connect(url, autocommit=True) as database:
        ended = database.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity "
            "where datname = current_database() and application_name = 'jmsql'"
        ).fetchall()
    assert ended == [(True,)]
    registry = CollectorRegistry()
    registry.register(collector)
    assert registry.get_sample_value("jmsql_database_up") == 1.0
    collector.close()


def test_a_connection_that_was_lost_is_made_again(registry: CollectorRegistry, jmsql_clean_url: str) -> None:
    assert registry.get_sample_value("jmsql_database_up") == 1.0
    url = sqlalchemy.make_url(jmsql_clean_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True) as database:
        database.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity "
            "where datname = current_database() and application_name = 'jmsql'"
        )
    wait_for(lambda: registry.get_sample_value("jmsql_database_up") == 1.0)


def test_scrapes_at_the_same_time_share_a_look(registry: CollectorRegistry) -> None:
    seen: list[float | None] = []
    together = threading.Barrier(4)

    def scrape() -> None:
        together.wait(60)
        seen.append(registry.get_sample_value("jmsql_measurement_duration_seconds"))

    threads = [threading.Thread(target=scrape) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 4
    assert len(set(seen)) < 4


def test_the_process_counts_for_itself(connection: jmsql.Connection) -> None:
    registry = CollectorRegistry()
    collector = register(registry)
    try:
        session = connection.create_session()
        for destination in (jmsql.Queue("orders"), jmsql.Topic("prices"), session.create_temporary_queue()):
            session.create_producer(destination).send(session.create_message())
        consumer = session.create_consumer(jmsql.Queue("orders"))
        assert consumer.receive(0) is not None
        for name in ("queue://orders", "topic://prices", "temporary"):
            assert registry.get_sample_value("jmsql_client_messages_sent_total", {"destination": name}) == 1.0
        acknowledged = {"destination": "queue://orders", "outcome": "acknowledged"}
        assert registry.get_sample_value("jmsql_client_deliveries_total", acknowledged) == 1.0
    finally:
        collector.close()


def test_the_text_follows_the_conventions(registry: CollectorRegistry, connection: jmsql.Connection) -> None:
    session = connection.create_session()
    session.create_producer(jmsql.Queue("orders")).send(session.create_message())
    families = list(text_string_to_metric_families(generate_latest(registry).decode()))
    assert len(families) > 15
    for family in families:
        assert family.name.startswith("jmsql_")
        assert family.documentation.endswith(".")
        if family.type == "counter":
            assert all(sample.name.endswith("_total") for sample in family.samples)
