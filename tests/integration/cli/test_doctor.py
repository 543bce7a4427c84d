"""`jmsql doctor`: it finds what is wrong, says what to do, and returns 1."""

from __future__ import annotations

import os
import re
import shlex
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy

import jmsql as library
from jmsql.testing import wait_for
from tests.integration.cli.conftest import Command, Outcome
from tests.integration.client.client_process import Order, client_process

INSERT = """
    insert into jmsql_internal.message (queue_id, inverse_priority, jms_delivery_mode, message_type)
    select queue_id, 5, 2, 'Message' from jmsql_internal.queue where name = 'orders'
    """


@pytest.fixture(scope="module", autouse=True)
def vacuumed(jmsql_url: str) -> None:
    """Other tests leave some 100,000 dead rows, of which the doctor would speak."""
    with psycopg.connect(jmsql_url, autocommit=True) as connection:
        connection.execute("vacuum jmsql_internal.message, jmsql_internal.delivery")


def finding(outcome: Outcome, check: str) -> dict[str, Any]:
    """Return the one finding about `check` of a run with --json."""
    [found] = [each for each in outcome.document["findings"] if each["check"] == check]
    return dict(found)


@pytest.fixture
def holder(jmsql_clean_url: str) -> Iterator[psycopg.Connection]:
    """Another session, which tests let hold things."""
    url = sqlalchemy.make_url(jmsql_clean_url).set(drivername="postgresql")
    with psycopg.connect(url.render_as_string(hide_password=False), application_name="nightly report") as connection:
        yield connection


def test_a_healthy_store(jmsql: Command, jmsql_factory: library.ConnectionFactory) -> None:
    with jmsql_factory.create_connection():
        outcome = jmsql("doctor", "--json")
    assert outcome.exit_code == 0
    assert outcome.document["healthy"] is True
    checks = [each["check"] for each in outcome.document["findings"]]
    assert checks == [
        "server",
        "durability",
        "disk",
        "clock",
        "connections",
        "log",
        "locks",
        "schema",
        "clients",
        "maintenance",
        "transactions",
        "claims",
        "two-phase",
        "streams",
        "writes",
        "selectors",
        "paused",
        "consumers",
        "subscriptions",
        "unwanted",
        "redelivery",
        "schedules",
        "limits",
        "dead letters",
        "pooler",
        "notifications",
        "autovacuum",
        "vacuum",
        "table message",
        "table delivery",
        "plans",
    ]
    assert finding(outcome, "clients")["says"] == "1 connected"
    assert "ms from NOTIFY to LISTEN" in finding(outcome, "notifications")["says"]
    assert "autovacuum_vacuum_scale_factor=0.02" in finding(outcome, "table message")["says"]


def forget_other_tests(database: psycopg.Connection) -> None:
    """Make the tables as they are after a migration, whatever has been in them."""
    database.execute("reindex schema jmsql_internal")
    database.execute("select jmsql_internal.restore_pages()")


def test_people_read_the_same(jmsql: Command, database: psycopg.Connection) -> None:
    forget_other_tests(database)
    outcome = jmsql("doctor")
    assert outcome.exit_code == 0
    is_durable = finding(jmsql("doctor", "--json"), "durability")["health"] == "ok"
    assert outcome.text.endswith("All is well.\n" if is_durable else "No problem, and 1 note.\n")


def test_a_snapshot_that_holds_vacuum_back(jmsql: Command, holder: psycopg.Connection) -> None:
    holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    holder.execute("select 'the books of the year'")
    process_id = holder.info.backend_pid
    assert jmsql("doctor").exit_code == 0

    outcome = jmsql("doctor", "--oldest-snapshot", "0", "--json")
    assert outcome.exit_code == 1
    assert outcome.document["healthy"] is False
    vacuum = finding(outcome, "vacuum")
    assert vacuum["health"] == "problem"
    for fact in ("'nightly report'", f"process {process_id}", "idle in transaction", "the books of the year"):
        assert fact in vacuum["says"]
    assert f"pg_terminate_backend({process_id})" in vacuum["advice"]

    outcome = jmsql("doctor", "--oldest-snapshot", "0")
    assert outcome.exit_code == 1
    assert outcome.text.endswith("1 problem found.\n")

    holder.rollback()
    assert jmsql("doctor", "--oldest-snapshot", "0").exit_code == 0


