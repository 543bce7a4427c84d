"""Overviews by depth: a deep queue is not missed, wherever its messages stand in the tables."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from jmsql.client._sync.link.opening import open_runner
from jmsql.store.administration import overview
from jmsql.store.administration.overview import DestinationOverview, Memory, OverviewOrder
from jmsql.store.wire._sync.runner import PsycopgRunner

_DEEP = {"a deep one": 20_000, "a burst": 900, "a burst of 700": 700, "of two priorities": 500}
_SHALLOW = 60


@pytest.fixture
def runner(jmsql_clean_url: str, jmsql_schema: str) -> Iterator[PsycopgRunner]:
    """Deep queues, the messages of which stand in a few pages of the table, and many that hold a few for long."""
    with psycopg.connect(jmsql_clean_url) as database:
        database.execute("insert into jmsql_internal.queue (name) select 'shallow ' || n from generate_series(1, %s) n",
                         [_SHALLOW])  # fmt: skip
        _fill(database, "shallow %", 20)
        for name, number in _DEEP.items():
            database.execute("insert into jmsql_internal.queue (name) values (%s)", [name])
            _fill(database, name, number, 2 if "two" in name else 1)
        database.execute("insert into jmsql_internal.topic (name) values ('news')")
        database.execute(
            "insert into jmsql_internal.subscription (topic_id, name, durable, shared, no_local) "
            "select topic_id, 'readers', true, true, false from jmsql_internal.topic"
        )
        _fill(database, None, 400)
        database.execute(
            "insert into jmsql_internal.delayed_message "
            "(queue_id, inverse_priority, jms_delivery_mode, message_type, jms_delivery_time, text_body) "
            "select queue_id, 5, 2, 'TextMessage', 1900000000000 + n, 'x' "
            "from jmsql_internal.queue, generate_series(1, 300) n where name = 'shallow 1'"
        )
        _fill(database, "shallow %", 20)
    with open_runner(jmsql_clean_url, jmsql_schema) as runner:
        yield runner


def _fill(database: psycopg.Connection, name: str | None, number: int, priorities: int = 1) -> None:
    database.execute(
        "insert into jmsql_internal.message "
        "(queue_id, inverse_priority, jms_delivery_mode, message_type, jms_timestamp, text_body) "
        "select q.queue_id, 5 - n %% %s, 2, 'TextMessage', 1, 'x' "
        "from generate_series(1, %s) n, jmsql_internal.queue q where q.name like %s "
        "or (q.name is null and %s::text is null)",
        [priorities, number, name, name],
    )


def by_depth(runner: PsycopgRunner, memory: Memory | None = None, limit: int = 6) -> list[DestinationOverview]:
    return runner.run(overview.overview(limit, OverviewOrder.depth, memory or Memory()))


EXPECTED = [("a deep one", "1,000+"), ("a burst", "900"), ("a burst of 700", "700"), ("of two priorities", "500"),
            ("news", "400"), ("shallow 1", "340")]  # fmt: skip


def seen(found: list[DestinationOverview]) -> list[tuple[str, str]]:
    return [(each.destination.name, str(each.messages)) for each in found]


def test_deep_queues_come_first_though_a_sample_misses_them(
    runner: PsycopgRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "_SAMPLED_PAGES", 1)
    for _ in range(5):
        assert seen(by_depth(runner)) == EXPECTED
    bursts = runner.run(overview.overview(2, OverviewOrder.depth, Memory(), like="a burst%"))
    assert seen(bursts) == EXPECTED[1:3]
    [readers] = runner.run(overview.overview(9, OverviewOrder.depth, Memory(), kind="subscription"))
    assert str(readers.messages) == "400"


def test_overviews_that_may_count_little_find_them_one_after_the_other(
    runner: PsycopgRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "_SAMPLED_PAGES", 1)
    monkeypatch.setattr(overview, "_BOUNDED_AT_ONCE", 7)
    monkeypatch.setattr(overview, "_FEW", 5)
    monkeypatch.setattr(overview, "_COUNTED_FIRST", 400)
    monkeypatch.setattr(overview, "_COUNTED_LATER", 200)
    memory = Memory()
    assert [seen(by_depth(runner, memory)) for _ in range(12)][-1] == EXPECTED


def test_a_queue_that_has_become_deep_is_in_the_next_overview(runner: PsycopgRunner, jmsql_clean_url: str) -> None:
    memory = Memory()
    assert seen(by_depth(runner, memory)) == EXPECTED
    with psycopg.connect(jmsql_clean_url) as database:
        _fill(database, "shallow 7", 600)
    assert seen(by_depth(runner, memory, limit=5))[3] == ("shallow 7", "640")
