"""Batches under roles with little access."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import jmsql
from jmsql import ConnectionFactory, JMSException, JMSSecurityException
from tests.integration.access.conftest import Plain


def test_roles_open_batches_and_end_their_messages_and_see_no_others(
    jmsql_factory: ConnectionFactory,
    url_of: Callable[[str], str],
    plain: Plain,
    owner: psycopg.Connection[Any],
) -> None:
    owner.execute("select jmsql.create_queue('secrets')")
    sender, receiver = (
        ConnectionFactory(url_of(kind), timings=jmsql_factory.timings) for kind in ("sender", "receiver")
    )
    with sender.create_connection() as sending, receiver.create_connection() as receiving:
        receiving.start()
        with jmsql.batch(sending, "import", on_end="orders") as batch:
            batch.send("orders", "one")
        with pytest.raises(JMSSecurityException), jmsql.batch(sending, "import", on_end="secrets"):
            pass
        with receiving.create_session(transacted=True) as session:
            consumer = session.create_consumer("orders")
            message = consumer.receive(60)
            assert message is not None
            own = jmsql.batch_of(session, message)
            assert own is not None
            own.send("orders", "two")
            with pytest.raises(JMSException, match="lacks the privilege"):  # it may not send
                session.commit()
            assert consumer.receive(60) is not None
            session.commit()
            callback = consumer.receive(60)
            assert callback is not None
            assert callback.get_body(object) == {
                "batch": "import",
                "total": 1,
                "done": 1,
                "failed": 0,
                "expired": 0,
                "cancelled": 0,
            }
            assert consumer.receive_no_wait() is None
        assert jmsql.batch_progress(sending, batch.id).is_ended
    [(other,)] = owner.execute("insert into jmsql_internal.batch (name) values ('other') returning batch_id").fetchall()
    insertion = (
        "insert into jmsql_internal.message (queue_id, inverse_priority, jms_message_id, jms_delivery_mode, "
        "message_type, properties, property_types) select queue_id, 5, gen_random_uuid(), 2, 'TextMessage', "
        "jsonb_build_object('JMS_jmsql_Batch', %s::bigint), jsonb_build_object('JMS_jmsql_Batch', 'long') "
        "from jmsql_internal.queue where name = 'orders'"
    )
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        plain("sender").execute(insertion, [other])
    owner.execute("delete from jmsql_internal.batch where batch_id = %s", [other])
    seen = {
        kind: plain(kind).execute("select count(*) from jmsql.batches").fetchone()
        for kind in ("sender", "receiver", "browser", "browser of all")
    }
    assert seen == {"sender": (1,), "receiver": (0,), "browser": (0,), "browser of all": (1,)}
    # By its number alone, no role counts a batch.
    for kind in seen:
        for key in ("null", "gen_random_uuid()"):
            counted = plain(kind).execute(f"select from jmsql_internal.batch_counts(%s, {key})".encode(), [batch.id])
            assert counted.fetchall() == []
