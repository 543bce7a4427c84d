"""The advice of `jmsql doctor`, followed to the letter, ends the problem that the doctor has found."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

import psycopg
import pytest
import sqlalchemy

import jmsql as library
from jmsql import doctor
from jmsql.admin import Administration
from jmsql.testing import wait_for
from jmsql.worker import Application
from tests.integration.cli.conftest import Command

ORDERS = library.Queue("orders")
RELEASE = Application()
RELEASE.schedule("nightly report", "@yearly", ORDERS)
RESTRICTED = "advised role"  # a name that SQL has to quote


class World:
    """The database, the command, and other programs, all of which end with the test."""

    def __init__(self, jmsql: Command, url: str, database: psycopg.Connection, stack: ExitStack) -> None:
        self.jmsql = jmsql
        self.url = url
        self.database = database
        self._stack = stack
        self.clients: list[library.Connection] = []
        self.extra: list[str] = []
        """Options of the doctor."""

    def enter(self, manager: AbstractContextManager[Any]) -> Any:
        """Enter a context that ends with the test."""
        return self._stack.enter_context(manager)

    def finally_execute(self, *statements: str) -> None:
        """Execute statements when the test ends, whatever becomes of it; they may fail."""
        for statement in statements:
            self._stack.callback(self._try, statement)

    def _try(self, statement: str) -> None:
        with suppress(psycopg.Error):
            self.execute(statement)

    def execute(self, statement: str) -> None:
        self.database.execute(statement.encode())

    def run(self, *arguments: str) -> None:
        """Run the command, which must succeed."""
        outcome = self.jmsql(*arguments)
        assert outcome.exit_code == 0, (arguments, outcome)

    def url_as(self, role: str) -> str:
        """Return the URL with which the rights are those of a role."""
        option = "-c role=" + role.replace(" ", "\\ ")
        return (
            sqlalchemy.make_url(self.url).update_query_dict({"options": option}).render_as_string(hide_password=False)
        )

    def session(self) -> psycopg.Connection:
        """Return another session in a transaction."""
        bare = sqlalchemy.make_url(self.url).set(drivername="postgresql").render_as_string(hide_password=False)
        connection = psycopg.connect(bare, application_name="nightly report")
        self._stack.callback(connection.close)
        return connection

    def connect(self, url: str | None = None) -> library.Connection:
        """Return a started client."""
        connection: library.Connection = self.enter(library.ConnectionFactory(url or self.url).create_connection())
        connection.start()
        self.clients.append(connection)
        return connection

    def fail(self, times: int) -> None:
        """Receive an order so many times, and fail."""
        connection = library.ConnectionFactory(self.url).create_connection()
        with connection:
            connection.start()
            session = connection.create_session(transacted=True)
            consumer = session.create_consumer(ORDERS)
            for _ in range(times):
                assert consumer.receive(60) is not None
                session.rollback("broken")

    def findings(self, check: str) -> list[dict[str, Any]]:
        """Return what the doctor finds about a check that is not well."""
        return [each for each in self.diagnose(check)[1] if each["health"] != "ok"]

    def diagnose(self, check: str) -> tuple[int, list[dict[str, Any]]]:
        """Return the doctor's exit code, and all that it says about a check."""
        outcome = self.jmsql("doctor", "--json", *self.extra)
        return outcome.exit_code, [each for each in outcome.document["findings"] if each["check"] == check]

    def wait_for_diagnosis(self, check: str) -> tuple[int, list[dict[str, Any]]]:
        """Return the first diagnosis in which a check is not well."""

        def diagnosed() -> tuple[int, list[dict[str, Any]]] | None:
            exit_code, found = self.diagnose(check)
            return (exit_code, found) if any(each["health"] != "ok" for each in found) else None

        diagnosis = wait_for(diagnosed, 60.0)
        assert diagnosis is not None
        return diagnosis

    def follow(self, advice: str, only: slice) -> None:
        """Execute the commands in an advice, as they stand."""
        commands = re.findall(r"`([^`]*)`", advice)[only]
        assert commands, advice
        for command in commands:
            if command.startswith("jmsql "):
                self.run(*shlex.split(command)[1:])
            else:
                self.execute(command)


