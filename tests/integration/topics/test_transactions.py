"""Publishing in transactions: a session's own, and the caller's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy
from sqlalchemy import orm

import jmsql
from jmsql import Connection, Message, MessageConsumer, Queue, Session, Topic
from jmsql.testing import receive_all, wait_for
from tests.texts import receive, receive_texts, texts_of

pytestmark = pytest.mark.usefixtures("shared_connection")


@pytest.fixture
def transacted(connection: Connection) -> Session:
    return connection.create_session(transacted=True)


@pytest.fixture
def consumer(session: Session, topic: Topic) -> MessageConsumer:
    return session.create_consumer(topic)


@pytest.fixture
def engine(jmsql_clean_url: str) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(jmsql_clean_url.replace("postgresql://", "postgresql+psycopg://", 1))
    yield engine
    engine.dispose()


class TestSession:
    def test_rollback_publishes_nothing(self, transacted: Session, consumer: MessageConsumer, topic: Topic) -> None:
        producer = transacted.create_producer(topic)
        for end in (transacted.rollback, transacted.commit):
            producer.send(transacted.create_text_message(end.__name__))
            assert receive_all(consumer) == []
            end()
        assert texts_of(receive_all(consumer)) == ["commit"]

    def test_subscribers_from_before_the_commit_get_it(
        self, transacted: Session, session: Session, topic: Topic
    ) -> None:
        transacted.create_producer(topic).send(transacted.create_text_message("a"))
        with session.create_consumer(topic) as consumer:
            transacted.commit()
            assert receive_texts(consumer, 1) == ["a"]
        assert receive_all(session.create_consumer(topic)) == []

    def test_queues_and_topics_share_a_transaction(
        self, transacted: Session, session: Session, consumer: MessageConsumer, topic: Topic
    ) -> None:
        other, queue = Topic("other"), Queue("orders")
        destinations = [topic, queue, other, topic, queue]
        consumers = [consumer, session.create_consumer(queue), session.create_consumer(other)]
        producer = transacted.create_producer()
        for number, destination in enumerate(destinations):
            producer.send(transacted.create_text_message(str(number)), destination)
        transacted.commit()
        assert [texts_of(receive_all(each)) for each in consumers] == [["0", "3"], ["1", "4"], ["2"]]

    def test_topic_is_received_from_and_published_on_in_one_transaction(
        self, transacted: Session, session: Session, topic: Topic
    ) -> None:
        onward = Topic("onward")
        receiving, final = transacted.create_consumer(topic), session.create_consumer(onward)
        session.create_producer(topic).send(session.create_text_message("a"))
        for end in (transacted.rollback, transacted.commit):
            transacted.create_producer(onward).send(receive(receiving))
            end()
        assert texts_of(receive_all(final)) == ["a"]
        assert receive_all(receiving) == []

    def test_transaction_does_not_receive_its_own_publications(self, transacted: Session, topic: Topic) -> None:
        consumer = transacted.create_consumer(topic)
        transacted.create_producer(topic).send(transacted.create_text_message("a"))
        assert receive_all(consumer) == []
        transacted.commit()
        assert receive_texts(consumer, 1) == ["a"]

    def test_many_messages_keep_their_order(self, transacted: Session, session: Session, topic: Topic) -> None:
        consumers = [session.create_consumer(topic) for _ in range(2)]
        texts = [str(number) for number in range(1200)]  # more than one batch
        producer = transacted.create_producer(topic)
        for text in texts:
            producer.send(transacted.create_text_message(text))
        transacted.commit()
        assert [texts_of(receive_all(consumer)) for consumer in consumers] == [texts, texts]

    def test_topic_without_subscribers_takes_messages(self, transacted: Session, session: Session) -> None:
        for sending in (transacted, session):
            sending.create_producer(Topic("unheard")).send(sending.create_text_message("a"))
        transacted.commit()


class TestEnlisted:
    @pytest.mark.parametrize("committed", [True, False])
    def test_orm_session(
        self, engine: sqlalchemy.Engine, consumer: MessageConsumer, topic: Topic, committed: bool
    ) -> None:
        with orm.Session(engine) as database:
            producer = jmsql.enlist(database).create_producer()
            producer.send(topic, "a").send(topic, "b")
            assert receive_all(consumer) == []
            if committed:
                database.commit()
        assert texts_of(receive_all(consumer)) == (["a", "b"] if committed else [])

    def test_consumer_that_waits_is_woken(
        self, engine: sqlalchemy.Engine, connection: Connection, consumer: MessageConsumer, topic: Topic
    ) -> None:
        heard: list[Message] = []
        connection.create_session().create_consumer(topic).message_listener = heard.append
        with engine.begin() as database:
            jmsql.enlist(database).create_producer().send(topic, "a")
        assert receive_texts(consumer, 1) == ["a"]
        wait_for(lambda: texts_of(heard) == ["a"])

    def test_selectors_are_heeded(self, engine: sqlalchemy.Engine, session: Session, topic: Topic) -> None:
        consumers = [session.create_consumer(topic, f"number {sign} 1") for sign in ("=", "<>", ">")]
        with engine.begin() as database:
            context = jmsql.enlist(database)
            for number in (1, 2):
                context.create_producer(properties={"number": number}).send(topic, str(number))
        assert [texts_of(receive_all(consumer)) for consumer in consumers] == [["1"], ["2"], ["2"]]

    def test_subscriber_with_no_local_gets_it(self, engine: sqlalchemy.Engine, session: Session, topic: Topic) -> None:
        """The caller's transaction belongs to no client."""
        consumer = session.create_consumer(topic, no_local=True)
        with engine.begin() as database:
            jmsql.enlist(database).create_producer().send(topic, "a")
        assert texts_of(receive_all(consumer)) == ["a"]

    def test_rollback_to_a_savepoint_undoes_later_work(
        self, engine: sqlalchemy.Engine, consumer: MessageConsumer, topic: Topic
    ) -> None:
        with orm.Session(engine) as database, database.begin():
            jmsql.enlist(database).create_producer().send(topic, "a")
            with database.begin_nested() as savepoint:
                jmsql.enlist(database).create_producer().send(topic, "b")
                savepoint.rollback()
        assert texts_of(receive_all(consumer)) == ["a"]
