"""What clients do at this moment, from what they write anyway."""

from __future__ import annotations

import psycopg

from jmsql import AcknowledgeMode, Connection, ConnectionFactory, Queue, Session
from jmsql.admin import Administration
from jmsql.testing import receive_all, wait_for
from tests.texts import receive, send_texts

OTHER = Queue("other")


def test_slow_consumers_come_first_with_their_held_messages(
    jmsql_factory: ConnectionFactory, session: Session, queue: Queue
) -> None:
    send_texts(session, OTHER, *"abc")
    send_texts(session, queue, "a")
    with (
        jmsql_factory.create_connection() as slow,
        jmsql_factory.create_connection() as fast,
        jmsql_factory.create_connection() as idle,
        Administration(jmsql_factory) as administration,
    ):
        for each in (slow, fast, idle):
            each.start()
        consumer = slow.create_session(acknowledge_mode=AcknowledgeMode.CLIENT).create_consumer(queue)
        held = receive(consumer)
        done = fast.create_session().create_consumer(OTHER)
        assert len(receive_all(done)) == 3
        waits = idle.create_session().create_consumer(Queue("empty"))
        assert administration.now() is not None
        wait_for(lambda: [each.acknowledged for each in administration.now() if each.destination == "other"] == [3])
        wait_for(lambda: len(administration.now()) == 3)
        first, *others = administration.now()
        assert (first.destination, first.held, first.message_id) == (queue.name, 1, held.jms_message_id)
        assert first.held_since is not None
        assert first.place is not None
        assert first.place == administration.now(1)[0].place
        assert administration.at(first.number, first.place) is not None
        assert {each.destination: each.consumers for each in others} == {"other": 1, "empty": 1}
        [other] = [each for each in others if each.destination == "other"]
        assert other.last_at is not None
        assert [each.destination for each in administration.now(connection_id=other.connection_id)] == ["other"]
        send_texts(session, OTHER, *"de")
        assert len(receive_all(done)) == 2

        def rate() -> float | None:
            return next(each.per_second for each in administration.now() if each.destination == "other")

        wait_for(lambda: bool(rate()))
        held.acknowledge()
        waits.close()
        wait_for(lambda: [each.held for each in administration.now() if each.destination == queue.name] == [0])


def test_progress_of_the_oldest_message_is_shown(
    jmsql_factory: ConnectionFactory, connection: Connection, session: Session, queue: Queue, jmsql_clean_url: str
) -> None:
    send_texts(session, queue, "a")
    receive(connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT).create_consumer(queue))
    with psycopg.connect(jmsql_clean_url, autocommit=True) as sql, Administration(jmsql_factory) as administration:
        sql.execute(
            "insert into jmsql_internal.reported_progress "
            "select queue_id, inverse_priority, sequence, claim_id, 0.25, 'page 3', now() from jmsql_internal.delivery"
        )
        [found] = [each for each in administration.now() if each.held]
        assert (found.progress, found.note) == (0.25, "page 3")