def test_a_transaction_that_wrote_holds_vacuum_back_too(jmsql: Command, holder: psycopg.Connection) -> None:
    holder.execute("select pg_current_xact_id()")
    assert "nightly report" in finding(jmsql("doctor", "--oldest-snapshot", "0", "--json"), "vacuum")["says"]


def test_a_missing_schema(jmsql: Command) -> None:
    outcome = jmsql("doctor", "--schema", "nowhere", "--json")
    assert outcome.exit_code == 1
    assert finding(outcome, "schema") == {
        "check": "schema",
        "health": "problem",
        "says": "it is not there",
        "advice": "Run `jmsql migrate --schema nowhere`.",
    }
    assert finding(outcome, "notifications")["health"] == "ok"


@pytest.mark.parametrize(("version", "advice"), [("0000", "jmsql migrate"), ("9999", "Upgrade jmsql")])
def test_a_schema_of_another_version(jmsql: Command, database: psycopg.Connection, version: str, advice: str) -> None:
    row = database.execute("select version_num from jmsql.schema_version").fetchone()
    database.execute("update jmsql.schema_version set version_num = %s", (version,))
    try:
        outcome = jmsql("doctor", "--json")
    finally:
        database.execute("update jmsql.schema_version set version_num = %s", row)
    assert outcome.exit_code == 1
    assert advice in finding(outcome, "schema")["advice"]


def test_autovacuum_that_was_turned_off_for_a_table(jmsql: Command, database: psycopg.Connection) -> None:
    database.execute("alter table jmsql_internal.message set (autovacuum_enabled = false)")
    try:
        outcome = jmsql("doctor", "--json")
    finally:
        database.execute("alter table jmsql_internal.message reset (autovacuum_enabled)")
    assert outcome.exit_code == 1
    assert "reset (autovacuum_enabled)" in finding(outcome, "table message")["advice"]
    assert finding(outcome, "table delivery")["health"] == "ok"


def test_tables_that_lost_the_pages_on_which_plans_count(jmsql: Command, database: psycopg.Connection) -> None:
    forget_other_tests(database)
    database.execute("vacuum full jmsql_internal.delivery")
    plans = finding(jmsql("doctor", "--json"), "plans")
    assert plans["health"] == "note"
    assert plans["says"].startswith("delivery: fewer pages")

    database.execute("select jmsql_internal.restore_pages()")
    assert finding(jmsql("doctor", "--json"), "plans")["health"] == "ok"


def test_expired_messages_that_are_not_removed_are_a_finding(jmsql: Command, database: psycopg.Connection) -> None:
    jmsql("send", "orders", "x")
    two_minutes_ago = int(time.time() * 1000) - 120_000
    database.execute("update jmsql_internal.message set jms_expiration = %s", (two_minutes_ago,))
    maintenance = finding(jmsql("doctor", "--json"), "maintenance")
    assert maintenance["health"] == "note"
    assert maintenance["says"].startswith("1 message expired")


def test_a_client_that_died(jmsql: Command, jmsql_clean_url: str) -> None:
    jmsql("send", "orders", "x")
    with client_process(jmsql_clean_url, Order("orders", "CLIENT", receives=1)) as client:
        client.wait_until_ready()
        client.received(1)
    wait_for(lambda: not any(client["connected"] for client in jmsql("clients", "--json").document))
    clients = finding(jmsql("doctor", "--json"), "clients")
    assert clients["health"] == "note"
    assert f"process {client.process_id}" in clients["says"]
    assert "holding 1 message" in clients["says"]


