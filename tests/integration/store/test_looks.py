"""Looks read few rows, whatever the tables hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from typing import Any

import psycopg
import pytest

from jmsql import JMSException, Queue
from jmsql.client._sync.link.opening import open_runner
from jmsql.messages.types.typed_json import parse_json
from jmsql.selectors import Selector
from jmsql.store.administration import browsing, diagnosis, emptying, limits, looks, overview, results
from jmsql.store.administration.looks import Choice, MessageState
from jmsql.store.administration.overview import Memory, OverviewOrder
from jmsql.store.administration.places import BEGINNING, Place
from jmsql.store.statement import Item, Items, Query, Statement, Steps
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.testing.database import session_database
from tests.integration.store.plans import Plan

MOST_ROWS = 20_000
_QUEUES, _DEEP = 3000, 60_000
_PARAMETER = re.compile(r"%\((\w+)\)s")

_FILL = f"""
    insert into jmsql_internal.queue (name) select 'queue ' || n from generate_series(1, {_QUEUES}) n;
    insert into jmsql_internal.topic (name) select 'topic ' || n from generate_series(1, {_QUEUES}) n;
    insert into jmsql_internal.subscription (topic_id, name, durable, shared, no_local)
        select topic_id, 'subscription of ' || topic_id, true, true, false
        from jmsql_internal.topic order by topic_id limit 2000;
    create temporary view message as
        select queue_id, inverse_priority, jms_delivery_mode, message_type, jms_timestamp, jms_expiration, text_body,
               properties
        from jmsql_internal.message;
    insert into message
        select q.queue_id, p, 2, 'TextMessage', 1700000000000 + p, null, 'x', '{{"color": "red"}}'
        from jmsql_internal.queue q, generate_series(3, 5) p;
    insert into jmsql_internal.queue (name) values ('deep'), ('letters');
    insert into message
        select q.queue_id, n % 3, 2, 'TextMessage', n, case when n % 2 = 0 then 1 end, 'x', jsonb_build_object('n', n)
        from generate_series(1, {_DEEP}) n, jmsql_internal.queue q where q.name = 'deep';
    insert into message
        select q.queue_id, 5, 2, 'TextMessage', n, null, 'x',
               jsonb_build_object('JMS_jmsql_DeadLetterReason', 'maximum deliveries', 'JMS_jmsql_LastError',
                                  'E' || n % 5, 'JMS_jmsql_OriginalDestination', 'queue://queue ' || n % 3,
                                  'JMS_jmsql_DeadLetterTime', n)
        from generate_series(1, {_DEEP // 2}) n, jmsql_internal.queue q where q.name = 'letters';
    insert into jmsql_internal.delayed_message
        (queue_id, inverse_priority, jms_delivery_mode, message_type, jms_delivery_time, text_body)
        select q.queue_id, 5, 2, 'TextMessage', 1900000000000 + n, 'x'
        from generate_series(1, {_DEEP // 2}) n, jmsql_internal.queue q where q.name = 'deep';
    insert into jmsql_internal.connection (host, process_id) select 'h', n from generate_series(1, 30000) n;
    insert into jmsql_internal.delivery
        (queue_id, inverse_priority, sequence, claim_id, connection_id, claimed_at, delivery_count, error_count)
        select m.queue_id, m.inverse_priority, m.sequence, m.sequence,
               (select min(connection_id) from jmsql_internal.connection) + m.sequence % 100, now(), 1, 1
        from jmsql_internal.message m join jmsql_internal.queue q using (queue_id)
        where q.name = 'deep' and m.sequence % 2 = 0;
    insert into jmsql_internal.consumer (connection_id, queue_id, selector, consumers)
        select c.connection_id, q.queue_id, '', 1
        from jmsql_internal.connection c, jmsql_internal.queue q where q.name = 'deep';
    insert into jmsql_internal.result (message_id, queue_id, deliveries, finished_at, kept_until, state)
        select gen_random_uuid(), q.queue_id, 1, now() - n * interval '1 s', now() + interval '1 day', 'done'
        from generate_series(1, {_DEEP}) n, jmsql_internal.queue q where q.name = 'deep';
    insert into jmsql_internal.listener_limit (queue_id, selector, rate, per, rate_by, at_most)
        select q.queue_id, '', 1, 3600, 'n', 5 from jmsql_internal.queue q;
    insert into jmsql_internal.limit_usage (limit_id, queue_id, is_rate, value, started, numbers, used_at)
        select l.limit_id, l.queue_id, true, n::text, array[now()], array[1], now()
        from jmsql_internal.listener_limit l join jmsql_internal.queue q using (queue_id), generate_series(1, 3000) n
        where q.name in ('deep', 'letters');
    """


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks may take long: a plan that is explained on a busy machine does, and rows are counted here, not seconds."""
    monkeypatch.setattr(looks, "LONGEST_LOOK", 120.0)


@pytest.fixture(scope="module")
def database_url(jmsql_server_url: str, jmsql_schema: str) -> Iterator[str]:
    """A database of this module's own, in which so much would be in the way of other tests."""
    with session_database(jmsql_server_url, jmsql_schema) as database:
        yield database.url


@pytest.fixture(scope="module")
def store(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A store with many queues, one of which is deep, and many clients that hold messages."""
    with psycopg.connect(database_url, autocommit=True) as database:
        database.execute(_FILL)
        database.execute("analyze")  # as autovacuum does in production, at some time
        yield database


@pytest.fixture(scope="module")
def runner(store: psycopg.Connection[Any], database_url: str, jmsql_schema: str) -> Iterator[PsycopgRunner]:
    with open_runner(database_url, jmsql_schema) as runner:
        yield runner


def number_of(store: psycopg.Connection[Any], name: str) -> int:
    row = store.execute("select queue_id from jmsql_internal.queue where name = %s", [name]).fetchone()
    assert row is not None
    return int(row[0])


def rows_read(plan: Plan) -> int:
    """How many rows of tables the plan has read, those that it dropped too."""
    total = 0.0
    for node in plan.nodes:
        if "Relation Name" in node:
            dropped = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
            total += node["Actual Loops"] * (node["Actual Rows"] + dropped)
    return round(total)


def plans_of(
    runner: PsycopgRunner, work: Query[Any] | Steps[Any] | Items[Any], generic: bool
) -> Generator[tuple[str, int], None, Any]:
    """Run the statements of a look, and yield the name of each with how many rows it has read."""
    steps = iter(work)
    mode = "force_generic_plan" if generic else "force_custom_plan"
    runner.connection.execute(f"set plan_cache_mode = {mode}")
    try:
        query = next(steps)
        while True:
            if isinstance(query, Item):
                query = next(steps)
                continue
            statement = query.statement
            if statement.name in {"begin", "begin_look", "commit", "rollback"}:
                query = steps.send(runner.run(query))
                continue
            document = explained(runner, query, generic)
            yield statement.name, rows_read(Plan(document[0]["Plan"]))
            query = steps.send(runner.run(query))
    except StopIteration as end:
        return end.value
    except JMSException:
        runner.connection.rollback()  # for the tests that follow
        raise


def explained(runner: PsycopgRunner, query: Query[Any], generic: bool) -> Any:
    """Return the plan with which PostgreSQL runs a statement, made for its values, or for any."""
    text = query.statement.encoded(runner.schema).decode()
    explain = "explain (analyze, buffers, format json) "
    if not generic:
        made = Statement(query.statement.name, explain + text, "explaining", lambda result: result.rows[0][0])
        document = runner.run(made.bind(query.parameters))
        return parse_json(document) if isinstance(document, str) else document
    parameters = [query.parameters[name] for name in dict.fromkeys(_PARAMETER.findall(text))]
    numbers = {name: f"${number}" for number, name in enumerate(dict.fromkeys(_PARAMETER.findall(text)), 1)}
    prepared = _PARAMETER.sub(lambda found: numbers[found[1]], text).replace("%%", "%").rstrip().rstrip(";")
    cursor = psycopg.ClientCursor(runner.connection)
    cursor.execute(f"prepare explained as {prepared}".encode())
    try:
        values = "(" + ", ".join(["%s"] * len(parameters)) + ")" if parameters else ""
        cursor.execute(f"{explain} execute explained {values}".encode(), parameters or None)
        [(document,)] = cursor.fetchall()
        return document
    finally:
        cursor.execute(b"deallocate explained")


LOOKS: dict[str, Callable[[dict[str, int]], Query[Any] | Steps[Any]]] = {
    "rights": lambda _: looks.rights,
    "destinations": lambda _: looks.destinations(range(1, 1001)),
    "destination": lambda numbers: looks.destination(numbers["deep"]),
    "figures": lambda numbers: overview.of([numbers["deep"], numbers["letters"], *range(10, 40)], Memory()),
    "what is notable": lambda _: overview.notable,
    "queues without consumers": lambda _: overview.unattended([1, 2]),
    "settings": lambda numbers: looks.settings(numbers["deep"]),
    "topic": lambda _: looks.topic(1),
    "subscriptions": lambda _: looks.topic_subscriptions(1, 0, 50),
    "search": lambda _: looks.find("nothing like it", 0, 50),
    "search further": lambda _: looks.find("9", 2500, 50),
    "consumers": lambda numbers: looks.consumers(numbers["deep"], 50),
    "clients": lambda _: looks.clients(0, 25),
    "holders": lambda _: looks.holders(50),
    "first page": lambda numbers: looks.messages(numbers["deep"], Choice(), BEGINNING, 50),
    "page in the middle": lambda numbers: looks.messages(numbers["deep"], Choice(), Place(1, 30_000), 50),
    "page of a selector that chooses none": lambda numbers: looks.messages(
        numbers["deep"], Choice(looks.parse_selector("color = 'blue'")), BEGINNING, 50
    ),
    "page of a state": lambda numbers: looks.messages(
        numbers["deep"], Choice(state=MessageState.WAITING), BEGINNING, 50
    ),
    "page of delayed messages": lambda numbers: looks.messages(
        numbers["deep"], Choice(state=MessageState.DELAYED), BEGINNING, 50
    ),
    "message": lambda numbers: looks.message(numbers["deep"], Place(1, 30_001), Queue("deep")),
    "whether there are dead letters": lambda numbers: looks.has_dead_letters(numbers["deep"]),
    "dead letters": lambda numbers: looks.dead_letters(numbers["letters"]),
    "dead letters of a cause": lambda numbers: looks.messages(
        numbers["letters"], Choice(cause="0" * 64), BEGINNING, 50
    ),
    "choice of a cause": lambda numbers: looks.choose(numbers["letters"], Choice(cause="0" * 64), BEGINNING),
    "identifiers": lambda numbers: looks.message_ids(numbers["deep"], [Place(1, number) for number in range(5000)]),
    "history": lambda _: looks.history(Queue("deep"), None, 50),
    "choice": lambda numbers: looks.choose(numbers["deep"], Choice(looks.parse_selector("n > 5")), BEGINNING),
    "choice of delayed": lambda numbers: looks.choose(numbers["deep"], Choice(), Place(-1, 0, delayed=True)),
    "results": lambda _: results.results(None, None, None, 50, time_limit=0.0),
    "results that a filter leaves out": lambda _: results.results("none", "failed", None, 50, time_limit=0.0),
    "results of a message": lambda _: results.whole_results("0" * 8 + "-0000" * 3 + "-" + "0" * 12),
    "limits": lambda _: limits.limits_now(20),
    "limits of a queue": lambda numbers: limits.limits_now(20, queue_id=numbers["deep"]),
    "maintenance": lambda _: diagnosis.maintenance(10_000),
    "claims": lambda _: diagnosis.claims(10_000),
    "failing": lambda _: diagnosis.failing(10_000),
}


@pytest.mark.parametrize("generic", [False, True], ids=["custom", "generic"])
@pytest.mark.parametrize("name", LOOKS)
def test_no_statement_of_a_look_reads_more_than_20000_rows(
    store: psycopg.Connection[Any], runner: PsycopgRunner, name: str, generic: bool
) -> None:
    numbers = {each: number_of(store, each) for each in ("deep", "letters")}
    found = list(plans_of(runner, looks.read_only(LOOKS[name](numbers)), generic))
    assert found
    assert all(rows <= MOST_ROWS for _, rows in found), found


def overview_of(order: OverviewOrder, **settings: Any) -> Callable[[dict[str, int]], Steps[Any]]:
    return lambda _: overview.overview(50, order, Memory(), **settings)


DEEP = Queue("deep")
OF_ADMINISTRATION: dict[str, Callable[[dict[str, int]], Query[Any] | Steps[Any] | Items[Any]]] = {
    "overview by age": overview_of(OverviewOrder.age),
    "overview by age of some names": overview_of(OverviewOrder.age, like="queue 7%"),
    "overview by age of queues": overview_of(OverviewOrder.age, kind="queue"),
    "overview by depth": overview_of(OverviewOrder.depth),
    "overview by movement": overview_of(OverviewOrder.busy),
    "overview by name": overview_of(OverviewOrder.name),
    "overview by name of subscriptions": overview_of(OverviewOrder.name, kind="subscription", like="sub%"),
    "overview by name of topics": overview_of(OverviewOrder.name, kind="topic", like="%9"),
    "overview by a name of none": overview_of(OverviewOrder.name, like="nothing"),
    "overview of 500": lambda _: overview.overview(500, OverviewOrder.age, Memory()),
    "depth": lambda _: overview.depth(DEEP, 1000),
    "dead letters": lambda _: overview.dead_letters(1000),
    "store": lambda _: overview.store(),
    "first messages": lambda _: browsing.browse(DEEP, None, None, 100),
    "messages in the middle": lambda _: browsing.browse(DEEP, None, Place(1, 30_000), 100),
    "delayed messages": lambda _: browsing.browse(DEEP, None, Place(1_900_000_020_000, 0, delayed=True), 100),
    "few that a selector chooses": lambda _: browsing.browse(DEEP, Selector.parse("n = 59000"), None, 5),
    "message at a place": lambda _: browsing.at(DEEP, Place(1, 30_001)),
    "delayed message at a place": lambda _: browsing.at(DEEP, Place(1_900_000_020_000, 1, delayed=True)),
}


@pytest.mark.parametrize("generic", [False, True], ids=["custom", "generic"])
@pytest.mark.parametrize("name", OF_ADMINISTRATION)
def test_no_statement_of_administration_reads_more_than_20000_rows(
    store: psycopg.Connection[Any], runner: PsycopgRunner, name: str, generic: bool
) -> None:
    numbers = {each: number_of(store, each) for each in ("deep", "letters")}
    found = list(plans_of(runner, OF_ADMINISTRATION[name](numbers), generic))
    assert found
    assert all(rows <= MOST_ROWS for _, rows in found), found


def overview_by_age(memory: Memory, limit: int = 20) -> Steps[list[overview.DestinationOverview]]:
    return overview.overview(limit, OverviewOrder.age, memory)


@pytest.mark.parametrize("generic", [False, True], ids=["custom", "generic"])
def test_an_overview_by_age_that_follows_another_looks_at_a_part_of_the_queues(
    store: psycopg.Connection[Any], runner: PsycopgRunner, generic: bool
) -> None:
    memory = Memory()
    assert store.execute("select count(*) > 4200 from jmsql_internal.queue").fetchone() == (True,)
    first = [name for name, _ in plans_of(runner, overview_by_age(memory), generic)]
    second = list(plans_of(runner, overview_by_age(memory), generic))
    assert first.count("oldest") == 4
    assert [name for name, _ in second].count("oldest") == 3
    assert sum(rows for _, rows in second) < MOST_ROWS
    assert [each.number for each in runner.run(overview_by_age(memory))] == [
        each.number for each in runner.run(overview_by_age(Memory()))
    ]


def test_overviews_by_age_that_follow_another_see_what_has_come_and_gone(
    store: psycopg.Connection[Any], runner: PsycopgRunner
) -> None:
    memory = Memory()
    oldest, *_ = runner.run(overview_by_age(memory))
    late = number_of(store, "queue 2900")
    [moved] = [
        sequence
        for (sequence,) in store.execute(
            "update jmsql_internal.message set queue_id = %s where queue_id = %s and inverse_priority = 3 "
            "returning sequence",
            [late, oldest.number],
        )
    ]
    try:
        assert runner.run(overview_by_age(Memory()))[0].number == late
        later = [runner.run(overview_by_age(memory)) for _ in range(3)]
        assert later[-1][0].number == late
        assert all(found[0].number != oldest.number for found in later)
    finally:
        store.execute(
            "update jmsql_internal.message set queue_id = %s where queue_id = %s and sequence = %s",
            [oldest.number, late, moved],
        )


def test_an_overview_of_a_longer_list_or_of_other_names_begins_again(runner: PsycopgRunner) -> None:
    memory = Memory()
    runner.run(overview_by_age(memory, limit=1))
    assert len(runner.run(overview_by_age(memory, limit=7))) == 7
    found = runner.run(overview.overview(7, OverviewOrder.age, memory, like="queue 29%"))
    assert {each.destination.name[:8] for each in found} == {"queue 29"}


@pytest.mark.parametrize("generic", [False, True], ids=["custom", "generic"])
def test_depth_in_sql_reads_only_the_rows_that_it_counts(store: psycopg.Connection[Any], generic: bool) -> None:
    mode = "force_generic_plan" if generic else "force_custom_plan"
    fetched = "select sum(n_tup) from (select pg_stat_get_xact_tuples_returned(i) as n_tup from (values "
    fetched += "('jmsql_internal.message_pkey'::regclass), ('jmsql_internal.message'::regclass)) as t (i)) as r"
    with store.transaction():
        store.execute(f"set local plan_cache_mode = {mode}")
        before = store.execute(fetched).fetchone()
        counted = store.execute("select jmsql.depth('deep', 1000)").fetchone()
        after = store.execute(fetched).fetchone()
    assert counted == (1000,)
    assert before is not None
    assert after is not None
    assert after[0] - before[0] <= 1001


@pytest.mark.parametrize("generic", [False, True], ids=["custom", "generic"])
def test_actions_read_only_the_messages_that_they_change(
    store: psycopg.Connection[Any], runner: PsycopgRunner, generic: bool
) -> None:
    letters = number_of(store, "letters")
    window = runner.run(looks.choose(letters, Choice(), BEGINNING))
    for work in (
        emptying.retry_at(letters, window.places[:100]),
        emptying.purge_at(letters, window.places[:100]),
        emptying.move_at(letters, DEEP, window.places[100:200]),
    ):
        found = list(plans_of(runner, work, generic))
        assert all(rows <= MOST_ROWS for _, rows in found), found
