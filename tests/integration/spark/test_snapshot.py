from __future__ import annotations

import psycopg
import pytest

from jmsql import JMSException
from jmsql.spark.connection import DatabaseReference
from jmsql.spark.reading.snapshot import keep_snapshot, reader_name
from jmsql.testing import wait_for
from tests.integration.client.server import Server, with_parameters


@pytest.fixture
def keeper() -> str:
    return "jmsql-spark-keeping-a-snapshot"


def test_snapshot_stays_while_it_is_used_and_goes_then(
    jmsql_clean_url: str, server: Server, keeper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JMSQL_URL", jmsql_clean_url)
    snapshot = keep_snapshot(DatabaseReference(), timeout=2.0)
    server.rows("insert into jmsql_internal.queue (name) values ('later')")
    url = with_parameters(jmsql_clean_url, application_name=f"jmsql-spark-{reader_name(snapshot)}")
    with psycopg.connect(url) as reader:
        reader.execute("set transaction isolation level repeatable read")
        reader.execute(f"set transaction snapshot '{snapshot}'")
        assert reader.execute("select count(*) from jmsql_internal.queue").fetchone() == (0,)
        with pytest.raises(AssertionError):
            wait_for(lambda: server.connections(keeper) == 0, timeout=3.0)
    wait_for(lambda: server.connections(keeper) == 0, timeout=30)


def test_failure_to_take_a_snapshot_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JMSQL_URL", "postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(JMSException, match="No snapshot could be taken"):
        keep_snapshot(DatabaseReference(), timeout=0.5)