def test_a_role_that_does_not_see_others(jmsql: Command, database: psycopg.Connection, jmsql_clean_url: str) -> None:
    database.execute("create role jmsql_blind nologin")
    database.execute("grant usage on schema jmsql, jmsql_internal to jmsql_blind")
    database.execute("grant select on all tables in schema jmsql, jmsql_internal to jmsql_blind")
    url = sqlalchemy.make_url(jmsql_clean_url).update_query_dict({"options": "-c role=jmsql_blind"})
    try:
        outcome = jmsql("doctor", "--json", url=url.render_as_string(hide_password=False))
    finally:
        database.execute("drop owned by jmsql_blind")
        database.execute("drop role jmsql_blind")
    assert outcome.exit_code == 0
    notes = [each for each in outcome.document["findings"] if each["check"] == "vacuum"]
    assert "pg_read_all_stats" in notes[0]["advice"]


def findings(outcome: Outcome, check: str) -> list[dict[str, Any]]:
    """Return the findings about `check` of a run with --json that are not well."""
    return [each for each in outcome.document["findings"] if each["check"] == check and each["health"] != "ok"]


def test_a_transaction_that_is_idle_and_holds_messages(
    jmsql: Command, jmsql_factory: library.ConnectionFactory
) -> None:
    jmsql("send", "orders", "x")
    with jmsql_factory.create_connection() as connection:
        connection.start()
        session = connection.create_session(transacted=True)
        assert session.create_consumer(library.Queue("orders")).receive(0) is not None
        assert jmsql("doctor").exit_code == 0
        outcome = jmsql("doctor", "--longest-transaction", "0", "--json")
        assert outcome.exit_code == 1
        [found] = findings(outcome, "transactions")
        assert found["health"] == "problem"
        assert "idle in transaction" in found["says"]
        assert "pg_terminate_backend(" in found["advice"]
        session.rollback()
        assert findings(jmsql("doctor", "--longest-transaction", "0", "--json"), "transactions") == []


def test_claims_that_are_held_for_long(jmsql: Command, jmsql_factory: library.ConnectionFactory) -> None:
    jmsql("send", "orders", "x", "--count", "2")
    with jmsql_factory.create_connection() as connection:
        connection.client_id = "warehouse"
        connection.start()
        session = connection.create_session(acknowledge_mode=library.AcknowledgeMode.CLIENT)
        assert session.create_consumer(library.Queue("orders")).receive(0) is not None
        assert findings(jmsql("doctor", "--json"), "claims") == []
        [found] = findings(jmsql("doctor", "--longest-claim", "0", "--json"), "claims")
    assert found["health"] == "note"
    for fact in ("'warehouse'", f"process {os.getpid()}", "'orders'"):
        assert fact in found["says"]


def test_streaming_reads_that_have_stayed_behind(jmsql: Command, database: psycopg.Connection) -> None:
    database.execute("select jmsql.create_queue('orders')")
    [claiming] = database.execute(
        """with source as (
               insert into jmsql_internal.spark_source (queue_id) select queue_id from jmsql_internal.queue
               where name = 'orders'
               returning source_id)
           insert into jmsql_internal.spark_batch (source_id, batch, claim_id, messages, bytes)
           select source_id, n, n, 20, 1 from source, generate_series(1, 2) as n returning source_id::text"""
    ).fetchmany(1)
    database.execute(
        """with message as (
               insert into jmsql_internal.message (queue_id, inverse_priority, jms_delivery_mode, message_type)
               select queue_id, 5, 2, 'Message' from jmsql_internal.queue, generate_series(1, 40) where name = 'orders'
               returning queue_id, inverse_priority, sequence)
           insert into jmsql_internal.delivery (queue_id, inverse_priority, sequence, claim_id, claimed_at)
           select queue_id, inverse_priority, sequence, 1 + sequence % 2, now() from message"""
    )
    [reading] = database.execute(
        """insert into jmsql_internal.spark_cursor (
               destination, transaction_id, sequence, last_transaction_id, last_sequence, holds)
           values ('prices', '1', 0, '1', 0, true), (null, '1', 0, '1', 0, false) returning source_id::text"""
    ).fetchmany(1)
    assert findings(jmsql("doctor", "--json"), "streams") == []

    database.execute("update jmsql_internal.spark_batch set claimed_at = now() - interval '30 hours' where batch = 1")
    database.execute("update jmsql_internal.spark_cursor set used_at = now() - interval '50 hours'")
    history, claims = findings(jmsql("doctor", "--json"), "streams")
    assert "the history of 'prices', and has not gone on for 50 hours" in history["says"]
    assert "40 messages of 'orders', and has not gone on for 30 hours" in claims["says"]
    assert f"forget_spark_source('{reading[0]}')" in history["advice"]
    assert f"forget_spark_source('{claiming[0]}')" in claims["advice"]
    assert {history["health"], claims["health"]} == {"note"}