@pytest.fixture
def world(jmsql: Command, jmsql_clean_url: str, database: psycopg.Connection) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(jmsql, jmsql_clean_url, database, stack)


# Each makes a situation.


def lock(mode: str, table: str) -> Callable[[World], None]:
    def arrange(world: World) -> None:
        world.session().execute(f"lock table jmsql_internal.{table} in {mode} mode".encode())

    return arrange


def few_connections_in_the_database(world: World) -> None:
    world.session()
    name = world.database.info.dbname
    world.finally_execute(f'alter database "{name}" connection limit -1')
    world.execute(f'alter database "{name}" connection limit 2')


def idle_slot(world: World) -> None:
    world.finally_execute("select pg_drop_replication_slot('advised')")
    world.execute("select pg_create_physical_replication_slot('advised', true)")


def read_only(world: World) -> None:
    name = world.database.info.dbname
    world.finally_execute(f'alter database "{name}" reset default_transaction_read_only')
    world.execute(f'alter database "{name}" set default_transaction_read_only = on')


def without_triggers(world: World) -> None:
    name = world.database.info.dbname
    world.finally_execute(f'alter database "{name}" reset session_replication_role')
    world.execute(f'alter database "{name}" set session_replication_role = replica')


def overdue(world: World) -> None:
    world.execute("select jmsql.create_queue('orders')")
    world.execute(
        "insert into jmsql_internal.delayed_message (queue_id, inverse_priority, jms_delivery_mode, message_type, "
        "jms_delivery_time) select queue_id, 5, 2, 'Message', jmsql_internal.current_milliseconds() - 75000 "
        "from jmsql_internal.queue where name = 'orders'"
    )


def make_role(world: World, name: str) -> None:
    """Make a role with access to the queue, which is gone after the test."""
    world.finally_execute(f'drop role "{name}"', f'drop owned by "{name}"')  # the last one first
    world.execute(f'create role "{name}"')
    world.execute(f"select jmsql.grant_access('orders', '{name}', 'send', 'receive')")


def overdue_among_restricted_clients(world: World) -> None:
    overdue(world)
    make_role(world, RESTRICTED)
    world.connect(world.url_as(RESTRICTED))


def restored_without_privileges(world: World) -> None:
    world.execute("select jmsql.create_queue('orders')")
    make_role(world, "role with access")
    world.finally_execute("revoke execute on function jmsql_internal.list_access(oid) from public")
    world.execute("grant execute on function jmsql_internal.list_access(oid) to public")


def expired(world: World) -> None:
    world.execute("select jmsql.create_queue('orders')")
    world.execute(
        "insert into jmsql_internal.message (queue_id, inverse_priority, jms_delivery_mode, message_type, "
        "jms_expiration) select queue_id, 5, 2, 'Message', 1 from jmsql_internal.queue where name = 'orders'"
    )


def old_snapshot(world: World) -> None:
    world.extra = ["--oldest-snapshot", "0"]
    session = world.session()
    session.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    session.execute("select 1")


def without_autovacuum(world: World) -> None:
    world.finally_execute("alter table jmsql_internal.message reset (autovacuum_enabled)")
    world.execute("alter table jmsql_internal.message set (autovacuum_enabled = 0)")


def server_without_autovacuum(world: World) -> None:
    world.finally_execute("select pg_reload_conf()", "alter system reset autovacuum", "alter system reset track_counts")
    world.execute("alter system set autovacuum = off")
    world.execute("select pg_reload_conf()")


def without_pages(world: World) -> None:
    world.execute("vacuum full jmsql_internal.delivery")


