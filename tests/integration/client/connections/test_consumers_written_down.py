"""Which client receives from what is written down, so that an operator can see it."""

from __future__ import annotations

from random import Random
from typing import Any

from jmsql import Connection, ConnectionFactory, Queue, Topic
from jmsql.selectors.parser import MAXIMUM_LENGTH
from jmsql.testing import wait_for
from tests.integration.client.server import CONTROL, Server


def consumers(server: Server) -> list[tuple[Any, ...]]:
    return server.rows(
        "select queue, topic, subscription, selector, consumers from jmsql.consumers order by queue, topic, selector"
    )


def test_consumers_are_listed_while_they_are_open(connection: Connection, queue: Queue, server: Server) -> None:
    session = connection.create_session()
    session.create_consumer(queue)
    session.create_consumer(queue)
    chosen = session.create_consumer(queue, "color = 'blue'")
    session.create_shared_durable_consumer(Topic("prices"), "audit")
    everything = [
        ("orders", None, None, "color = 'blue'", 1),
        ("orders", None, None, None, 2),
        (None, "prices", "audit", None, 1),
    ]
    wait_for(lambda: consumers(server) == everything)
    chosen.close()
    wait_for(lambda: consumers(server) == everything[1:])
    connection.close()
    assert consumers(server) == []


def test_consumers_with_the_longest_selectors_are_listed_as_any_other(
    connection: Connection, queue: Queue, server: Server
) -> None:
    random = Random(1)
    names = ",".join(f"'{random.getrandbits(128):032x}'" for _ in range(MAXIMUM_LENGTH // 40))
    selector = f"id in ({names})"
    session = connection.create_session()
    session.create_consumer(queue)
    session.create_consumer(queue, selector)
    wait_for(lambda: consumers(server) == [("orders", None, None, selector, 1), ("orders", None, None, None, 1)])
    session.create_producer(queue).send(session.create_text_message())
    sent = "select coalesce(sum(sent), 0) from jmsql_internal.destination_counters"
    wait_for(lambda: server.rows(sent) == [(1,)])


def test_they_are_listed_again_after_the_control_connection_was_lost(
    connection: Connection, queue: Queue, server: Server
) -> None:
    connection.create_session().create_consumer(queue)
    wait_for(lambda: len(consumers(server)) == 1)
    [(before,)] = server.rows("select connection_id from jmsql.consumers")
    server.terminate(CONTROL)
    wait_for(lambda: server.rows("select connection_id from jmsql.consumers where connection_id <> %s", before))
    wait_for(lambda: consumers(server) == [("orders", None, None, None, 1)])


def test_a_killed_clients_consumers_go_with_it(
    factory: ConnectionFactory, other_connection: Connection, server: Server
) -> None:
    [(gone,)] = server.rows(
        """with gone as (
               insert into jmsql_internal.connection (host, process_id, started_at)
               values ('gone', 1, now() - interval '1 h') returning connection_id)
           insert into jmsql_internal.consumer (connection_id, queue_id, selector, consumers)
           select connection_id, 1, '', 1 from gone returning connection_id"""
    )
    wait_for(
        lambda: server.rows("select count(*) from jmsql_internal.consumer where connection_id = %s", gone) == [(0,)]
    )