def test_writes_whose_driver_does_not_come(jmsql: Command, database: psycopg.Connection) -> None:
    database.execute(
        "insert into jmsql_internal.pending_transaction "
        "(transaction_id, write_id, queue_ids, first_sequence, last_sequence, committed_at) select n::text::xid8, "
        "case when n < 3 then 'the nightly''s' else 'fresh' end, '{}', 1, 1, now() - (3 - n) * interval '150 minutes' "
        "from generate_series(1, 3) as n"
    )
    [found] = findings(jmsql("doctor", "--json"), "writes")
    assert "has 0 messages of 2 tasks that are hidden, the first for 5 hours" in found["says"]
    [advised] = re.findall(r"`(update .*)`", found["advice"])
    database.execute(advised.encode())
    assert findings(jmsql("doctor", "--json"), "writes") == []


def test_a_write_that_dies_again_and_again_before_a_queue(jmsql: Command, database: psycopg.Connection) -> None:
    database.execute("select jmsql.create_queue('orders')")
    for ago in ("20 minutes", "10 minutes"):
        database.execute(
            "with hidden as (insert into jmsql_internal.message (queue_id, inverse_priority, jms_delivery_mode, "
            "message_type) select queue_id, 5, 2, 'Message' from jmsql_internal.queue, generate_series(1, 5000) "
            "where name = 'orders' returning queue_id, sequence) "
            "insert into jmsql_internal.pending_transaction (write_id, queue_ids, first_sequence, last_sequence, "
            "committed_at) select 'query', array_agg(distinct queue_id), min(sequence), max(sequence), "
            f"now() - interval '{ago}' from hidden".encode()
        )
    [found] = findings(jmsql("doctor", "--json"), "writes")
    assert "the write 'query' of Spark has 10,000 messages of 2 tasks that are hidden" in found["says"]
    assert "for 20 minutes" in found["says"]
    assert "write_id = 'query'" in found["advice"]


def test_a_write_that_is_under_way(jmsql: Command, database: psycopg.Connection) -> None:
    database.execute("select jmsql.create_queue('orders')")
    database.execute(
        "with hidden as (insert into jmsql_internal.message (queue_id, inverse_priority, jms_delivery_mode, "
        "message_type) select queue_id, 5, 2, 'Message' from jmsql_internal.queue, generate_series(1, 30) "
        "where name = 'orders' returning queue_id, sequence) "
        "insert into jmsql_internal.pending_transaction (write_id, queue_ids, first_sequence, last_sequence) "
        "select 'query', array_agg(distinct queue_id), min(sequence), max(sequence) from hidden"
    )
    [found] = [each for each in jmsql("doctor", "--json").document["findings"] if each["check"] == "writes"]
    assert found["health"] == "ok"
    assert "1 write of Spark under way, with 30 messages that are hidden, the first for" in found["says"]


def test_destinations_that_are_paused(jmsql: Command) -> None:
    jmsql("send", "orders", "x", "--count", "3")
    jmsql("destination", "create", "topic://prices")
    assert findings(jmsql("doctor", "--json"), "paused") == []
    jmsql("destination", "pause", "orders")
    [found] = findings(jmsql("doctor", "--json"), "paused")
    assert found["says"].startswith("'orders' (3 messages) is paused")
    assert "`jmsql resume orders`" in found["advice"]
    assert findings(jmsql("doctor", "--json"), "consumers") == []
    jmsql("destination", "pause", "topic://prices")
    [found] = findings(jmsql("doctor", "--json"), "paused")
    assert found["says"].startswith("'orders' (3 messages), 'topic://prices' are paused")
    assert "`jmsql resume topic://prices`" in found["advice"]