def dead_rows(world: World) -> None:
    world.execute("vacuum full jmsql_internal.delivery")
    world.execute("select jmsql_internal.restore_pages()")  # by rows that it deletes
    world.execute("select pg_stat_force_next_flush()")


def open_transaction(world: World) -> None:
    world.extra = ["--longest-transaction", "0"]
    world.run("send", "orders", "x")
    world.session().execute("select from jmsql_internal.message for update")


def long_claim(world: World) -> None:
    world.extra = ["--longest-claim", "0"]
    world.run("send", "orders", "x")
    session = world.connect().create_session(acknowledge_mode=library.AcknowledgeMode.CLIENT)
    assert session.create_consumer(ORDERS).receive(60) is not None


def in_doubt(world: World) -> None:
    world.extra = ["--longest-transaction", "0"]
    with library.xa.XAConnectionFactory(world.url).create_xa_connection() as connection:
        session = connection.create_xa_session()
        session.tpc_begin(session.xid(7, "order 5", "warehouse"))
        session.create_producer(ORDERS).send(session.create_message())
        session.tpc_prepare()


def stopped_stream(world: World) -> None:
    world.execute(
        "insert into jmsql_internal.spark_cursor (destination, transaction_id, sequence, last_transaction_id, "
        "last_sequence, holds, used_at) values ('prices', '1', 0, '1', 0, true, now() - interval '50 hours')"
    )


def hidden_write(world: World) -> None:
    world.execute(
        "insert into jmsql_internal.pending_transaction (write_id, queue_ids, first_sequence, last_sequence, "
        "committed_at) values ('the nightly''s', '{}', 1, 1, now() - interval '5 hours')"
    )


def selector_without_index(world: World) -> None:
    world.run("send", "orders", "x", "-p", "color=blue", "--count", "2")
    world.connect().create_session().create_consumer(ORDERS, "color = 'blue'")
    world.enter(dropping_index(world))


@contextmanager
def dropping_index(world: World) -> Iterator[None]:
    yield
    world.jmsql("destination", "index", "orders", "color = 'blue'", "--drop")


def broken_index(world: World) -> None:
    world.run("destination", "create", "orders")
    world.run("destination", "index", "orders", "color = 'blue'")
    world.enter(dropping_index(world))
    world.execute("update pg_index set indisvalid = false where indexrelid::regclass::text like '%selector_%'")


def paused(world: World) -> None:
    world.run("destination", "create", "Kasse 1")
    world.run("destination", "pause", "Kasse 1")


def unread_queue(world: World) -> None:
    world.run("send", "orders", "x")


def unread_subscription(world: World) -> None:
    world.run("subscribe", "topic://prices", "yearly audit", "--client-id", "head office")
    world.run("send", "topic://prices", "x", "--count", "3")


def unwanted(world: World) -> None:
    world.run("send", "orders", "x", "-p", "color=red", "--count", "3")
    world.connect().create_session().create_consumer(ORDERS, "color = 'blue'")


def failing(world: World) -> None:
    world.run("send", "orders", "x")
    world.fail(2)


def failing_with_policy(world: World) -> None:
    world.run("destination", "create", "orders")
    world.run("destination", "set", "orders", "--maximum-deliveries", "3")
    failing(world)


def dead_letter(world: World) -> None:
    world.run("destination", "create", "orders")
    world.run("destination", "set", "orders", "--maximum-deliveries", "1")
    world.run("send", "orders", "x")
    world.fail(1)
    world.connect()
    wait_for(lambda: world.findings("dead letters"), 60.0)


def no_schema(world: World) -> None:
    world.finally_execute('drop schema "The Shop" cascade', 'drop schema "The Shop_internal" cascade')
    world.extra = ["--schema", "The Shop"]


def schema_of_another_name(world: World) -> None:
    no_schema(world)
    world.run("migrate", *world.extra)
    world.execute('alter table "The Shop_internal".message set (autovacuum_enabled = off)')


