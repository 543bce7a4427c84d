"""Every statement on the way of a message reads by the primary key, whatever the tables hold or held.

A queue is empty at one moment, which is when it is vacuumed and analyzed, and long at the next. Prepared statements
keep their plans across all of it. So each is planned at such moments, and run on a long queue.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

import jmsql
from jmsql.selectors import Selector
from jmsql.store.maintenance import due_messages
from jmsql.store.maintenance.leadership import HAS_MESSAGE
from jmsql.store.maintenance.maintenance import Maintenance, reap_expired
from jmsql.store.receiving.acknowledge import (
    acknowledgements,
    delete_last,
    delete_last_and_forget,
    delete_last_with_history,
    delete_locked,
    delete_locked_with_history,
    forget_deliveries,
)
from jmsql.store.receiving.candidates import first_of_groups_statement
from jmsql.store.receiving.receive import (
    browse_statement,
    claim_statement,
    dequeue_statement,
    has_messages_statement,
    highest_sequences,
    lock_statement,
)
from jmsql.store.receiving.redelivery import (
    ExtendedClaim,
    Release,
    bury,
    extend_claims,
    find_policy,
    record_attempts,
    record_deliveries,
    record_first_deliveries,
    release_claimed,
)
from jmsql.store.rows.columns import SEND_COLUMNS
from jmsql.store.rows.message_rows import MessageKey, OutgoingMessage
from jmsql.store.sending.send import insertion, last_insertion, queues_to_copy_to
from jmsql.store.statement import Query, Statement, column
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.testing import wait_for
from jmsql.timings import InternalTimings
from tests.integration.store.plans import SMALL_TABLES, Plan, PlannedStatement, bloat_indexes, sql_of

SCHEMA = "jmsql_plans"


def text(statement: Statement[Any] | Query[Any]) -> str:
    return sql_of(statement, SCHEMA)


PRIORITY = 5
LONG = 20_000
"""How many messages there are, of which half are claimed; and how many delayed ones, of which half are due."""
BATCH = 100

FILL = f"""
    insert into {SCHEMA}_internal.message (queue_id, inverse_priority, jms_delivery_mode, message_type, text_body,
        sequence)
        select 1, {PRIORITY}, 2, 'TextMessage', repeat('x', 200), n from generate_series(1, {LONG}) as n;
    insert into {SCHEMA}_internal.delivery (queue_id, inverse_priority, sequence, claim_id, connection_id, claimed_at)
        select 1, {PRIORITY}, n, 7, 1, now() from generate_series(1, {LONG // 2}) as n;
    insert into {SCHEMA}_internal.delayed_message
        (queue_id, inverse_priority, jms_delivery_mode, message_type, text_body, jms_delivery_time)
        select 1, {PRIORITY}, 2, 'TextMessage', repeat('x', 200),
               case when n <= {LONG // 2} then n else {SCHEMA}_internal.current_milliseconds() + 3600000 + n end
        from generate_series(1, {LONG}) as n;
    select setval('{SCHEMA}_internal.message_sequence', last_value + {LONG}) from {SCHEMA}_internal.message_sequence;
    """
EMPTY = (
    f"delete from {SCHEMA}_internal.message; delete from {SCHEMA}_internal.delivery; "
    f"delete from {SCHEMA}_internal.delayed_message"
)
TABLES = ("message", "delivery", "delayed_message")
VACUUM = f"vacuum (analyze) {', '.join(f'{SCHEMA}_internal.{table}' for table in TABLES)}"

# Groups of ten messages that follow one another, in a queue of their own; a tenth of the first half is claimed.
FILL_GROUPS = f"""
    insert into {SCHEMA}_internal.message
        (queue_id, inverse_priority, jms_delivery_mode, message_type, text_body, sequence, properties)
        select 2, {PRIORITY}, 2, 'TextMessage', repeat('x', 200), n,
               jsonb_build_object('JMSXGroupID', 'group ' || n / 10)
        from generate_series(1, {LONG}) as n;
    insert into {SCHEMA}_internal.delivery
        (queue_id, inverse_priority, sequence, group_hash, claim_id, connection_id, claimed_at)
        select m.queue_id, m.inverse_priority, m.sequence, m.group_hash, 7, 1, now() from {SCHEMA}_internal.message m
        where m.queue_id = 2 and m.sequence <= {LONG // 2} and m.sequence % 10 = 0;
    """
FILL += FILL_GROUPS

FEW = f"""
    insert into {SCHEMA}_internal.message
        (queue_id, inverse_priority, jms_delivery_mode, message_type, jms_expiration, properties)
        select 2, {PRIORITY}, 2, 'TextMessage', n, jsonb_build_object('JMSXGroupID', 'group ' || n)
        from generate_series(1, 3) as n;
    insert into {SCHEMA}_internal.delivery
        (queue_id, inverse_priority, sequence, group_hash, claim_id, connection_id, claimed_at)
        select 2, {PRIORITY}, n, n, 7, 1, now() from generate_series(1, 3) as n;
    insert into {SCHEMA}_internal.delayed_message
        (queue_id, inverse_priority, jms_delivery_mode, message_type, jms_delivery_time)
        select 2, {PRIORITY}, 2, 'TextMessage', 253402214399999 from generate_series(1, 3) as n;
    """

LOOK = Statement(
    "has_messages",
    f"select q.queue_id from jmsql_internal.queue q where q.queue_id = any(%(queue_ids)s::integer[]) and {HAS_MESSAGE}",
    "looking for messages",
    column,
)
SELECTED = lock_statement(Selector.parse("color = 'blue' and weight > 2500 and size = 'L' and JMSType = 'order'"))
NEXT: dict[str, object] = {
    "queue_id": 1,
    "lowest": [0] * PRIORITY + [LONG // 2 + 1] + [0] * (9 - PRIORITY),
}
# One transaction has ended since, and another one goes on.
LATE = NEXT | {"running": ["3", str(2**60)], "starts": [LONG // 2 + 1, 1, LONG // 2 + 1], "later": "3"}
# A hundred messages of ten groups that are free, and ten more groups below where the scan begins.
GROUPED = NEXT | {
    "queue_id": 2,
    "place_priorities": [PRIORITY] * 10,
    "place_sequences": [LONG // 4 + 10 * n + 1 for n in range(10)],
    "place_limit": 1,
    "own_claims": [7],
}
KEYS: dict[str, object] = {
    "queue_ids": [1] * BATCH,
    "inverse_priorities": [PRIORITY] * BATCH,
    "sequences": list(range(1, BATCH + 1)),
}
FREE_KEYS = KEYS | {"sequences": list(range(LONG // 2 + 1, LONG // 2 + BATCH + 1))}
CLAIMS = KEYS | {"claim_ids": [7] * BATCH}
TOGETHER: dict[str, object] = {
    "queue_id": 1,
    "inverse_priority": PRIORITY,
    "sequences": CLAIMS["sequences"],
    "claim_ids": CLAIMS["claim_ids"],
}
WHOLE: dict[str, object] = {
    "queue_id": 1,
    "inverse_priority": PRIORITY,
    "sequences": [1, BATCH],
    "claim_id": 7,
    "number": BATCH,
}
ADDRESSES = {"addresses": [f"({page},1)" for page in range(200, 200 + BATCH)]}
RECORDING = ADDRESSES | {"queue_ids": [1], "deliveries": None, "connection_id": 1}
OUTCOMES = {
    "attempts": [1] * BATCH,
    "delays": [0.5] * BATCH,
    "errors": ["no"] * BATCH,
    "error_counts": [1] * BATCH,
    "dead_letter_queue_ids": [None] * BATCH,
}
KEY = MessageKey(1, PRIORITY, 1)
RELEASE = Release(KEY, 7)
MESSAGE: dict[str, Any] = dict.fromkeys((name for name, _ in SEND_COLUMNS), None) | {
    "destination": "groups",
    "inverse_priority": PRIORITY,
    "jms_message_id": str(uuid.UUID(int=1)),
    "jms_delivery_mode": 2,
    "message_type": "TextMessage",
    "text_body": "hello",
}
OUTGOING = OutgoingMessage(**MESSAGE)


@dataclass(frozen=True)
class Case:
    """A statement, what it is run with, and what it may take."""

    statement: str
    parameters: Mapping[str, object]
    buffers: int
    rows: int = field(default=BATCH)


CASES = {
    # An insertion may split a page of an index, and find the table to be extended.
    "send one": Case(text(insertion([OUTGOING])), MESSAGE, 300, 1),
    "send a batch": Case(
        text(insertion([OUTGOING, OUTGOING])), {name: [value] * BATCH for name, value in MESSAGE.items()}, 1000
    ),
    "send one with the commit": Case(text(last_insertion([OUTGOING])), MESSAGE, 300, 1),
    "send a batch with the commit": Case(
        text(last_insertion([OUTGOING, OUTGOING])),
        {name: [value] * BATCH for name, value in MESSAGE.items()},
        1500,
    ),
    "find the queue of a batch": Case(text(queues_to_copy_to(["groups"])), {"names": ["groups"]}, 10, 10),
    "dequeue one": Case(text(dequeue_statement(None)), {**NEXT, "limit": 1}, 70, 10),
    "dequeue one beside late ones": Case(text(dequeue_statement(None, late=True)), {**LATE, "limit": 1}, 70, 10),
    # From the front, where others have claimed half of the queue.
    "dequeue one and ask": Case(text(dequeue_statement(None, asks=True)), {**NEXT, "limit": 1}, 31_000, LONG // 2 + 10),
    # The first to call a function, which then reads the catalogs.
    "lock a batch": Case(text(lock_statement(None)), {**NEXT, "limit": BATCH}, 1000),
    "lock one": Case(text(lock_statement(None)), {**NEXT, "limit": 1}, 70, 10),
    "has_messages": Case(text(has_messages_statement()), {**NEXT, "limit": 1}, 70, 10),
    "lock by a selector": Case(
        text(SELECTED),
        {"queue_id": 1, "lowest": [LONG - BATCH + 1] * 10, "limit": BATCH, **SELECTED.parameters},
        1000,
    ),
    "claim a batch": Case(
        text(claim_statement(None)), {**NEXT, "limit": BATCH, "connection_id": 1, "visibility_timeout": None}, 2200
    ),
    "dequeue one of a group": Case(text(dequeue_statement(None, grouped=True)), {**GROUPED, "limit": 1}, 200, 60),
    "dequeue one of a group, or of places": Case(
        text(dequeue_statement(None, grouped=True, places=True)), {**GROUPED, "limit": 1}, 200, 60
    ),
    # Each candidate is compared with the state of the groups' deliveries, eleven rows in memory.
    "lock a batch of groups": Case(text(lock_statement(None, grouped=True)), {**GROUPED, "limit": BATCH}, 3500, 1100),
    "lock a batch of groups and places": Case(
        text(lock_statement(None, grouped=True, places=True)), {**GROUPED, "limit": BATCH}, 3500, 1100
    ),
    "claim a batch of groups": Case(
        text(claim_statement(None, grouped=True)),
        {**GROUPED, "limit": BATCH, "connection_id": 1, "visibility_timeout": None},
        4500,
        1100,
    ),
    "find the first messages of groups": Case(
        text(first_of_groups_statement(None)), {"queue_id": 2, "groups": list(range(10))}, 200
    ),
    "browse a page": Case(
        text(browse_statement(None)),
        {"queue_id": 1, "inverse_priority": PRIORITY, "sequence": LONG // 2, "limit": BATCH},
        600,
    ),
    "delete what is locked": Case(text(delete_locked), ADDRESSES, 500),
    "delete what is locked with the commit": Case(text(delete_last), ADDRESSES, 500),
    "delete what is locked, with history": Case(text(delete_locked_with_history), RECORDING, 500),
    "delete what is locked with the commit, with history": Case(text(delete_last_with_history), RECORDING, 500),
    "acknowledge": Case(text(acknowledgements["acknowledge", "close_together", False]), TOGETHER, 700),
    "acknowledge with the commit": Case(text(acknowledgements["acknowledge", "close_together", True]), TOGETHER, 700),
    "acknowledge with history": Case(
        text(acknowledgements["acknowledge_with_history", "close_together", False]), TOGETHER, 1000
    ),
    "acknowledge a whole claim with the commit": Case(text(acknowledgements["acknowledge", "whole", True]), WHOLE, 700),
    "acknowledge a whole claim with the commit, with history": Case(
        text(acknowledgements["acknowledge_with_history", "whole", True]), WHOLE, 1000
    ),
    "acknowledge what lies anywhere": Case(
        text(acknowledgements["acknowledge_with_history", "anywhere", False]), CLAIMS, 1200
    ),
    "release": Case(text(release_claimed([RELEASE])), CLAIMS | OUTCOMES, 1500),
    "count deliveries": Case(text(record_attempts([RELEASE])), KEYS | OUTCOMES, 1500),
    "record deliveries": Case(
        text(record_deliveries([KEY], 1)), KEYS | {"group_hashes": [None] * BATCH, "connection_id": 1}, 1500
    ),
    "record first deliveries": Case(
        text(next(record_first_deliveries([KEY], 1))),
        FREE_KEYS | {"queue_id": 1, "group_hashes": None, "connection_id": 1},
        1000,
    ),
    "extend claims": Case(
        text(extend_claims([ExtendedClaim(KEY, 7, 60.0, 0.0)])), CLAIMS | {"seconds": [60.0] * BATCH}, 1500
    ),
    "look up the policy": Case(text(find_policy), {"queue_id": 1}, 10, 1),
    "delete what is locked, and forget deliveries": Case(text(delete_last_and_forget), TOGETHER | ADDRESSES, 900),
    "forget deliveries": Case(text(forget_deliveries), KEYS, 800),
    "find the end of the queue": Case(
        text(highest_sequences(1, [0] * 10)), {"queue_id": 1, "lowest": [0] * 10}, 200, 10
    ),
    "reap what has expired": Case(text(reap_expired), {"limit": 500}, 60),
    "send a delayed batch": Case(
        text(insertion([OUTGOING._replace(jms_delivery_time=1)])),
        {name: [value] * BATCH for name, value in (MESSAGE | {"jms_delivery_time": 1}).items()},
        2000,
    ),
    "look for messages": Case(text(LOOK), {"queue_ids": [2]}, 60, 10),
    "look for what is due": Case(text(due_messages.milliseconds_to_next), {}, 10, 1),
    "move what is due": Case(text(due_messages.move_due), {"limit": BATCH}, 1500),
}


NOT_FOR_A_MESSAGE = {"look for messages", "look for what is due"}
"""What the maintenance asks now and then, however many messages there are."""

Planned = dict[str, PlannedStatement]


@contextmanager
def planned(url: str) -> Iterator[Planned]:
    """The statements, prepared on a connection of their own; each keeps the plan that it is first given."""
    with psycopg.connect(url, autocommit=True) as connection:
        yield {name: PlannedStatement(connection, name, case.statement) for name, case in CASES.items()}


def keep_plans(statements: Planned) -> None:
    for name, statement in statements.items():
        statement.plan(CASES[name].parameters)


@pytest.fixture(scope="module")
def administrator(jmsql_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection for the module, with tables that are empty and always were."""
    with psycopg.connect(jmsql_url, autocommit=True) as connection:
        make_tables(connection, jmsql_url)
        yield connection
        drop_tables(connection)


def make_tables(connection: psycopg.Connection[Any], url: str) -> None:
    jmsql.migrate(url, SCHEMA)
    connection.execute(f"insert into {SCHEMA}_internal.queue (name) values ('groups')")  # beside DLQ


def drop_tables(connection: psycopg.Connection[Any]) -> None:
    connection.execute(f"drop schema {SCHEMA}, {SCHEMA}_internal cascade")


@pytest.fixture
def database(administrator: psycopg.Connection[Any], jmsql_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to empty tables for a test that fills them; the next test gets new tables."""
    yield administrator
    drop_tables(administrator)
    make_tables(administrator, jmsql_url)


@pytest.mark.parametrize("name", sorted(CASES.keys() - NOT_FOR_A_MESSAGE))
def test_plans_are_kept_for_single_messages(administrator: psycopg.Connection[Any], jmsql_url: str, name: str) -> None:
    """A plan for one message takes longer to make than to run."""
    case = CASES[name]
    with psycopg.connect(jmsql_url, autocommit=True) as connection:
        statement = PlannedStatement(connection, name, case.statement)
        connection.execute("set plan_cache_mode = auto")
        for _ in range(12):
            statement.plan({name: _first(name, value) for name, value in case.parameters.items()})
        plans = "select generic_plans, custom_plans from pg_prepared_statements where name = left(%s, 63)"
        assert connection.execute(plans, (name,)).fetchall() == [(7, 5)]


def _first(name: str, value: object) -> object:
    """Return an array with its first element alone; but where to begin always has an element for each priority."""
    return value[:1] if isinstance(value, list) and name != "lowest" else value


def test_plans_are_right_whenever_they_are_made(database: psycopg.Connection[Any], jmsql_url: str) -> None:
    with planned(jmsql_url) as when_empty:
        keep_plans(when_empty)
        database.execute(FILL)
        check(when_empty, jmsql_url, "while it is empty")
    with planned(jmsql_url) as when_long:
        check(when_long, jmsql_url, "while the queue is long")
    database.execute(VACUUM)
    with planned(jmsql_url) as when_analyzed:
        check(when_analyzed, jmsql_url, "after it was analyzed")
    database.execute(f"update pg_class set reltuples = 5e6 where oid = '{SCHEMA}_internal.message'::regclass")
    database.execute(f"update pg_class set reltuples = 1e6 where oid = '{SCHEMA}_internal.delivery'::regclass")
    with planned(jmsql_url) as when_thought_large:
        check(when_thought_large, jmsql_url, "when it is thought to have millions")
    database.execute(EMPTY)
    database.execute(VACUUM)
    database.execute(FILL)
    with planned(jmsql_url) as after_a_burst:
        check(after_a_burst, jmsql_url, "after it was analyzed when empty")


def test_plans_are_right_after_vacuum_full_and_a_run_of_maintenance(
    database: psycopg.Connection[Any], jmsql_url: str
) -> None:
    for table in TABLES:
        database.execute(f"vacuum full {SCHEMA}_internal.{table}")
    with planned(jmsql_url) as statements:
        keep_plans(statements)
        restore_pages(database)
        keep_plans(statements)
        database.execute(FILL)
        check(statements, jmsql_url, "after VACUUM FULL and a run of maintenance")


def test_plans_are_right_with_bloated_indexes_vacuumed_with_few_messages(
    database: psycopg.Connection[Any], jmsql_url: str
) -> None:
    bloat_indexes(database, SCHEMA)
    database.execute(VACUUM)
    restore_pages(database)
    database.execute(FEW)
    database.execute(VACUUM)
    with planned(jmsql_url) as statements:
        keep_plans(statements)
        database.execute(EMPTY)
        database.execute(FILL)
        check(statements, jmsql_url, "with bloated indexes")


def restore_pages(database: psycopg.Connection[Any]) -> None:
    """Do the maintenance until the tables have their pages: a run takes a second for it, and passes locked tables."""

    def are_restored() -> bool:
        Maintenance(InternalTimings()).run(PsycopgRunner(database, SCHEMA), 1)
        return database.execute(f"select {SCHEMA}_internal.tables_without_pages()").fetchall() == []

    wait_for(are_restored, timeout=60)


def check(statements: Planned, url: str, moment: str) -> None:
    """Run each statement, and look at its plan; and look for dead letters, which reads next to nothing."""
    complaints = []
    for name, statement in statements.items():
        plan = statement.run(CASES[name].parameters)
        found = [*_bad_scans(plan, name), *_excess(plan, CASES[name])]
        complaints += [f"{name}, planned {moment}: {complaint}\n{_described(plan)}" for complaint in found]
    with psycopg.connect(url, autocommit=True) as connection:
        burial = PlannedStatement(connection, "bury", text(bury()))
        burial.run({"limit": 500})  # makes the plans of what the function does
        # Whatever makes the server plan it again, an autovacuum for example, reads catalogs.
        plan = min((burial.run({"limit": 500}) for _ in range(3)), key=lambda each: each.buffers)
        if plan.buffers > 10:
            complaints.append(f"looking for dead letters, planned {moment}, reads {_described(plan)}")
    assert not complaints, "\n\n".join(complaints)


def _bad_scans(plan: Plan, name: str) -> Iterator[str]:
    """What is wrong with how it reads: by the primary key alone is right, and a queue from where it is to begin."""
    for scan in plan.scans:
        if scan.table in SMALL_TABLES:
            continue
        if "Seq" in scan.kind:
            yield f"reads all of a table: {scan}"
        # The row of a key is found by the identifier of its message, and by equality: no order is asked for.
        if "Bitmap" in scan.kind and scan.table != "coalescing":
            yield f"reads all before the first: {scan}"
        if scan.index_name in {"message_pkey", "delivery_pkey"}:
            if "queue_id" not in scan.condition:
                yield f"reads all of an index: {scan}"
            if "sequence" not in scan.condition and name != "find the end of the queue":
                yield f"reads all of a queue: {scan}"


def _excess(plan: Plan, case: Case) -> Iterator[str]:
    """Whether it takes more than it brings."""
    if round(plan.most_rows) > case.rows:
        yield f"{round(plan.most_rows)} rows, which is more than {case.rows}"
    if plan.buffers > case.buffers:
        yield f"{plan.buffers} pages, which is more than {case.buffers}"


def _described(plan: Plan) -> str:
    lines = "\n".join(
        f"{node['Node Type']} {node.get('Relation Name', '')}: {node['Actual Rows']} rows * {node['Actual Loops']}, "
        f"{node['Shared Hit Blocks'] + node['Shared Read Blocks']} pages"
        for node in plan.nodes
    )
    return f"{plan.buffers} pages:\n{lines}"
