"""A dump of both schemas, as the page about operation shows it, restored into another server."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import psycopg
import pytest

import jmsql
from jmsql.admin import Administration
from jmsql.embedded import start_server
from jmsql.testing.servers import directory_of_servers
from tests.documentation import blocks

ORDERS = jmsql.Queue("orders")


def test_the_dump_that_the_page_shows_is_restored_with_all_messages(tmp_path: Path) -> None:
    [shown] = [block.text for block in blocks("docs/operations.md", "sh") if "pg_dump" in block.text]
    with (
        directory_of_servers("jmsql-backup-") as directory,
        start_server(directory / "source", durable=False) as source,
        start_server(directory / "target", durable=False) as target,
    ):
        with psycopg.connect(source.url, autocommit=True) as database:
            # The numbers of its transactions are ahead of those of the other server.
            database.execute("do $$ begin for i in 1..3000 loop perform pg_current_xact_id(); commit; end loop; end $$")
            row = database.execute("select setting from pg_config where name = 'BINDIR'").fetchone()
        assert row is not None
        if not Path(row[0], "pg_dump").exists():
            pytest.skip("this PostgreSQL has no pg_dump")
        jmsql.migrate(source.url)
        with jmsql.ConnectionFactory(source.url).create_context(jmsql.AcknowledgeMode.CLIENT) as context:
            producer = context.create_producer()
            for number in range(3):
                producer.send(ORDERS, f"order {number}")
            producer.delivery_delay = 0.001
            producer.send(ORDERS, "order 3")
            consumer = context.create_consumer(ORDERS)
            assert consumer.receive_body(str, timeout=60) == "order 0"
            with Administration(source.url) as administration:
                administration.set_schedule("nightly", "0 3 * * *", "reports", "go")
            with psycopg.connect(source.url) as database:
                database.execute("update jmsql_internal.schedule set next_at = next_at - interval '8 days'")
            environment = {"PATH": f"{row[0]}:{os.defpath}", "JMSQL_URL": source.url, "OTHER_URL": target.url}
            alone = 'pg_dump -Fc -n jmsql "$JMSQL_URL" | pg_restore --single-transaction -d "$OTHER_URL"'
            assert subprocess.run(["/bin/sh", "-c", alone], env=environment, check=False).returncode != 0
            subprocess.run(["/bin/sh", "-ec", shown], cwd=tmp_path, env=environment, check=True)
        with jmsql.ConnectionFactory(target.url).create_context() as context:
            consumer = context.create_consumer(ORDERS)
            received = [consumer.receive_body(str, timeout=60) for _ in range(4)]
            context.create_producer().send(ORDERS, "order 4")
            assert consumer.receive_body(str, timeout=60) == "order 4"
            report = context.create_consumer("reports")
            message = report.receive(timeout=60)
            assert message is not None
            assert message.get_int_property("JMS_jmsql_MissedTicks") in (6, 7)
            assert report.receive(timeout=0.1) is None
        assert sorted(map(str, received)) == [f"order {number}" for number in range(4)]