def gone_client(world: World) -> None:
    world.execute(
        "insert into jmsql_internal.connection (host, process_id, lock_key, heartbeat_at) "
        "values ('vm', 1, 1, '-infinity')"
    )


def change_schedule(world: World, change: str) -> None:
    world.execute(f"update jmsql_internal.schedule set {change} where name = 'nightly report'")


def schedule_without_clients(world: World) -> None:
    world.run("schedule", "set", "nightly report", "orders", "--cron", "@yearly")
    change_schedule(world, "next_at = now() - interval '3 hours'")


def failing_schedule(world: World) -> None:
    schedule_without_clients(world)
    world.run("destination", "delete", "orders", "--yes")
    world.finally_execute("update jmsql_internal.configuration set automatic_creation = true")
    world.execute("update jmsql_internal.configuration set automatic_creation = false")
    with library.ConnectionFactory(world.url).create_connection() as connection:
        connection.start()
        wait_for(lambda: any("fails" in each["says"] for each in world.findings("schedules")), 60.0)


def schedule_that_no_worker_declares(world: World) -> None:
    declare(world)
    change_schedule(world, "declared_at = now() - interval '3 hours'")


# Each does what an advice says in words.


def connect(world: World) -> None:
    world.connect()


def let_clients_administer(world: World) -> None:
    world.connect(world.url_as(RESTRICTED))


def end_clients(world: World) -> None:
    for client in world.clients:
        client.close()


def receive(world: World) -> None:
    world.connect().create_session().create_consumer(ORDERS)


def fail_again(world: World) -> None:
    world.fail(1)
    world.connect()


def mend_schedule(world: World) -> None:
    world.run("destination", "create", "orders")
    world.connect()  # another client need not wait until it tries again


def declare(world: World) -> None:
    with Administration(world.url) as administration:
        administration.declare_schedules(RELEASE.schedules)


class Advice(NamedTuple):
    """A situation, the check that finds it, and how its advice is followed.

    First the chosen commands of the advice are executed, then `does` does what it says in words. `given_by` is the
    function of the doctor.
    """

    given_by: str
    check: str
    health: str
    arrange: Callable[[World], None]
    commands: slice | None = slice(None)
    does: Callable[[World], None] | None = None
    settings: Mapping[str, Any] = MappingProxyType({})


