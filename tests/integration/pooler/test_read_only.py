"""The database is read-only for a while, and the pooler keeps the connections that it has made meanwhile."""

from __future__ import annotations

import pytest

from jmsql import Connection, JMSException, Queue, Session
from tests.integration.client.server import Database
from tests.integration.pooler.pgbouncer import PgBouncer
from tests.integration.pooler.routes import Route
from tests.texts import receive_texts, send_texts


@pytest.mark.parametrize("route", [Route.POOLED], indirect=True)
def test_sessions_send_again_once_the_pooler_has_connected_again(
    connection: Connection,
    direct_session: Session,
    jmsql_clean_url: str,
    current_pooler: PgBouncer,
    database: Database,
) -> None:
    queue, session = Queue("orders"), connection.create_session()
    send_texts(session, queue, "a")
    database.refuse_writes()
    current_pooler.reconnect(jmsql_clean_url)
    with pytest.raises(JMSException) as refused:
        send_texts(session, queue, "refused")
    assert refused.value.error_code == "25006"
    database.take_writes()
    with pytest.raises(JMSException) as refused:
        send_texts(session, queue, "refused")
    assert refused.value.error_code == "25006"
    current_pooler.reconnect(jmsql_clean_url)
    send_texts(session, queue, "b")
    assert receive_texts(direct_session.create_consumer(queue), 2) == ["a", "b"]
