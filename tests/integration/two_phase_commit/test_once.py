"""Deduplication ids and keys to coalesce in global transactions, which keep what they hold while they are in doubt."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import jmsql
from jmsql import Connection, Session
from jmsql.testing import receive_all
from jmsql.xa import XASession
from tests.background import Background
from tests.integration.client.server import Server
from tests.integration.two_phase_commit.global_transactions import XID
from tests.texts import texts_of

pytestmark = pytest.mark.usefixtures("maintenance_suspended")


@pytest.mark.parametrize("commits", [True, False])
def test_another_sender_of_the_id_waits_for_the_prepared_transaction(
    xa_session: XASession, connection: Connection, server: Server, prepared: Callable[[], list[str]], commits: bool
) -> None:
    xa_session.tpc_begin(xa_session.xid(*XID))
    jmsql.send(xa_session, "orders", "one", deduplication_id="payment 17")
    xa_session.tpc_prepare()
    assert prepared() == [XID.identifier]
    other = Background(lambda: jmsql.send(connection, "orders", "two", deduplication_id="payment 17"))
    server.wait_until_someone_waits()
    if commits:
        xa_session.tpc_commit()
    else:
        xa_session.tpc_rollback()
    other.result()
    with connection.create_session() as session:
        assert texts_of(receive_all(session.create_consumer("orders"))) == ["one" if commits else "two"]


def test_the_waiting_message_is_delivered_when_the_prepared_transaction_has_ended(
    xa_session: XASession, connection: Connection, others: Session, prepared: Callable[[], list[str]]
) -> None:
    waiting = jmsql.send(connection, "orders", "one", coalesce="customer 5")
    xa_session.tpc_begin(xa_session.xid(*XID))
    assert jmsql.send(xa_session, "orders", "two", coalesce="customer 5") == waiting
    xa_session.tpc_prepare()
    assert prepared() == [XID.identifier]
    consumer = others.create_consumer("orders")
    assert receive_all(consumer) == []
    xa_session.tpc_commit()
    message = consumer.receive(timeout=60)
    assert message is not None
    assert message.jms_message_id == waiting
