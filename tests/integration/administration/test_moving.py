"""Messages moved, purged and sent by an administrator, or by SQL."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from jmsql import (
    AcknowledgeMode,
    Connection,
    IllegalStateException,
    InvalidDestinationException,
    InvalidSelectorException,
    JMSException,
    MapMessage,
    Queue,
    Session,
    TextMessage,
    Topic,
)
from jmsql.admin import Administration
from jmsql.store.administration import emptying
from jmsql.testing import receive_all, wait_for
from tests.integration.client.server import Server
from tests.texts import receive, receive_texts, send_texts, texts_of

ARCHIVE = Queue("archive")


@pytest.fixture(autouse=True)
def archive(administration: Administration, queue: Queue) -> None:
    administration.create(queue)
    administration.create(ARCHIVE)


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emptying, "_AT_ONCE", 3)


class TestMoving:
    def test_messages_keep_their_headers_and_their_order(
        self, administration: Administration, session: Session, queue: Queue
    ) -> None:
        message = session.create_map_message()
        message.set_int("number", 7)
        message.set_float_property("weight", 0.5)
        message.jms_correlation_id = "c1"
        message.jms_type = "order"
        message.jms_reply_to = Queue("answers")
        producer = session.create_producer(queue)
        producer.send(message, priority=7, time_to_live=timedelta(hours=1))
        send_texts(session, ARCHIVE, "before")
        send_texts(session, queue, "a", "b")
        assert administration.move(queue, ARCHIVE) == 3
        assert receive_all(session.create_consumer(queue)) == []
        consumer = session.create_consumer(ARCHIVE)
        moved = receive(consumer)
        assert isinstance(moved, MapMessage)
        assert moved.get_int("number") == 7
        assert moved.get_float_property("weight") == 0.5
        assert (moved.jms_message_id, moved.jms_timestamp, moved.jms_expiration, moved.jms_priority) == (
            message.jms_message_id,
            message.jms_timestamp,
            message.jms_expiration,
            7,
        )
        assert (moved.jms_correlation_id, moved.jms_type, moved.jms_reply_to) == ("c1", "order", Queue("answers"))
        assert moved.jms_destination == ARCHIVE
        assert texts_of(receive_all(consumer)) == ["before", "a", "b"]

    def test_by_selector_with_a_limit_and_again(
        self, administration: Administration, session: Session, queue: Queue, small_steps: None
    ) -> None:
        for number in range(10):
            message = session.create_text_message(str(number))
            message.set_int_property("number", number)
            session.create_producer(queue).send(message)
        moved: list[int] = []
        assert administration.move(queue, ARCHIVE, "number >= 2", limit=4, progress=moved.append) == 4
        assert moved == [3, 4]
        assert texts_of(session.create_browser(ARCHIVE)) == ["2", "3", "4", "5"]
        moved.clear()
        assert administration.move(queue, ARCHIVE, "number >= 2", progress=moved.append) == 4
        assert moved == [3, 4]
        assert administration.move(queue, ARCHIVE, "number >= 2", progress=moved.append) == 0
        assert texts_of(receive_all(session.create_consumer(queue))) == ["0", "1"]
        assert len(receive_all(session.create_consumer(ARCHIVE))) == 8

    def test_delayed_messages_move_and_stay_delayed(
        self, administration: Administration, session: Session, queue: Queue, server: Server
    ) -> None:
        with session.create_producer(queue) as producer:
            producer.delivery_delay = 3600
            for number in range(2):
                message = session.create_text_message(str(number))
                message.set_int_property("number", number)
                producer.send(message)
        assert administration.move(queue, ARCHIVE, "number = 1") == 1
        consumer = session.create_consumer(ARCHIVE)
        assert consumer.receive_no_wait() is None
        server.rows("update jmsql_internal.delayed_message set jms_delivery_time = jms_delivery_time - 3600000")
        assert receive_texts(consumer, 1) == ["1"]

    def test_messages_that_a_session_holds_stay(
        self, administration: Administration, connection: Connection, session: Session, queue: Queue, small_steps: None
    ) -> None:
        send_texts(session, queue, *"abcdefgh")
        claiming = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        locking = connection.create_session(transacted=True)
        claimed = receive(claiming.create_consumer(queue))
        receive(locking.create_consumer(queue))
        assert administration.move(queue, ARCHIVE) == 6
        assert administration.count(queue) == 2
        claimed.acknowledge()
        locking.rollback()
        assert administration.move(queue, ARCHIVE) == 1
        assert texts_of(receive_all(session.create_consumer(ARCHIVE))) == [*"cdefgh", "b"]

    def test_deliveries_are_counted_again(
        self, administration: Administration, connection: Connection, session: Session, queue: Queue
    ) -> None:
        send_texts(session, queue, "a")
        transacted = connection.create_session(transacted=True)
        receive(transacted.create_consumer(queue))
        transacted.rollback()
        assert administration.move(queue, ARCHIVE) == 1
        assert not receive(session.create_consumer(ARCHIVE)).jms_redelivered

    def test_a_consumer_that_waits_is_woken(
        self, administration: Administration, session: Session, others: Session, queue: Queue
    ) -> None:
        administration.pause(ARCHIVE)
        consumer = session.create_consumer(ARCHIVE)
        send_texts(others, queue, "a")
        assert administration.move(queue, ARCHIVE) == 1
        administration.resume(ARCHIVE)
        assert receive_texts(consumer, 1) == ["a"]

    def test_refusals(self, administration: Administration, session: Session, queue: Queue) -> None:
        send_texts(session, queue, "a")
        for source, target in ((queue, "nowhere"), ("nowhere", queue)):
            with pytest.raises(InvalidDestinationException, match="no queue 'nowhere'"):
                administration.move(source, target)
        with pytest.raises(JMSException, match="in that queue already"):
            administration.move(queue, queue)
        with pytest.raises(InvalidSelectorException):
            administration.move(queue, ARCHIVE, "number >")
        assert administration.count(queue) == 1

    def test_by_sql(self, session: Session, queue: Queue, server: Server) -> None:
        send_texts(session, queue, *"abcd")
        chosen = "array(select sequence from jmsql.messages where queue = 'orders' and body > 'b')"
        assert server.rows(f"select jmsql.move('orders', 'archive', {chosen}, 1)") == [(1,)]
        assert server.rows("select jmsql.move('queue://orders', 'archive', max_messages => 2)") == [(2,)]
        with pytest.raises(psycopg.DatabaseError, match='There is no queue "nowhere"'):
            server.rows("select jmsql.move('orders', 'nowhere')")
        assert texts_of(receive_all(session.create_consumer(ARCHIVE))) == ["c", "a", "b"]
        assert texts_of(receive_all(session.create_consumer(queue))) == ["d"]


class TestPurgingBySQL:
    def test_purge_deletes_all_or_some_messages_and_leaves_held_ones(
        self, connection: Connection, session: Session, queue: Queue, server: Server
    ) -> None:
        send_texts(session, queue, *"abcd")
        with session.create_producer(queue) as producer:
            producer.delivery_delay = 60
            producer.send(session.create_text_message("later"))
        claimed = receive(connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT).create_consumer(queue))
        chosen = "array(select sequence from jmsql.messages where queue = 'orders' and body = 'c')"
        assert server.rows(f"select jmsql.purge('orders', {chosen})") == [(1,)]
        assert server.rows("select jmsql.purge('orders', max_messages => 1)") == [(1,)]
        assert server.rows("select jmsql.purge('orders')") == [(2,)]
        claimed.acknowledge()
        assert server.rows("select jmsql.purge('orders')") == [(0,)]

    def test_history_is_kept_if_the_queue_keeps_one(self, session: Session, queue: Queue, server: Server) -> None:
        server.rows("select jmsql.alter_destination('orders', '{\"history\": true}')")
        send_texts(session, queue, "a")
        assert server.rows("select jmsql.purge('orders')") == [(1,)]
        assert server.rows("select text_body, outcome::text from jmsql_internal.message_history") == [("a", "purged")]


class TestSendingBySQL:
    def test_a_message_with_all_that_it_can_have(self, session: Session, queue: Queue, server: Server) -> None:
        [(message_id,)] = server.rows(
            'select jmsql.send(\'orders\', \'hello\', \'{"weight": 2600, "color": "blue", "share": 0.5}\', '
            "priority => 7, time_to_live => '1 h', correlation_id => 'c1', reply_to => 'answers', jms_type => 'order')"
        )
        message = receive(session.create_consumer(queue, "color = 'blue' and weight > 2500"))
        assert message.get_body(str) == "hello"
        assert dict(message.properties) == {"weight": 2600, "color": "blue", "share": 0.5, "JMSXDeliveryCount": 1}
        assert message.jms_message_id == message_id
        assert (message.jms_priority, message.jms_correlation_id, message.jms_type) == (7, "c1", "order")
        assert message.jms_reply_to == Queue("answers")
        assert message.jms_expiration - message.jms_timestamp == 3_600_000

    def test_by_a_trigger_in_its_transaction(self, session: Session, queue: Queue, server: Server) -> None:
        consumer = session.create_consumer(queue)
        with server.transaction():
            server.rows("create temporary table sale (number integer)")
            server.rows("""
                create function pg_temp.tell() returns trigger language plpgsql as $$
                begin
                    perform jmsql.send('orders', to_jsonb(new));
                    return null;
                end $$""")
            server.rows("create trigger tell after insert on sale for each row execute function pg_temp.tell()")
            server.rows("insert into sale values (1), (2)")
            assert consumer.receive_no_wait() is None
        assert receive_texts(consumer, 2) == ['{"number": 1}', '{"number": 2}']
        server.rows("drop table sale")

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            ("'orders', '{\"a\":1}'", '{"a":1}'),
            ("'orders', '{\"a\":1}'::jsonb", '{"a": 1}'),
            ("'orders', '{\"a\":1}'::text", '{"a":1}'),
            ("'orders', '17'::varchar", "17"),
            ("'orders', jsonb_build_object('a', 1), '{\"color\": \"blue\"}', priority => 7", '{"a": 1}'),
            ("destination => 'orders', body => '[1]'", "[1]"),
            ("destination => 'orders', body => to_jsonb('a\"'::text), jms_type => 'order'", '"a\\""'),
            ("'orders', null", None),
            ("'orders', null::jsonb", None),
        ],
    )
    def test_text_and_json_are_sent_as_text(
        self, session: Session, queue: Queue, server: Server, arguments: str, text: str | None
    ) -> None:
        [(message_id,)] = server.rows(f"select jmsql.send({arguments})")
        message = receive(session.create_consumer(queue))
        assert isinstance(message, TextMessage)
        assert message.text == text
        assert message.jms_message_id == message_id
        assert dict(message.properties).get("color") == ("blue" if "color" in arguments else None)

    def test_a_statement_with_parameters_of_unknown_types_sends_text(
        self, session: Session, queue: Queue, server: Server
    ) -> None:
        server.rows("select jmsql.send(%s, %s)", "orders", "hello")
        assert receive_texts(session.create_consumer(queue), 1) == ["hello"]

    def test_later(self, session: Session, queue: Queue, server: Server) -> None:
        consumer = session.create_consumer(queue)
        server.rows("select jmsql.send('orders', 'later', delivery_delay => '1 h')")
        assert consumer.receive_no_wait() is None
        server.rows("update jmsql_internal.delayed_message set jms_delivery_time = jms_delivery_time - 3600000")
        assert receive_texts(consumer, 1) == ["later"]

    def test_to_a_topic_without_selectors(self, session: Session, server: Server) -> None:
        consumers = [session.create_consumer(Topic("prices")) for _ in range(2)]
        server.rows("select jmsql.send('topic://prices', '17.5')")
        assert [receive_texts(consumer, 1) for consumer in consumers] == [["17.5"]] * 2
        session.create_consumer(Topic("prices"), "weight > 1")
        with pytest.raises(psycopg.DatabaseError, match="weight > 1"):
            server.rows("select jmsql.send('topic://prices', '18')")

    def test_to_a_queue_that_is_not_there_yet(
        self, administration: Administration, session: Session, server: Server
    ) -> None:
        server.rows("select jmsql.send('new', 'a')")
        assert receive_texts(session.create_consumer(Queue("new")), 1) == ["a"]

    @pytest.mark.parametrize(
        "arguments", ["priority => 10", "properties => '{\"a b\": 1}'", "properties => '{\"a\": [1]}'"]
    )
    def test_refusals(self, server: Server, arguments: str) -> None:
        with pytest.raises(psycopg.DatabaseError) as refusal:
            server.rows(f"select jmsql.send('orders', 'a', {arguments})")
        assert refusal.value.sqlstate == "JMS03"
        assert server.rows("select count(*) from jmsql_internal.message") == [(0,)]


class TestDeletingWhatIsInUse:
    def test_a_queue_with_consumers_is_deleted_by_force(
        self, administration: Administration, session: Session, others: Session, queue: Queue, server: Server
    ) -> None:
        consumer = session.create_consumer(queue)
        server_sees(server, queue)
        with pytest.raises(IllegalStateException, match="consumers"):
            administration.delete(queue)
        send_texts(others, queue, "a")
        assert receive_texts(consumer, 1) == ["a"]
        administration.delete(queue, force=True)
        assert consumer.receive_no_wait() is None
        administration.create(queue)
        send_texts(others, queue, "b")
        assert receive_texts(consumer, 1) == ["b"]

    def test_a_queue_whose_consumers_are_closed(
        self, administration: Administration, session: Session, queue: Queue, server: Server
    ) -> None:
        consumer = session.create_consumer(queue)
        server_sees(server, queue)
        consumer.close()
        server_sees(server)
        administration.delete(queue)

    def test_received_messages_can_still_be_acknowledged(
        self, administration: Administration, connection: Connection, others: Session, queue: Queue, server: Server
    ) -> None:
        send_texts(others, queue, "a", "b")
        message = receive(connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT).create_consumer(queue))
        with pytest.raises(IllegalStateException, match="consumers"):
            administration.delete(queue)
        administration.delete(queue, force=True)
        message.acknowledge()
        wait_for(lambda: server.rows("select count(*) from jmsql_internal.message") == [(0,)])

    def test_a_topic_with_subscribers(self, administration: Administration, session: Session, server: Server) -> None:
        topic = Topic("prices")
        subscriber = session.create_consumer(topic)
        wait_for(lambda: server.rows("select topic from jmsql.consumers") == [("prices",)])
        with pytest.raises(IllegalStateException, match="consumers"):
            administration.delete(topic)
        subscriber.close()
        server_sees(server)
        administration.delete(topic)


def server_sees(server: Server, *queues: Queue) -> None:
    """Wait until the clients have written down that they receive from these queues."""
    names = sorted(queue.name for queue in queues)
    wait_for(
        lambda: (
            [
                name
                for (name,) in server.rows(
                    "select q.name from jmsql_internal.queue q where exists "
                    "(select from jmsql_internal.consumer c where c.queue_id = q.queue_id) order by q.name"
                )
            ]
            == names
        )
    )