@pytest.mark.usefixtures("row_security_is_off_again")
@pytest.mark.parametrize(
    ("given", "denied"),
    [
        ("pg_monitor", {"schema", "clients", "streams", "writes", "dead letters", "plans"}),
        ("jmsql_browser", {"schedules", "streams", "writes"}),
        (None, {"schema", "clients", "streams", "writes", "dead letters", "plans"}),
    ],
)
def test_a_role_with_few_rights_is_told_of_the_checks_it_may_not_make(
    jmsql: Command, database: psycopg.Connection, jmsql_clean_url: str, given: str | None, denied: set[str]
) -> None:
    database.execute("select jmsql.create_roles()")
    database.execute("create role jmsql_watching nologin")
    if given is not None:
        database.execute(f"grant {given} to jmsql_watching".encode())
    url = sqlalchemy.make_url(jmsql_clean_url).update_query_dict({"options": "-c role=jmsql_watching"})
    try:
        outcome = jmsql("doctor", "--json", url=url.render_as_string(hide_password=False))
    finally:
        database.execute("drop role jmsql_watching")
    assert outcome.exit_code == 0
    unexamined = {each["check"] for each in outcome.document["findings"] if each["says"].startswith("not examined: ")}
    assert denied <= unexamined
    examined = {each["check"] for each in outcome.document["findings"]} - unexamined
    assert {"server", "durability", "clock", "notifications", "autovacuum", "vacuum", "two-phase"} <= examined
    if given == "jmsql_browser":
        assert unexamined == denied
    if given == "pg_monitor":
        assert {"transactions", "table message"} <= examined
        assert [each["health"] for each in outcome.document["findings"] if each["check"] == "vacuum"] == ["ok"]


@pytest.mark.usefixtures("row_security_is_off_again")
def test_a_role_that_browses_some_destinations_is_told_so(
    jmsql: Command, database: psycopg.Connection, jmsql_clean_url: str
) -> None:
    database.execute("create role jmsql_watching nologin")
    database.execute("select jmsql.create_queue('orders'), jmsql.grant_access('orders', 'jmsql_watching', 'browse')")
    url = sqlalchemy.make_url(jmsql_clean_url).update_query_dict({"options": "-c role=jmsql_watching"})
    try:
        outcome = jmsql("doctor", "--json", url=url.render_as_string(hide_password=False))
    finally:
        database.execute("select jmsql.revoke_access('orders', 'jmsql_watching', 'browse')")
        database.execute("drop owned by jmsql_watching")
        database.execute("drop role jmsql_watching")
    assert outcome.exit_code == 0
    assert "jmsql_browser" in finding(outcome, "rights")["advice"]


def test_a_lock_is_not_waited_for_and_its_holder_is_named(
    jmsql: Command, holder: psycopg.Connection, jmsql_clean_url: str
) -> None:
    holder.execute("lock table jmsql_internal.queue in access exclusive mode")
    started = time.monotonic()
    outcome = jmsql("doctor", "--json")
    assert time.monotonic() - started < 60
    assert outcome.exit_code == 1
    assert "is locked" in findings(outcome, "paused")[0]["says"]
    [found] = findings(outcome, "locks")
    for fact in (f"process {holder.info.backend_pid}", "'nightly report'", "idle in transaction", "lock table"):
        assert fact in found["says"]
    assert f"pg_terminate_backend({holder.info.backend_pid})" in found["advice"]
    holder.rollback()

    # Behind who waits for the lock, everybody waits; the one to end is who keeps that one waiting.
    holder.execute("select from jmsql_internal.queue")
    with psycopg.connect(jmsql_clean_url) as waiting, psycopg.connect(jmsql_clean_url, autocommit=True) as watcher:
        waiter = threading.Thread(target=lock_queues, args=[waiting])
        waiter.start()
        blocked = "select true from pg_locks where pid = %s and not granted"
        wait_for(lambda: watcher.execute(blocked, [waiting.info.backend_pid]).fetchone() is not None, 60.0)
        blocking, blocked_too = findings(jmsql("doctor", "--json"), "locks")
        holder.rollback()
        waiter.join()
        assert "'nightly report'" in blocking["says"]
        assert f"process {waiting.info.backend_pid}" in blocked_too["says"]


