"""The maintenance of the store: what the client does that has the lease."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from jmsql import JMSException
from jmsql.store.control.announcing import Announcing
from jmsql.store.control.handlers import QueueHandlers
from jmsql.store.control.leading import Leading
from jmsql.store.control.notifier import Notifier
from jmsql.store.control.server import ServerClock
from jmsql.store.destinations import lookup
from jmsql.store.history.keeping import QueuesWithHistory
from jmsql.store.maintenance.due_messages import DueMessages
from jmsql.store.maintenance.maintenance import Maintenance
from jmsql.store.receiving import receive
from jmsql.store.receiving.acknowledge import Recipient
from jmsql.store.receiving.receive import dequeue
from jmsql.store.sending.send import send as store_send
from jmsql.store.statement import Result
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.testing import wait_for
from jmsql.timings import InternalTimings
from tests.integration.client.server import Server
from tests.integration.store.conftest import (
    FROM_THE_FRONT,
    Client,
    OpenClient,
    as_claimed,
    bodies,
    key,
    send,
    text_message,
)

pytestmark = pytest.mark.maintained

LONG_AGO = 1
DEAD = 4711
LEADER = 4712

RECIPIENT = Recipient()


def test_expired_messages_are_removed(client: Client, queue_id: int) -> None:
    send(client, "expired", expiration=LONG_AGO)
    send(client, "fresh")

    Maintenance(InternalTimings()).run(client.runner, LEADER)

    assert bodies(client.run(receive.browse(queue_id, None, (-1, 0), 10))) == ["fresh"]
    assert client.rows("select count(*) from jmsql_internal.message") == [(1,)]


def test_expired_messages_move_to_the_expiry_queue(client: Client, queue_id: int) -> None:
    expired = client.run(lookup.queue_id("expired orders"))
    client.connection.execute(
        "update jmsql_internal.queue set expiry_queue_id = %s where queue_id = %s", (expired, queue_id)
    )
    send(client, "first", "second", expiration=LONG_AGO)

    Maintenance(InternalTimings()).run(client.runner, LEADER)

    moved = client.run(dequeue(expired, None, FROM_THE_FRONT, 10))
    assert bodies(moved) == ["first", "second"]
    assert [row.jms_expiration for row in moved] == [None, None]
    assert client.rows("select count(*) from jmsql_internal.message") == [(0,)]


def test_it_looks_for_delayed_messages_when_the_first_is_due(client: Client) -> None:
    [(now,)] = client.rows("select (extract(epoch from clock_timestamp()) * 1000)::bigint")
    later, sooner = (text_message("x")._replace(jms_delivery_time=now + delay) for delay in (60_000, 300))
    client.run(store_send([later, sooner]))
    due_messages = DueMessages(InternalTimings())
    while due_messages.run(client.runner) == []:
        assert due_messages.seconds_to_next() < 0.9, "its regular look comes only after a second"


def test_a_due_message_of_a_deleted_queue_is_left_to_the_removal_of_its_queue(client: Client, queue_id: int) -> None:
    client.run(store_send([text_message("x")._replace(jms_delivery_time=LONG_AGO)]))
    client.connection.execute("update jmsql_internal.queue set deleted_at = now() where queue_id = %s", [queue_id])
    assert DueMessages(InternalTimings()).run(client.runner) == []
    assert client.rows("select count(*) from jmsql_internal.delayed_message") == [(1,)]
    Maintenance(InternalTimings()).run(client.runner, LEADER)
    assert client.rows("select count(*) from jmsql_internal.delayed_message") == [(0,)]


def test_claimed_messages_do_not_expire(client: Client, queue_id: int) -> None:
    client.connection.execute("insert into jmsql_internal.connection (host, process_id) values ('here', 1)")
    (connection,) = client.rows("select connection_id from jmsql_internal.connection")[0]
    send(client, "claimed")
    claimed = client.run(receive.claim(queue_id, None, FROM_THE_FRONT, 1, connection))
    client.connection.execute("update jmsql_internal.message set jms_expiration = 1")

    Maintenance(InternalTimings()).run(client.runner, connection)

    assert client.run(RECIPIENT.acknowledge([(key(queue_id, row), row.handle) for row in as_claimed(claimed)])) == 1


def test_claims_of_the_dead_come_back_counted(client: Client, queue_id: int) -> None:
    send(client, "orphaned")
    claimed = client.run(receive.claim(queue_id, None, FROM_THE_FRONT, 1, DEAD))

    maintenance = Maintenance(InternalTimings())
    maintenance.run(client.runner, LEADER)

    assert maintenance.take_released() == [key(queue_id, row) for row in claimed]
    assert [row.delivery_count for row in client.run(dequeue(queue_id, None, FROM_THE_FRONT, 1))] == [1]


def test_consumers_are_told_the_places_of_a_dead_clients_messages(open_client: OpenClient, queue_id: int) -> None:
    client, other = open_client(), open_client()
    send(client, "orphaned")
    [claimed] = client.run(receive.claim(queue_id, None, FROM_THE_FRONT, 1, DEAD))
    heard: list[str] = []
    other.connection.add_notify_handler(lambda received: heard.append(received.payload))
    other.connection.execute("listen jmsql")
    timings = InternalTimings()
    announcing = Announcing(QueueHandlers(on_first=lambda: None), lambda: None, timings)
    notifier = Notifier(announcing, lambda: None, timings)
    leading = Leading(
        *(Maintenance(timings), LEADER, ServerClock(timings)),
        *(QueuesWithHistory(timings.history_refresh_interval, is_told=True), announcing.wake_ups, notifier),
        looks=False,
    )

    leading.run(client.runner)
    notifier.run(client.runner)

    other.connection.execute("select 1")
    assert heard == [f"{queue_id} {claimed.inverse_priority} {claimed.sequence}"]


def test_a_lookup_of_queues_with_history_that_fails_is_not_repeated_in_each_turn(client: Client) -> None:
    asked: list[bytes] = []

    def note(run: Callable[[], Result], statement: bytes, _: object) -> Result:
        asked.append(statement)
        return run()

    runner = PsycopgRunner(client.connection, "missing")
    runner.around = note
    queues = QueuesWithHistory(60.0, is_told=True)
    with pytest.raises(JMSException):
        queues.run(runner)
    queues.run(runner)
    assert len(asked) == 1
    queues.changed()
    with pytest.raises(JMSException):
        queues.run(runner)


def test_facts_about_messages_that_are_gone_are_forgotten(client: Client, queue_id: int) -> None:
    send(client, "gone")
    client.run(receive.claim(queue_id, None, FROM_THE_FRONT, 1, DEAD))
    client.connection.execute("delete from jmsql_internal.message")

    Maintenance(InternalTimings()).run(client.runner, LEADER)

    assert client.rows("select count(*) from jmsql_internal.delivery") == [(0,)]


def test_a_client_that_connects_again_meanwhile_keeps_its_temporary_queue(open_client: OpenClient) -> None:
    returning, leader, administrator = open_client(transactions=True), open_client(), open_client()
    name = f"temporary-{uuid.uuid4()}"
    administrator.connection.execute(
        "insert into jmsql_internal.queue (name, connection_id) values (%s, %s)", (name, DEAD)
    )
    (number,) = returning.rows(
        "insert into jmsql_internal.connection (host, process_id) values ('here', 1) returning connection_id"
    )[0]
    returning.connection.execute("update jmsql_internal.queue set connection_id = %s where name = %s", (number, name))

    with ThreadPoolExecutor(1) as executor:
        maintained = executor.submit(Maintenance(InternalTimings()).run, leader.runner, LEADER)
        Server(administrator.connection).wait_until_someone_waits()
        returning.connection.commit()
        maintained.result(60)

    assert administrator.rows(f"select connection_id from jmsql_internal.queue where name = '{name}'") == [(number,)]


def test_a_step_that_fails_keeps_no_other_from_its_work(client: Client, queue_id: int) -> None:
    send(client, "orphaned")
    claimed = client.run(receive.claim(queue_id, None, FROM_THE_FRONT, 1, DEAD))
    send(client, "expired", expiration=LONG_AGO)
    client.connection.execute("insert into jmsql_internal.queue (name, deleted_at) values ('gone', now())")
    client.connection.execute(
        "create function refuse() returns trigger language plpgsql as 'begin raise exception ''full''; end';"
        "create trigger refuse before delete on jmsql_internal.message for each row execute function refuse()"
    )
    maintenance = Maintenance(InternalTimings(maintenance_retry_delay=0.001))
    with pytest.raises(Exception, match="full"):
        maintenance.run(client.runner, LEADER)
    assert client.rows("select count(*) from jmsql_internal.queue where name = 'gone'") == [(0,)]
    client.connection.execute("drop trigger refuse on jmsql_internal.message; drop function refuse()")
    maintenance.postpone()
    wait_for(lambda: maintenance.has_to_ask)
    maintenance.run(client.runner, LEADER)
    assert maintenance.take_released() == [key(queue_id, row) for row in claimed]


def test_a_batch_that_may_have_ended_hastens_no_maintenance_that_is_put_off(client: Client) -> None:
    maintenance = Maintenance(InternalTimings())
    maintenance.run(client.runner, LEADER)
    assert maintenance.leads
    maintenance.postpone()
    maintenance.batch_may_have_ended()
    assert maintenance.seconds_to_next() > 4


@pytest.mark.parametrize(
    ("breaks", "mends"),
    [
        pytest.param(
            "alter table jmsql_internal.consumer rename to away",
            "alter table jmsql_internal.away rename to consumer",
            id="missed messages",
        ),
        pytest.param(
            "create function refuse() returns trigger language plpgsql as 'begin raise exception ''full''; end';"
            "create trigger refuse before update on jmsql_internal.delivery for each row execute function refuse()",
            "drop trigger refuse on jmsql_internal.delivery; drop function refuse()",
            id="lost claims",
        ),
        pytest.param(
            "alter function jmsql_internal.bury_dead_letters(integer) rename to away",
            "alter function jmsql_internal.away(integer) rename to bury_dead_letters",
            id="dead letters",
        ),
    ],
)
def test_steps_for_waiting_consumers_and_failed_deliveries_keep_no_other_from_its_work(
    breaks: str, mends: str, client: Client, queue_id: int
) -> None:
    send(client, "orphaned")
    claimed = client.run(receive.claim(queue_id, None, FROM_THE_FRONT, 1, DEAD))
    client.connection.execute("insert into jmsql_internal.queue (name, deleted_at) values ('gone', now())")
    client.connection.execute(breaks)
    maintenance = Maintenance(InternalTimings(maintenance_retry_delay=0.001))
    try:
        with pytest.raises(JMSException):
            maintenance.run(client.runner, LEADER)
    finally:
        client.connection.execute(mends)
    assert client.rows("select count(*) from jmsql_internal.queue where name = 'gone'") == [(0,)]
    maintenance.postpone()
    wait_for(lambda: maintenance.has_to_ask)
    maintenance.run(client.runner, LEADER)
    assert maintenance.take_released() == [key(queue_id, row) for row in claimed]
