"""The lease: one client does the maintenance, and another as soon as that one is gone, frozen or has lost it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, LiteralString

import psycopg
import pytest

from jmsql.store.maintenance.leadership import LeadershipLostError, Lease, while_leading
from jmsql.store.maintenance.maintenance import Maintenance
from jmsql.store.receiving.receive import has_groups
from jmsql.store.statement import Result
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.testing import wait_for
from jmsql.timings import InternalTimings
from tests.integration.store.conftest import Client, OpenClient, send
from tests.leadership import SUSPEND_MAINTENANCE

pytestmark = pytest.mark.maintained

LONG_AGO = 1
HAS_GROUPS = has_groups(1)
PASS: LiteralString = "update jmsql_internal.leadership set expires_at = expires_at - duration"


IMPATIENT = InternalTimings(
    maintenance_interval=0.001, lease_duration=0.002, lock_timeout=0.001, idle_in_transaction_timeout=0.001
)
"""The lease is looked at before each statement."""


def connect(client: Client) -> int:
    """Make a client known, as control connections do."""
    [(number,)] = client.rows("select jmsql_internal.connect_client('here', 1)")
    return int(number)


def lead(client: Client, connection_id: int) -> bool:
    return Lease(connection_id, InternalTimings()).renew(client.runner)


def test_one_client_has_the_lease_and_renews_it(client: Client, open_client: OpenClient) -> None:
    other = open_client()
    first, second = connect(client), connect(other)
    assert lead(client, first)
    assert not lead(other, second)
    expires_at = client.rows("select expires_at from jmsql_internal.leadership")
    assert lead(client, first)
    assert client.rows("select expires_at from jmsql_internal.leadership") > expires_at


def test_asking_for_a_lease_that_another_has_writes_nothing(client: Client, open_client: OpenClient) -> None:
    other = open_client()
    first, second = connect(client), connect(other)
    assert lead(client, first)
    before = client.rows("select xmin::text, xmax::text, ctid::text from jmsql_internal.leadership")
    assert not lead(other, second)
    assert client.rows("select xmin::text, xmax::text, ctid::text from jmsql_internal.leadership") == before


def test_another_takes_over_at_once_from_a_client_that_has_closed(client: Client, open_client: OpenClient) -> None:
    other = open_client()
    assert lead(other, connect(other))
    other.connection.execute("delete from jmsql_internal.connection")
    assert lead(client, connect(client))


def test_another_takes_over_soon_from_a_client_that_was_killed(client: Client, open_client: OpenClient) -> None:
    other = open_client()
    assert lead(other, connect(other))
    other.connection.close()
    successor = connect(client)
    wait_for(lambda: lead(client, successor), timeout=4.5)  # its lease would last for 5 s


def test_another_takes_over_from_a_client_that_does_not_renew_it(client: Client, open_client: OpenClient) -> None:
    frozen = open_client()
    first, second = connect(frozen), connect(client)
    assert lead(frozen, first)
    client.connection.execute(PASS)
    assert lead(client, second)
    assert not lead(frozen, first)


def test_clock_set_back_leaves_no_lease_that_lasts_for_hours(client: Client, open_client: OpenClient) -> None:
    other = open_client()
    first, second = connect(other), connect(client)
    assert lead(other, first)
    client.connection.execute("update jmsql_internal.leadership set expires_at = expires_at + interval '2 hours'")
    assert lead(client, second)


def test_a_lease_lasts_as_long_as_its_client_s_timings_say(client: Client, open_client: OpenClient) -> None:
    other = open_client()
    first, second = connect(other), connect(client)
    assert Lease(first, IMPATIENT).renew(other.runner)
    duration = (
        "select extract(epoch from duration)::float, expires_at < clock_timestamp() + duration "
        "from jmsql_internal.leadership"
    )
    assert client.rows(duration) == [(0.002, True)]
    wait_for(lambda: lead(client, second))
    assert client.rows(duration) == [(5.0, True)]
    assert not lead(other, first)


def test_two_of_all_are_next_in_line_and_one_of_other_processes_and_hosts(
    client: Client, open_client: OpenClient
) -> None:
    """A worker's process has two clients, and a host many processes; they end together."""
    places = [("here", 1)] * 4 + [("here", 2)] * 2 + [("there", 1)] * 2
    clients = [client, *(open_client() for _ in places[1:])]
    numbers = [
        each.rows(f"select jmsql_internal.connect_client('{host}', {process})")[0][0]
        for each, (host, process) in zip(clients, places, strict=True)
    ]
    assert lead(clients[0], numbers[0])
    standings = []
    for each, number in zip(clients[1:], numbers[1:], strict=True):
        lease = Lease(number, InternalTimings())
        assert not lease.renew(each.runner)
        assert lease.standing is not None
        standings.append(lease.standing.is_next)
    assert standings == [True, True, False, True, False, True, False]


