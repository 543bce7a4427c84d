"""Messages have characters of all languages, whatever encoding is the default of the database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest
from psycopg import sql

from jmsql import ConnectionFactory, JMSException, Queue, enlist
from jmsql.admin import Administration
from tests.integration.client.server import with_parameters
from tests.texts import receive_texts, send_texts

pytestmark = pytest.mark.usefixtures("maintenance_suspended")

TEXT = "für € 5 🙂"
QUEUE = Queue("café €")


@pytest.fixture
def latin(jmsql_clean_url: str) -> Iterator[str]:
    """The URL of the database, whose clients use LATIN1 meanwhile unless they say otherwise; it says so, too."""
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        database = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("alter database {} set client_encoding = 'LATIN1'").format(database))
        yield with_parameters(jmsql_clean_url, client_encoding="latin1")
        connection.execute(sql.SQL("alter database {} reset client_encoding").format(database))


@pytest.mark.parametrize("says_so", [False, True])
def test_connections_of_jmsql_use_utf_8(
    latin: str, jmsql_clean_url: str, jmsql_factory: ConnectionFactory, says_so: bool
) -> None:
    url = latin if says_so else jmsql_clean_url
    with replace(jmsql_factory, url=url).create_connection() as connection, Administration(url) as administration:
        connection.start()
        for transacted in (False, True):
            with connection.create_session(transacted) as session:
                send_texts(session, QUEUE, TEXT)
                assert receive_texts(session.create_consumer(QUEUE), 1) == [TEXT]
                if transacted:
                    session.commit()
        assert QUEUE.name in [summary.queue for summary in administration.queues()]


def test_text_that_the_applications_connection_cannot_encode_is_an_error(latin: str, jmsql_clean_url: str) -> None:
    with psycopg.connect(latin) as caller:
        context = enlist(caller)
        with pytest.raises(JMSException, match=r"client_encoding \((latin-?1|iso8859-1)\).*UTF8"):
            context.create_producer().send(QUEUE, TEXT)
