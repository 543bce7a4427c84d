"""The moments that tasks see, without Spark: each thread here asks as a task of some query does."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark import TaskContext

from jmsql import JMSException
from jmsql.spark.connection import DatabaseReference
from jmsql.spark.reading.snapshot import keep_snapshot, see_snapshot
from jmsql.testing import wait_for
from tests.integration.client.server import Server

ANSWERING = "jmsql-spark-answering-tasks"
KEEPER = "jmsql-spark-keeping-a-snapshot"
MOST = 8
_KEPT = 3.0
"""For how many seconds a moment is kept that nobody uses: longer than a busy machine takes to connect."""


@pytest.fixture(autouse=True)
def url(jmsql_clean_url: str, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("JMSQL_URL", jmsql_clean_url)
    yield jmsql_clean_url
    server.terminate(KEEPER)


class Task:
    """Runs as a task of a query does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def count(self, read: int, query: int | None, stage: int = 0) -> int:
        """Return how many queues there are at the moment of a query."""
        context = SimpleNamespace(
            getLocalProperty=lambda _: None if query is None else str(query), stageId=lambda: stage
        )
        self._monkeypatch.setattr(TaskContext, "get", lambda: context)
        with DatabaseReference().connect_arrow("reading") as connection:
            see_snapshot(connection, read, 0.5)
            found = connection.execute("select count(*) from jmsql_internal.queue where name like 'later%'")
            [count] = found.read_all().column(0).to_pylist()
        return int(count)


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Task:
    return Task(monkeypatch)


def add_queue(server: Server) -> None:
    server.rows("insert into jmsql_internal.queue (name) select 'later ' || count(*) from jmsql_internal.queue")


@pytest.mark.parametrize("length", [86, 87, 120], ids=lambda length: f"{length} bytes")
def test_snapshot_is_taken_however_long_the_path_of_temporary_files_is(
    server: Server, task: Task, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    name = f"/jmsql-spark-{os.getuid()}"
    with tempfile.TemporaryDirectory() as root:
        long = Path(root, "l" * (length - len(name) - len(root) - 1))
        long.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(long))
        read = keep_snapshot(DatabaseReference(), timeout=_KEPT)
        add_queue(server)
        assert task.count(read, 1) == 0


def test_snapshot_stays_while_it_is_used_and_a_query_after_that_sees_another(server: Server, task: Task) -> None:
    read = keep_snapshot(DatabaseReference(), timeout=_KEPT)
    with DatabaseReference().connect_arrow("reading") as reader:
        see_snapshot(reader, read, _KEPT)
        add_queue(server)
        seen = [task.count(read, 1), task.count(read, None, stage=1)]
        with pytest.raises(AssertionError):
            wait_for(lambda: server.connections(KEEPER) == 0, timeout=1.5 * _KEPT)
    wait_for(lambda: server.connections(KEEPER) == 0, timeout=60)

    assert [*seen, task.count(read, 2)] == [0, 0, 1]
    for query, stage in ((1, 0), (None, 1)):
        with pytest.raises(JMSException, match=r"The moment of this read is gone.*Run the query again"):
            task.count(read, query, stage)


def test_lost_snapshot_is_replaced_for_queries_that_have_not_seen_it(server: Server, task: Task) -> None:
    read = keep_snapshot(DatabaseReference(), timeout=60.0)
    assert task.count(read, 1) == 0
    add_queue(server)
    assert server.terminate(KEEPER) == 1
    with pytest.raises(JMSException, match="The moment of this read is gone"):
        task.count(read, 1)
    assert task.count(read, 2) == 1
    assert server.terminate(KEEPER) == 1
    server.terminate(ANSWERING)
    assert task.count(read, 3) == 1


def test_each_query_sees_a_moment_of_its_own_where_they_share_none(server: Server, task: Task) -> None:
    read = keep_snapshot(DatabaseReference(), timeout=60.0, shared=False)
    add_queue(server)
    assert task.count(read, 1) == 1
    add_queue(server)
    assert [task.count(read, query) for query in (1, 2, 1)] == [1, 2, 1]


def test_unused_snapshots_do_not_take_ever_more_connections(server: Server, task: Task) -> None:
    answering = server.connections(ANSWERING)
    reads = [keep_snapshot(DatabaseReference(), timeout=60.0) for _ in range(MOST + 2)]
    wait_for(lambda: server.connections(KEEPER) == MOST)
    add_queue(server)
    assert [task.count(read, 1) for read in (reads[0], reads[-1])] == [1, 0]
    assert server.connections(ANSWERING) <= answering + 1


def test_failure_to_take_a_snapshot_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JMSQL_URL", "postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(JMSException, match=r"No snapshot could be taken.*127\.0\.0\.1"):
        keep_snapshot(DatabaseReference(), timeout=0.5)