@pytest.mark.parametrize("duration", ["5001 ms", "1 month", "0", "-1 s", None])
def test_the_server_gives_no_lease_for_longer_than_five_seconds(client: Client, duration: str | None) -> None:
    number = connect(client)
    refused = psycopg.errors.CheckViolation if duration is not None else psycopg.errors.NotNullViolation
    with pytest.raises(refused):
        client.connection.execute(
            "insert into jmsql_internal.leadership values (true, %s, clock_timestamp(), %s)", [number, duration]
        )
    if duration is not None:
        with pytest.raises(psycopg.errors.CheckViolation):
            client.connection.execute("select jmsql_internal.lead(%s, %s)", [number, duration])
    assert lead(client, number)


def test_maintenance_can_be_suspended(client: Client) -> None:
    number = connect(client)
    client.connection.execute(SUSPEND_MAINTENANCE)
    assert not lead(client, number)
    client.connection.execute("delete from jmsql_internal.leadership")
    assert lead(client, number)


def test_frozen_leader_finds_out_before_its_next_step(client: Client, open_client: OpenClient) -> None:
    frozen = open_client()
    first, second = connect(frozen), connect(client)
    lease = Lease(first, IMPATIENT)
    assert lease.renew(frozen.runner)
    leader = while_leading(frozen.runner, lease)
    assert leader.run(HAS_GROUPS) is False
    client.connection.execute(PASS)
    assert lead(client, second)
    with pytest.raises(LeadershipLostError):
        leader.run(HAS_GROUPS)


def test_leader_that_loses_the_lease_in_the_middle_stops_there(client: Client, open_client: OpenClient) -> None:
    frozen = open_client()
    first, second = connect(frozen), connect(client)
    maintenance = Maintenance(IMPATIENT)

    class Interrupted(PsycopgRunner):
        """Another client takes over before the leader comes to what has expired."""

        def execute(self, statement: bytes, parameters: Mapping[str, Any]) -> Result:
            if b"dead_letter" in statement:
                client.connection.execute(PASS)
                lead(client, second)
            return super().execute(statement, parameters)

    send(client, "expired", expiration=LONG_AGO)
    maintenance.run(Interrupted(frozen.connection, "jmsql"), first)
    assert client.rows("select count(*) from jmsql_internal.message") == [(1,)]
    maintenance.run(frozen.runner, first)
    Maintenance(InternalTimings()).run(client.runner, second)
    assert client.rows("select count(*) from jmsql_internal.message") == [(0,)]


# Strangers


@pytest.fixture
def stranger(client: Client, open_client: OpenClient) -> Iterator[Client]:
    """A connection of a role that has no privilege at all."""
    client.connection.execute("create role maintaining_stranger")
    stranger = open_client()
    stranger.connection.execute("set role maintaining_stranger")
    yield stranger
    stranger.connection.close()
    client.connection.execute("drop role maintaining_stranger")


