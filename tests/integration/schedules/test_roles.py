"""Schedules, and roles that do not administer the schema."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import psycopg
import pytest
import sqlalchemy

from jmsql import ConnectionFactory, JMSSecurityException
from jmsql.admin import Administration
from jmsql.testing import wait_for
from jmsql.worker import Application

SetDue = Callable[[str, str], None]
ROLE = "jmsql_schedules_consumer"


@pytest.fixture
def restricted(sql: psycopg.Connection, jmsql_clean_url: str, row_security_is_off_again: None) -> Iterator[str]:
    """The URL of a role that may receive from all queues, and send to them."""
    sql.execute("select jmsql.create_roles()")
    sql.execute(f"create role {ROLE} in role jmsql_consumer, jmsql_producer".encode())
    url = sqlalchemy.make_url(jmsql_clean_url).update_query_dict({"options": f"-c role={ROLE}"})
    yield url.render_as_string(hide_password=False)
    sql.execute(f"drop role {ROLE}".encode())


def test_only_administrators_see_make_and_send(restricted: str, administration: Administration) -> None:
    administration.set_schedule("report", "@yearly", "reports", "secret")
    with Administration(restricted) as other:
        for refused in (
            other.schedules,
            lambda: other.set_schedule("other", "@yearly", "reports"),
            lambda: other.pause_schedule("report"),
            lambda: other.resume_schedule("report"),
            lambda: other.delete_schedule("report"),
            lambda: other.send_scheduled("report"),
        ):
            with pytest.raises(JMSSecurityException):
                refused()
    assert [each.name for each in administration.schedules()] == ["report"]
    assert administration.schedule("report").sent == 0


async def test_a_worker_without_the_right_handles_messages_and_leaves_schedules_alone(
    restricted: str, administration: Administration, set_due: SetDue, caplog: pytest.LogCaptureFixture
) -> None:
    app = Application(ConnectionFactory(restricted))
    handled = []

    @app.periodic("@yearly", name="report")
    def report() -> None:
        handled.append("report")

    with caplog.at_level(logging.WARNING):
        async with app.running():
            assert administration.schedules() == []
            administration.declare_schedules(app.schedules)
            set_due("report", "0")
            administration.send_scheduled("report")
            import asyncio

            await asyncio.to_thread(wait_for, lambda: handled == ["report"], 60.0)
    [record] = [record for record in caplog.records if "schedules are not declared" in record.message]
    assert "declare_schedules" in record.message
    assert [record for record in caplog.records if record.name == "jmsql"] == []
