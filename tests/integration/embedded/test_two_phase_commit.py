"""Global transactions and the server: its restart, and one that prepares none."""

from __future__ import annotations

from pathlib import Path

import pytest

from jmsql import Queue, ResourceAllocationException, migrate
from jmsql.embedded import cluster, start_server
from jmsql.xa import XAConnectionFactory, Xid
from tests.integration.embedded.server_processes import kill_server
from tests.texts import messages_left, send_texts

COMMITTED, ROLLED_BACK = Xid(7, "purchase 1", "messages"), Xid(7, "purchase 2", "messages")
QUEUES = {COMMITTED: Queue("orders"), ROLLED_BACK: Queue("returns")}


@pytest.mark.parametrize("killed", [False, True])
def test_prepared_transactions_survive_the_server(data_directory: Path, *, killed: bool) -> None:
    server = start_server(data_directory)
    migrate(server.url)
    with XAConnectionFactory(server.url).create_xa_connection() as connection:
        connection.start()
        for xid, queue in QUEUES.items():
            send_texts(connection.create_session(), queue, "a")
            session = connection.create_xa_session()
            session.tpc_begin(xid)
            assert session.create_consumer(queue).receive(timeout=60) is not None
            session.tpc_prepare()
    if killed:
        kill_server(data_directory)
    server.stop()
    with start_server(data_directory) as server:
        factory = XAConnectionFactory(server.url)
        assert [messages_left(factory, queue) for queue in QUEUES.values()] == [[], []]
        with factory.create_xa_connection() as connection:
            session = connection.create_xa_session()
            assert set(session.tpc_recover()) == QUEUES.keys()
            session.tpc_commit(COMMITTED)
            session.tpc_rollback(ROLLED_BACK)
        assert messages_left(factory, QUEUES[COMMITTED]) == []
        assert [message.jms_redelivered for message in messages_left(factory, QUEUES[ROLLED_BACK])] == [True]


def test_server_that_prepares_none_is_told_of(data_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cluster._PARAMETERS, "max_prepared_transactions", "0")
    with start_server(data_directory) as server:
        migrate(server.url)
        with XAConnectionFactory(server.url).create_xa_connection() as connection:
            with pytest.raises(ResourceAllocationException, match="max_prepared_transactions") as refused:
                connection.create_xa_session()
            assert refused.value.error_code == "55000"
