"""Where the role or the database switches triggers off, jmsql's own connections have them, or are not made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import psycopg
import pytest

from jmsql import ConnectionFactory, JMSException, Topic
from tests.integration.client.server import with_parameters
from tests.integration.pooler.pgbouncer import PgBouncer
from tests.texts import receive_texts, send_texts

pytestmark = pytest.mark.usefixtures("maintenance_suspended")

ROLE = "without_triggers"


@pytest.fixture
def administrator(jmsql_clean_url: str) -> Iterator[psycopg.Connection]:
    """Another session, in which a role without privileges is made."""
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        with suppress(psycopg.errors.DuplicateObject):
            connection.execute(f"create role {ROLE}")
        yield connection
        connection.execute(f"drop owned by {ROLE}")
        connection.execute(f"drop role {ROLE}")


def without_triggers(url: str, *options: str) -> str:
    return with_parameters(url, options=" ".join(("-c session_replication_role=replica", *options)))


def test_a_role_that_may_set_it_subscribes_all_the_same(jmsql_clean_url: str, jmsql_factory: ConnectionFactory) -> None:
    factory = replace(jmsql_factory, url=without_triggers(jmsql_clean_url))
    with factory.create_connection() as connection:
        connection.start()
        session = connection.create_session()
        consumer = session.create_consumer(Topic("prices"))
        send_texts(session, Topic("prices"), "one")
        assert receive_texts(consumer, 1) == ["one"]


def test_another_role_is_refused_with_the_settings_name(
    jmsql_clean_url: str, jmsql_factory: ConnectionFactory, administrator: psycopg.Connection
) -> None:
    factory = replace(jmsql_factory, url=without_triggers(jmsql_clean_url, f"-c role={ROLE}"))
    with pytest.raises(JMSException, match=r"session_replication_role = 'replica'.*no triggers.*`alter role"):
        factory.create_connection()
    administrator.execute(f"grant set on parameter session_replication_role to {ROLE}")
    with pytest.raises(JMSException, match="lacks the privilege"):
        factory.create_connection()


def test_a_pooler_whose_connections_have_it_is_refused(
    jmsql_clean_url: str, jmsql_factory: ConnectionFactory, pooler: PgBouncer
) -> None:
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f'alter database "{name}" set session_replication_role = replica')
        try:
            factory = replace(jmsql_factory, url=pooler.url(jmsql_clean_url), control_url=None)
            with pytest.raises(JMSException, match="session_replication_role"):
                factory.create_connection()
        finally:
            connection.execute(f'alter database "{name}" reset session_replication_role')
            pooler.forget(jmsql_clean_url)
