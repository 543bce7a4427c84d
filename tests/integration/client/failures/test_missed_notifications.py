"""Consumers that wait ask the server nothing; messages of which nobody has told are found for all of them together."""

from __future__ import annotations

import dataclasses

import pytest

from jmsql import AcknowledgeMode, Connection, Message, Queue, Timings
from jmsql.testing import FAST_TIMINGS, wait_for
from tests.background import Background
from tests.integration.client.server import SESSIONS, Server
from tests.texts import send_texts, texts_of

CONSUMERS = 20

# They leave looking to others from the start.
_NO_POLLS = dataclasses.replace(
    FAST_TIMINGS,
    minimum_poll_interval=0.5,
    maximum_poll_interval=0.5,
    shared_poll_interval=0.5,
    missed_message_interval=0.5,
)


@pytest.fixture
def jmsql_timings() -> Timings:
    return _NO_POLLS


def send_untold(server: Server, queue: Queue) -> None:
    """Put a message into a queue as a sender does that is killed after its commit."""
    server.rows(
        """
        insert into jmsql_internal.message
            (queue_id, inverse_priority, jms_message_id, jms_timestamp, jms_delivery_mode, message_type, text_body)
        select queue_id, 5, gen_random_uuid(), 1, 2, 'TextMessage', 'untold'
        from jmsql_internal.queue where name = %s""",
        queue.name,
    )


def test_the_maintaining_client_notifies_of_missed_messages(
    connection: Connection, other_connection: Connection, server: Server, queue: Queue
) -> None:
    for client in (connection, other_connection):
        receiving = Background(client.create_session().create_consumer(queue).receive)
        receiving.wait_until_it_waits()
        send_untold(server, queue)
        assert receiving.result() is not None


@pytest.mark.usefixtures("maintenance_suspended")
@pytest.mark.parametrize("transacted", [False, True])
def test_a_client_polls_for_its_own_consumers_where_no_client_does_the_maintenance(
    connection: Connection, server: Server, queue: Queue, transacted: bool
) -> None:
    receiving = Background(connection.create_session(transacted).create_consumer(queue).receive)
    receiving.wait_until_it_waits()
    send_untold(server, queue)
    assert receiving.result() is not None


def test_a_listener_gets_messages_whose_notification_was_missed(
    connection: Connection, server: Server, queue: Queue
) -> None:
    heard: list[Message] = []
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    session.create_consumer(queue).message_listener = heard.append
    send_untold(server, queue)
    wait_for(lambda: texts_of(heard) == ["untold"])


def test_a_message_wakes_few_of_many_consumers_and_those_that_wait_ask_nothing(
    connection: Connection, other_connection: Connection, server: Server, queue: Queue
) -> None:
    def last_questions() -> set[tuple[object, ...]]:
        return set(server.rows("select pid, query_start from pg_stat_activity where application_name = %s", SESSIONS))

    def is_quiet() -> bool:
        younger = "query_start > clock_timestamp() - interval '0.7 s'"  # than the longest pause between two polls
        return not server.rows(f"select from pg_stat_activity where application_name = %s and {younger}", SESSIONS)

    receiving = [Background(connection.create_session().create_consumer(queue).receive) for _ in range(CONSUMERS)]
    for each in receiving:
        each.wait_until_it_waits()
    wait_for(is_quiet)  # the first ones look once more, if they wait before the client's own connection looks for all
    before = last_questions()
    for _ in range(3):
        send_texts(other_connection.create_session(), Queue("other"), "not for them")
    assert last_questions() == before
    send_texts(other_connection.create_session(), queue, "for one")
    wait_for(lambda: not all(each.is_running for each in receiving))
    assert 0 < len(last_questions() - before) < CONSUMERS / 2
    send_texts(other_connection.create_session(), queue, *map(str, range(CONSUMERS - 1)))
    assert all(each.result() for each in receiving)
