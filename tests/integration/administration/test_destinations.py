"""Making, changing and deleting queues and topics."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy

from jmsql import (
    ConnectionFactory,
    IllegalStateException,
    InvalidDestinationException,
    JMSException,
    Queue,
    ResourceAllocationException,
    Session,
    Topic,
)
from jmsql.admin import Administration
from jmsql.testing import receive_all, wait_for
from tests.integration.client.server import Server
from tests.texts import receive_texts, send_texts


class TestOpening:
    def test_by_url_factory_or_engine(self, jmsql_factory: ConnectionFactory) -> None:
        url = jmsql_factory.url
        assert url is not None
        engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
        for database in (url, jmsql_factory, engine):
            with Administration(database) as administration:
                administration.create_queue("orders")
                assert [each.destination for each in administration.destinations()] == ["orders"]
        with engine.connect() as connection:  # it is still the caller's
            assert connection.scalar(sqlalchemy.text("select count(*) from jmsql_internal.queue")) == 1
        engine.dispose()

    def test_by_the_environment(self, jmsql_factory: ConnectionFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        assert jmsql_factory.url is not None
        monkeypatch.setenv("JMSQL_URL", jmsql_factory.url)
        with Administration() as administration:
            assert administration.queues() == []

    def test_schema_of_the_factory(self, jmsql_factory: ConnectionFactory) -> None:
        with pytest.raises(JMSException, match="no schema 'elsewhere'"):
            Administration(ConnectionFactory(jmsql_factory.url, schema="elsewhere")).connect()
        with pytest.raises(JMSException, match="no schema 'elsewhere'"):
            Administration(jmsql_factory, schema="elsewhere").connect()

    def test_it_connects_when_it_is_entered_or_used(self, jmsql_factory: ConnectionFactory) -> None:
        Administration("postgresql://nobody@127.0.0.1:1/nowhere").close()
        administration = Administration(jmsql_factory)
        assert administration.queues() == []
        administration.close()
        with pytest.raises(IllegalStateException):
            administration.queues()
        with pytest.raises(ResourceAllocationException), Administration("postgresql://nobody@127.0.0.1:1/nowhere"):
            pytest.fail("it is connected")

    def test_it_shows_no_password(self) -> None:
        assert repr(Administration("postgresql://me:secret@here/there")).count("secret") == 0
        assert "environment" in repr(Administration())


class TestMaking:
    def test_a_queue_is_made_once(self, administration: Administration) -> None:
        assert administration.create("orders")
        assert not administration.create("queue://orders")
        assert administration.create_queue("orders") == Queue("orders")
        [summary] = administration.destinations()
        assert summary == administration.destination(Queue("orders"))
        assert (summary.kind, summary.destination, summary.temporary, summary.settings) == (
            "queue",
            "orders",
            False,
            {},
        )

    def test_a_topic_is_made_once(self, administration: Administration) -> None:
        assert administration.create("topic://prices")
        assert administration.create_topic("prices") == Topic("prices")
        assert [(each.kind, each.destination) for each in administration.destinations()] == [("topic", "prices")]

    def test_a_queue_and_a_topic_may_have_the_same_name(self, administration: Administration) -> None:
        administration.create_queue("orders")
        administration.create_topic("orders", expiry_queue="orders")
        assert [(each.kind, each.settings) for each in administration.destinations()] == [
            ("queue", {}),
            ("topic", {"expiry_queue": "orders"}),
        ]

    @pytest.mark.parametrize("name", ["", "x" * 256, "a\0b", "stream://orders"])
    def test_a_name_that_is_none(self, administration: Administration, name: str) -> None:
        with pytest.raises(InvalidDestinationException):
            administration.create(name)
        assert administration.destinations() == []

    def test_a_queue_made_with_settings(self, administration: Administration) -> None:
        expired = administration.create_queue("expired")
        administration.create_queue("orders", expiry_queue=expired)
        assert administration.destination("orders").settings == {"expiry_queue": "expired"}
        with pytest.raises(InvalidDestinationException, match='no queue "nowhere"'):
            administration.create_queue("others", expiry_queue="nowhere")
        assert [each.destination for each in administration.destinations()] == ["expired", "orders"]


class TestSettings:
    def test_a_setting_takes_effect_and_can_be_reset(
        self, administration: Administration, session: Session, queue: Queue
    ) -> None:
        administration.create(queue)
        expired = administration.create_queue("expired")
        administration.alter(queue, expiry_queue="expired")
        session.create_producer(queue).send(session.create_text_message("late"), time_to_live=0.01)
        assert receive_texts(session.create_consumer(expired), 1) == ["late"]
        administration.reset(queue, "expiry_queue")
        assert administration.destination(queue).settings == {}
        administration.alter(queue, expiry_queue=expired)
        administration.alter(queue, expiry_queue=None)
        assert administration.destination(queue).settings == {}

    def test_refusals_change_nothing(self, administration: Administration, queue: Queue) -> None:
        administration.create(queue)
        administration.create_queue("expired")
        with pytest.raises(JMSException, match=r'no setting "color".*expiry_queue'):
            administration.reset(queue, "color")
        with pytest.raises(JMSException, match='no setting "name"'):
            administration.reset(queue, "name")
        with pytest.raises(JMSException, match="cannot be its own expiry queue"):
            administration.alter(queue, expiry_queue=queue)
        with pytest.raises(InvalidDestinationException, match='no queue "nowhere"'):
            administration.alter("nowhere", expiry_queue="expired")
        with pytest.raises(InvalidDestinationException, match='no topic "nowhere"'):
            administration.alter("topic://nowhere", expiry_queue="expired")
        with pytest.raises(InvalidDestinationException, match=r"no queue 'nowhere'.*jmsql destination list"):
            administration.destination("nowhere")
        wrong: Any = {"expiry_queue": timedelta}
        with pytest.raises(TypeError, match="is not a value of a setting"):
            administration.alter(queue, **wrong)
        assert administration.destination(queue).settings == {}

    def test_a_topics_settings_are_those_of_all_its_subscriptions(
        self, administration: Administration, session: Session, server: Server
    ) -> None:
        topic = administration.create_topic("prices")
        administration.create_queue("expired")
        early = session.create_consumer(topic)
        administration.alter(topic, expiry_queue="expired")
        late = session.create_consumer(topic)
        session.create_producer(topic).send(session.create_text_message("x"), time_to_live=0.01)
        wait_for(lambda: server.rows("select ready from jmsql.queues where queue = 'expired'") == [(2,)])
        administration.reset(topic, "expiry_queue")
        server.rows("delete from jmsql_internal.message")
        session.create_producer(topic).send(session.create_text_message("x"), time_to_live=0.01)
        wait_for(lambda: server.rows("select count(*) from jmsql_internal.message") == [(0,)])
        early.close()
        late.close()


class TestDeleting:
    def test_a_queue_that_is_deleted_and_made_again_is_empty(
        self, administration: Administration, session: Session, queue: Queue
    ) -> None:
        send_texts(session, queue, "a", "b")
        administration.delete(queue)
        assert administration.destinations() == []
        administration.create(queue)
        assert receive_all(session.create_consumer(queue)) == []

    def test_a_topic_goes_with_its_subscriptions(
        self, administration: Administration, session: Session, server: Server
    ) -> None:
        topic = administration.create_topic("prices")
        kept = administration.create_topic("kept")
        subscriptions = [session.create_shared_durable_consumer(each, each.name) for each in (topic, kept)]
        send_texts(session, topic, "a")
        send_texts(session, kept, "b")
        for subscription in subscriptions:
            subscription.close()
        administration.delete(topic, force=True)  # its consumer may still be listed, which is closed
        assert [each.subscription for each in administration.subscriptions()] == ["kept"]
        wait_for(lambda: server.rows("select text_body from jmsql_internal.message") == [("b",)])

    def test_deleting_a_missing_destination_raises(self, administration: Administration) -> None:
        with pytest.raises(InvalidDestinationException, match='no queue "orders"'):
            administration.delete("orders")
        with pytest.raises(InvalidDestinationException, match='no topic "orders"'):
            administration.delete("topic://orders")


def test_the_functions_are_there_for_every_language(server: Server) -> None:
    assert server.rows("select jmsql.create_queue('expired'), jmsql.create_queue('expired')") == [(True, False)]
    settings = '{"expiry_queue": "expired"}'
    server.rows("select jmsql.create_queue('orders', %s), jmsql.create_topic('prices', %s)", settings, settings)
    assert server.rows("select kind, destination, settings from jmsql.destinations order by kind, destination") == [
        ("queue", "expired", {}),
        ("queue", "orders", {"expiry_queue": "expired"}),
        ("topic", "prices", {"expiry_queue": "expired"}),
    ]
    server.rows("select jmsql.alter_destination('topic://prices', '{\"expiry_queue\": null}')")
    server.rows("select jmsql.delete_destination('orders')")
    assert server.rows("select destination, settings from jmsql.destinations order by 1") == [
        ("expired", {}),
        ("prices", {}),
    ]