def lock_queues(connection: psycopg.Connection) -> None:
    connection.execute("lock table jmsql_internal.queue in access exclusive mode")
    connection.rollback()


def test_a_transaction_in_doubt(
    jmsql: Command, jmsql_factory: library.ConnectionFactory, database: psycopg.Connection
) -> None:
    factory = library.xa.XAConnectionFactory(jmsql_factory.url)
    with factory.create_xa_connection() as connection:
        session = connection.create_xa_session()
        xid = session.xid(7, "order 5", "warehouse")
        session.tpc_begin(xid)
        session.create_producer(library.Queue("orders")).send(session.create_message())
        session.tpc_prepare()
        try:
            assert findings(jmsql("doctor", "--json"), "two-phase") == []
            outcome = jmsql("doctor", "--longest-transaction", "0", "--json")
        finally:
            session.tpc_rollback()
    assert outcome.exit_code == 1
    [found] = findings(outcome, "two-phase")
    assert "holds messages" in found["says"]
    assert "Its transaction manager is to finish it" in found["advice"]
    assert f"if any was committed, `commit prepared '{xid.identifier}'`" in found["advice"]
    assert f"if it never decided to commit, `rollback prepared '{xid.identifier}'`" in found["advice"]


def test_a_transaction_that_others_have_prepared_is_theirs_to_finish(
    jmsql: Command, database: psycopg.Connection
) -> None:
    database.execute("select jmsql.create_queue('orders')")
    database.execute("begin")
    database.execute(INSERT)
    database.execute("prepare transaction 'somebody''s own'")
    try:
        [found] = findings(jmsql("doctor", "--longest-transaction", "0", "--json"), "two-phase")
    finally:
        database.execute("rollback prepared 'somebody''s own'")
    assert found["advice"].startswith("jmsql has not prepared it")


def test_a_selector_that_an_index_would_serve(
    jmsql: Command, jmsql_factory: library.ConnectionFactory, database: psycopg.Connection
) -> None:
    jmsql("send", "orders", "x", "-p", "color=red", "--count", "1000")
    with jmsql_factory.create_connection() as connection:
        session = connection.create_session()
        session.create_consumer(library.Queue("orders"), "color = 'blue'")
        session.create_consumer(library.Queue("orders"), "weight > 5")
        wait_for(lambda: len(findings(jmsql("doctor", "--json"), "selectors")) == 2, 60.0)
        by_index, by_none = findings(jmsql("doctor", "--json"), "selectors")
        index = shlex.join(["jmsql", "destination", "index", "orders", "color = 'blue'"])
        assert f"`{index}`" in by_index["advice"]
        assert "No index can serve it" in by_none["advice"]
        jmsql("destination", "index", "orders", "color = 'green'")
        try:
            assert findings(jmsql("doctor", "--json"), "selectors") == [by_none]
            set_valid(database, False)
            assert any("is not valid" in each["says"] for each in findings(jmsql("doctor", "--json"), "selectors"))
            set_valid(database, True)
        finally:
            jmsql("destination", "index", "orders", "color = 'green'", "--drop")


def test_selectors_are_read_as_consumers_have_written_them(
    jmsql: Command, jmsql_factory: library.ConnectionFactory, database: psycopg.Connection
) -> None:
    """With characters that PostgreSQL cannot store, and beside texts that are no selectors."""
    with jmsql_factory.create_connection() as connection:
        session = connection.create_session()
        session.create_consumer(library.Queue("orders"), "name = 'a\0'")
        producer = session.create_producer(library.Queue("orders"))
        for name in ("a\0", "b"):
            message = session.create_text_message(name)
            message.set_string_property("name", name)
            producer.send(message)
        counted = "select count(*) from jmsql_internal.consumer"
        wait_for(lambda: database.execute(counted).fetchone() == (1,), 60.0)
        database.execute(
            "insert into jmsql_internal.consumer (connection_id, queue_id, selector, consumers) "
            "select connection_id, queue_id, s, 1 from jmsql_internal.consumer, unnest(array['name =', ' ']) s"
        )
        [found] = findings(jmsql("doctor", "--json"), "unwanted")
    assert found["says"].startswith("1 message of 'orders' match no selector"), found