HELD: LiteralString = """
    from pg_locks where locktype = 'advisory' and granted
    and database = (select oid from pg_database where datname = current_database())"""
LOCKS = f"select classid::bigint, objid::bigint, objsubid {HELD}"
TAKE = "select pg_advisory_lock(%(high)s::bigint << 32 | %(low)s::bigint)"


def test_stranger_does_not_keep_a_dead_client_alive_by_its_lock(
    client: Client, open_client: OpenClient, stranger: Client
) -> None:
    victim = open_client()
    number = connect(victim)
    is_connected = f"select jmsql_internal.is_connected({number})"
    assert client.rows(is_connected) == [(True,)]
    [(high, low, kind)] = client.rows(LOCKS)
    assert kind == 1
    victim.connection.close()
    stranger.connection.execute(TAKE, {"high": high, "low": low})
    assert client.rows(LOCKS) == [(high, low, kind)], "the stranger has it"
    assert client.rows(is_connected) == [(False,)]
    Maintenance(InternalTimings()).run(client.runner, connect(client))
    assert client.rows(f"select from jmsql_internal.connection where connection_id = {number}") == []


def test_locks_that_strangers_take_first_hinder_no_client_and_no_maintenance(
    client: Client, stranger: Client, open_client: OpenClient
) -> None:
    last = connect(open_client())
    [(table,)] = client.rows("select 'jmsql_internal.connection'::regclass::oid::bigint % 2147483647")
    for number in (0, *range(last, last + 20)):
        stranger.connection.execute("select pg_advisory_lock(%s, %s), pg_advisory_lock(%s)", [table, number, number])
    number = connect(client)
    assert client.rows(f"select jmsql_internal.is_connected({number})") == [(True,)]
    send(client, "expired", expiration=LONG_AGO)
    Maintenance(InternalTimings()).run(client.runner, number)
    assert client.rows("select count(*) from jmsql_internal.message") == [(0,)]
    assert client.rows(f"select jmsql_internal.is_connected({number})") == [(True,)]


def test_role_that_may_not_administer_gets_no_lease(client: Client, open_client: OpenClient) -> None:
    user = open_client()
    client.connection.execute("create role leading_user")
    try:
        client.connection.execute("select jmsql.create_queue('granted', '{}')")
        client.connection.execute("select jmsql.grant_access('granted', 'leading_user', 'send', 'receive')")
        user.connection.execute("set role leading_user")
        assert not lead(user, connect(user))
        assert client.rows("select from jmsql_internal.leadership") == []
        for change in (
            "insert into jmsql_internal.leadership values (true, null, 'infinity')",
            "delete from jmsql_internal.leadership",
            "select from jmsql_internal.leadership for update",
            "truncate jmsql_internal.leadership",
        ):
            with pytest.raises(Exception, match="permission denied"):
                user.connection.execute(change.encode())
    finally:
        user.connection.close()
        client.connection.execute("select jmsql.revoke_access('granted', 'leading_user', 'send', 'receive')")
        client.connection.execute("drop owned by leading_user; drop role leading_user")


def test_row_of_a_client_is_seen_only_once_its_lock_is_held(client: Client, open_client: OpenClient) -> None:
    """However much time passes in between: the client that maintains the store takes it for dead at no moment."""
    slow = open_client(transactions=True)
    number = connect(slow)
    leader = connect(client)
    assert client.rows("select connection_id from jmsql_internal.connection") == [(leader,)]
    [(held,)] = client.rows(f"select count(*) {HELD}")
    assert held == 2, "the lock is there before the row"
    Maintenance(InternalTimings()).run(client.runner, leader)
    slow.connection.commit()
    Maintenance(InternalTimings()).run(client.runner, leader)
    assert client.rows(f"select jmsql_internal.is_connected({number})") == [(True,)]
    assert client.rows("select count(*) from jmsql_internal.connection") == [(2,)]