ADVICE = {
    "no sends": Advice("_locks", "locks", "problem", lock("share", "message")),
    "nothing at all": Advice("_locks", "locks", "problem", lock("access exclusive", "message")),
    "no new destinations": Advice("_locks", "locks", "problem", lock("access exclusive", "queue")),
    "limit of the database": Advice("_connections", "connections", "problem", few_connections_in_the_database),
    "idle slot": Advice("_slots", "log", "problem", idle_slot, slice(None), None, {"_KEPT_LOG": -1}),
    "read-only": Advice("_version", "server", "problem", read_only),
    "without triggers": Advice("_version", "server", "problem", without_triggers),
    "overdue": Advice("_maintenance", "maintenance", "problem", overdue, None, connect),
    "overdue among restricted clients": Advice(
        "_maintenance", "maintenance", "problem", overdue_among_restricted_clients, slice(None), let_clients_administer
    ),
    "restored without privileges": Advice("_functions", "functions", "problem", restored_without_privileges),
    "expired": Advice("_maintenance", "maintenance", "note", expired, None, connect),
    "old snapshot": Advice("_vacuum", "vacuum", "problem", old_snapshot),
    "table without autovacuum": Advice("_table", "table message", "problem", without_autovacuum),
    "dead rows": Advice(
        "_table",
        "table delivery",
        "problem",
        dead_rows,
        slice(None),
        None,
        {"_MANY_DEAD_ROWS": 100, "_AUTOVACUUM_IS_LATE": timedelta(0)},  # it may have run a moment ago
    ),
    "server without autovacuum": Advice("_autovacuum", "autovacuum", "problem", server_without_autovacuum),
    "few pages": Advice("_plans", "plans", "note", without_pages),
    "open transaction": Advice("_transactions", "transactions", "problem", open_transaction),
    "long claim": Advice("_claims", "claims", "note", long_claim, None, end_clients),
    "in doubt": Advice("_prepared", "two-phase", "problem", in_doubt, slice(1, 2)),
    "in doubt, and commits": Advice("_prepared", "two-phase", "problem", in_doubt, slice(0, 1)),
    "stopped stream": Advice("_of_extension", "streams", "note", stopped_stream),
    "hidden write": Advice("_writes", "writes", "note", hidden_write),
    "selector without index": Advice(
        "_selectors", "selectors", "note", selector_without_index, slice(None), None, {"_DEEP": 1}
    ),
    "broken index": Advice("_selectors", "selectors", "problem", broken_index, slice(0, 1)),
    "paused": Advice("judge_paused", "paused", "note", paused),
    "queue without consumers": Advice("judge_unattended", "consumers", "note", unread_queue, None, receive),
    "unread subscription": Advice("_subscriptions", "subscriptions", "problem", unread_subscription),
    "unwanted messages": Advice("_unwanted", "unwanted", "problem", unwanted, slice(None), receive),
    "failing for ever": Advice("_failing", "redelivery", "note", failing, slice(None), fail_again),
    "failing with a policy": Advice("_failing", "redelivery", "note", failing_with_policy, slice(None), fail_again),
    "schedule without clients": Advice("_schedules", "schedules", "problem", schedule_without_clients, None, connect),
    "failing schedule": Advice("_schedules", "schedules", "problem", failing_schedule),
    "failing schedule, and mended": Advice("_schedules", "schedules", "problem", failing_schedule, None, mend_schedule),
    "schedule of no release": Advice("_schedules", "schedules", "note", schedule_that_no_worker_declares),
    "schedule without workers": Advice(
        "_schedules", "schedules", "note", schedule_that_no_worker_declares, None, declare
    ),
    "dead letter": Advice("_dead_letters", "dead letters", "note", dead_letter),
    "no schema": Advice("_schema", "schema", "problem", no_schema),
    "schema of another name": Advice("_table", "table message", "problem", schema_of_another_name),
    "client that is gone": Advice("_clients", "clients", "note", gone_client, None, connect),
}
"""By what is wrong."""


@pytest.mark.parametrize("name", ADVICE)
def test_following_the_advice_ends_the_finding(world: World, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    advice = ADVICE[name]
    for setting, value in advice.settings.items():
        monkeypatch.setattr(doctor, setting, value)
    advice.arrange(world)
    exit_code, found = world.wait_for_diagnosis(advice.check)
    assert [each["health"] for each in found] == [advice.health], found
    assert exit_code == 1 or advice.health == "note"

    if advice.commands is not None:
        world.follow(found[0]["advice"], advice.commands)
    if advice.does is not None:
        advice.does(world)
    wait_for(lambda: not world.findings(advice.check), 60.0)


MAKERS = {"_ok", "_note", "_problem"}
IN_WORDS = {
    "_clock": "NTP",
    "_disk": "a full disk, in tests of faults",
    "_durability": "where it is set",
    "_notification_queue": "half a queue of 8 GB",
    "_notifications": "a pooler without LISTEN",
    "_pooler": "a control_url",
    "_rights": "a grant, in the test of restricted roles",
    "_unexamined": "it names another check",
}
"""Functions with advice that no test follows, and why."""


def test_all_advice_is_followed() -> None:
    giving = {
        name
        for name, function in inspect.getmembers(doctor, inspect.isfunction)
        if re.search(r"_note\(|_problem\(|\bFinding\(", inspect.getsource(function)) and name not in MAKERS
    }
    assert giving == {advice.given_by for advice in ADVICE.values()} | IN_WORDS.keys()