def set_valid(database: psycopg.Connection, valid: bool) -> None:
    """Mark the selector's index as PostgreSQL marks one whose making broke off."""
    database.execute(
        "update pg_index set indisvalid = %s where indexrelid::regclass::text like '%%selector_%%'", (valid,)
    )


def test_a_queue_without_a_consumer_is_a_finding(jmsql: Command, jmsql_factory: library.ConnectionFactory) -> None:
    jmsql("send", "orders", "x", "--count", "3")
    [found] = findings(jmsql("doctor", "--json"), "consumers")
    assert "'orders' (3 messages" in found["says"]
    with jmsql_factory.create_connection() as connection:
        connection.create_session().create_consumer(library.Queue("orders"))
        wait_for(lambda: findings(jmsql("doctor", "--json"), "consumers") == [], 60.0)


def test_messages_that_go_on_failing(jmsql: Command, jmsql_factory: library.ConnectionFactory) -> None:
    jmsql("send", "orders", "x")
    with jmsql_factory.create_connection() as connection:
        connection.start()
        session = connection.create_session(transacted=True)
        consumer = session.create_consumer(library.Queue("orders"))
        assert consumer.receive(0) is not None
        session.rollback()
        assert consumer.receive(0) is not None
        assert findings(jmsql("doctor", "--json"), "redelivery") == []
        session.rollback("broken")
        for number in range(3):
            assert consumer.receive(60) is not None
            if number == 2:
                consumer.redelivery_policy = library.RedeliveryPolicy(delay=600)  # it waits as long as the doctor looks
            session.rollback("broken")
        [found] = findings(jmsql("doctor", "--json"), "redelivery")
        outcome = jmsql("doctor")
    assert found["health"] == "note"
    assert found["says"].startswith("1 message of 'orders' failed up to 4 times; 1 of them waits, the last for ")
    assert outcome.exit_code == 0
    assert "All is well" not in outcome.text
    assert re.search(r"No problem, and \d+ notes?\.\n$", outcome.text)


def test_dead_letters(jmsql: Command, jmsql_factory: library.ConnectionFactory) -> None:
    jmsql("send", "orders", "x")
    with jmsql_factory.create_connection() as connection:
        with library.admin.Administration(jmsql_factory.url) as administration:
            administration.alter(library.Queue("orders"), maximum_deliveries=1)
        connection.start()
        session = connection.create_session(transacted=True)
        assert session.create_consumer(library.Queue("orders")).receive(0) is not None
        session.rollback(RuntimeError("the bank\x1b[2J is closed"))
        wait_for(lambda: findings(jmsql("doctor", "--json"), "dead letters"), 60.0)
        [found] = findings(jmsql("doctor", "--json"), "dead letters")
    sentence, _, letters = found["says"].partition("; ")
    assert sentence.startswith("1 message of queue://orders died within the last hour, all of RuntimeError: the bank")
    assert letters.startswith("1 message in 'DLQ'")
    assert "\x1b[2J" not in jmsql("doctor").text


@pytest.mark.parametrize(("seconds", "health"), [(-3600.0, "note"), (5.0, "note"), (0.2, None)])
def test_clocks_that_differ(
    jmsql: Command, monkeypatch: pytest.MonkeyPatch, seconds: float, health: str | None
) -> None:
    real = time.time
    monkeypatch.setattr("jmsql.store.administration.diagnosis.time.time", lambda: real() + seconds)
    found = findings(jmsql("doctor", "--json"), "clock")
    assert [each["health"] for each in found] == ([] if health is None else [health])
    if seconds > 1:
        assert "this machine's is 5" in found[0]["says"].replace("4.9", "5")
