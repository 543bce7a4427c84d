"""Many clients share fewer connections to PostgreSQL than they are, and everything works."""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from collections.abc import Iterator

import pytest
import sqlalchemy

import jmsql
from jmsql import AcknowledgeMode, Connection, ConnectionFactory, JMSException, Queue, Session
from jmsql.client._sync.link.opening import open_runner
from jmsql.store.schema.migration import migrate
from jmsql.store.schema.version import current_version, newest_version
from jmsql.testing import receive_all, wait_for
from jmsql.xa import XAConnectionFactory, Xid
from tests.background import Background
from tests.integration.client.server import Server
from tests.integration.pooler.pgbouncer import PgBouncer, pgbouncer
from tests.texts import receive, receive_texts, send_texts, texts_left

QUEUE = Queue("orders")
CLIENTS = 3
MESSAGES = 20
SERVER_CONNECTIONS = {"with control_url": 2, "alone": 2 * CLIENTS + 1}
"""As few as there can be. Without a control_url, that is one more than there are transactions open at once."""


@pytest.fixture(scope="module", params=list(SERVER_CONNECTIONS))
def size(request: pytest.FixtureRequest) -> int:
    return SERVER_CONNECTIONS[request.param]


@pytest.fixture(scope="module", params=[False, True], ids=["packaged pooler", "current pooler"])
def keeps_prepared_statements(request: pytest.FixtureRequest) -> bool:
    chosen: bool = request.param
    return chosen


@pytest.fixture(scope="module")
def narrow_pooler(jmsql_server_url: str, size: int, keeps_prepared_statements: bool) -> Iterator[PgBouncer]:
    with pgbouncer(jmsql_server_url, size, current=keeps_prepared_statements) as pooler:
        yield pooler


@pytest.fixture
def narrow_factory(jmsql_clean_url: str, narrow_pooler: PgBouncer, size: int) -> Iterator[ConnectionFactory]:
    has_way_past = size == SERVER_CONNECTIONS["with control_url"]
    yield ConnectionFactory(narrow_pooler.url(jmsql_clean_url), control_url=jmsql_clean_url if has_way_past else None)
    wait_for(lambda: not narrow_pooler.clients())
    narrow_pooler.forget(jmsql_clean_url)


def produce(factory: ConnectionFactory, number: int, mode: AcknowledgeMode) -> None:
    with factory.create_context(session_mode=mode) as context:
        producer = context.create_producer()
        for message in range(MESSAGES):
            producer.send(QUEUE, f"{number} {message}")
            if mode is AcknowledgeMode.TRANSACTED and message % 4 == 3:
                context.commit()


class Consumers:
    """Clients that receive, each on a thread of its own, until all messages have come."""

    def __init__(self, factory: ConnectionFactory, mode: AcknowledgeMode, listens: bool) -> None:
        self._factory = factory
        self._mode = mode
        self._lock = threading.Lock()
        self._texts: Counter[str] = Counter()
        self._complete = threading.Event()
        work = self._listen if listens else self._receive
        self._running = [Background(work) for _ in range(CLIENTS)]

    def texts(self) -> Counter[str]:
        """How often each text came, once each has."""
        for running in self._running:
            running.result(timeout=60)
        return self._texts

    def _settled(self, message: jmsql.Message) -> None:
        message.acknowledge()  # of use in CLIENT mode alone
        with self._lock:
            self._texts[str(message.get_body(str))] += 1
            if len(self._texts) == CLIENTS * MESSAGES:
                self._complete.set()

    def _receive(self) -> None:
        with self._factory.create_context(session_mode=self._mode) as context:
            consumer = context.create_consumer(QUEUE)
            while not self._complete.is_set():
                message = consumer.receive(timeout=0.1)
                if message is None:
                    continue
                if self._mode is AcknowledgeMode.TRANSACTED:
                    context.commit()
                self._settled(message)

    def _listen(self) -> None:
        with self._factory.create_connection() as connection:
            session = connection.create_session(self._mode is AcknowledgeMode.TRANSACTED, self._mode)

            def listen(message: jmsql.Message) -> None:
                if session.transacted:
                    session.commit()
                self._settled(message)

            session.create_consumer(QUEUE).message_listener = listen
            connection.start()
            assert self._complete.wait(60)


@pytest.mark.parametrize("listens", [False, True], ids=["receive", "listener"])
@pytest.mark.parametrize("mode", list(AcknowledgeMode), ids=lambda mode: mode.name)
def test_each_message_comes_once(
    narrow_factory: ConnectionFactory, mode: AcknowledgeMode, listens: bool, server: Server, size: int
) -> None:
    consumers = Consumers(narrow_factory, mode, listens)
    producing = [Background(lambda number=number: produce(narrow_factory, number, mode)) for number in range(CLIENTS)]  # type: ignore[misc]
    for producer in producing:
        producer.result(timeout=60)
    texts = consumers.texts()
    assert texts == Counter(f"{number} {message}" for number in range(CLIENTS) for message in range(MESSAGES))
    assert server.rows("select from jmsql_internal.message") == []
    poolers = "select count(*) from pg_stat_activity where datname = current_database() and usename like 'pooler%%'"
    assert server.rows(poolers)[0][0] <= size


@pytest.fixture
def table(jmsql_clean_url: str, server: Server) -> Iterator[str]:
    """A business table."""
    server.rows("create table shipment (goods text)")
    yield "shipment"
    server.rows("drop table shipment")


@pytest.mark.routes
def test_business_rows_share_the_fate_of_messages(
    connection: Connection, others: Session, table: str, server: Server
) -> None:
    transacted = connection.create_session(transacted=True)
    consumer = transacted.create_consumer(QUEUE)
    send_texts(others, QUEUE, "a")
    for is_redelivered, end in ((False, transacted.rollback), (True, transacted.commit)):
        assert receive(consumer).jms_redelivered is is_redelivered
        transacted.database.execute(sqlalchemy.text("insert into shipment values (:goods)"), {"goods": "a"})
        transacted.create_producer(Queue("shipped")).send(transacted.create_text_message("a"))
        end()
    assert server.rows("select * from shipment") == [("a",)]
    assert receive_texts(others.create_consumer(Queue("shipped")), 1) == ["a"]
    assert receive_all(others.create_consumer(QUEUE)) == []


@pytest.mark.routes
def test_global_transaction_is_prepared_by_one_client_and_committed_by_another(
    factory: ConnectionFactory, others: Session
) -> None:
    xid = Xid(7, "purchase", "messages")
    xa_factory = XAConnectionFactory(factory.url, control_url=factory.control_url)
    with xa_factory.create_xa_connection() as first:
        session = first.create_xa_session()
        session.tpc_begin(xid)
        with session.create_producer(QUEUE) as producer:
            producer.send(session.create_text_message("a"))
        session.tpc_prepare()
    assert receive_all(others.create_consumer(QUEUE)) == []
    with xa_factory.create_xa_connection() as second:
        session = second.create_xa_session()
        assert xid in session.tpc_recover()
        session.tpc_commit(xid)
    assert receive_texts(others.create_consumer(QUEUE), 1) == ["a"]


def test_backend_enlists_messages_in_its_own_transaction(jmsql_factory: ConnectionFactory) -> None:
    assert jmsql_factory.url is not None
    url = sqlalchemy.make_url(jmsql_factory.url).set(drivername="postgresql+psycopg")
    engine = sqlalchemy.create_engine(url, connect_args={"prepare_threshold": None})
    for text in "abc":
        with engine.begin() as database:
            jmsql.enlist(database).create_producer().send(QUEUE, text)
    with engine.connect() as database:
        jmsql.enlist(database).create_producer().send(QUEUE, "rolled back")
        database.rollback()
    engine.dispose()
    assert texts_left(jmsql_factory, QUEUE) == ["a", "b", "c"]


def test_schema_is_installed_through_a_pooler(jmsql_factory: ConnectionFactory) -> None:
    assert jmsql_factory.url is not None
    migrate(jmsql_factory.url, "another")
    with open_runner(jmsql_factory.url, "another") as runner:
        assert runner.run(current_version("another")) == newest_version()
    url = sqlalchemy.make_url(jmsql_factory.url).set(drivername="postgresql+psycopg")
    engine = sqlalchemy.create_engine(url, connect_args={"prepare_threshold": None})
    try:
        with engine.begin() as database:
            database.exec_driver_sql("drop schema another, another_internal cascade")
    finally:
        engine.dispose()


# Waking up


def test_a_clients_send_wakes_its_own_consumers_at_once(connection: Connection) -> None:
    session = connection.create_session()
    consumer = session.create_consumer(QUEUE)
    woken = threading.Event()
    connection._control.subscribe(consumer._state.buffer.source.queue_id, lambda _: woken.set())
    send_texts(connection.create_session(), QUEUE, "a")
    assert woken.wait(60)
    assert receive_texts(consumer, 1) == ["a"]


def test_another_clients_messages_are_found_by_polling(connection: Connection, others: Session) -> None:
    heard = threading.Event()
    connection.create_session().create_consumer(QUEUE).message_listener = lambda _: heard.set()
    connection._control.subscribe(others._receiving.queue_id(QUEUE, "receive"), lambda _: pytest.fail("notified"))
    send_texts(others, QUEUE, "a")
    assert heard.wait(60)


# Where the control connection leads


def test_control_url_of_another_database_is_refused(jmsql_factory: ConnectionFactory, jmsql_server_url: str) -> None:
    with pytest.raises(JMSException, match="control_url leads to another database"):
        dataclasses.replace(jmsql_factory, control_url=jmsql_server_url).create_connection()


def test_control_url_that_leads_nowhere_is_named(jmsql_factory: ConnectionFactory) -> None:
    with pytest.raises(JMSException, match=r"\(control_url\)"):
        dataclasses.replace(jmsql_factory, control_url="postgresql://localhost:1/shop").create_connection()


def test_environment_names_both_ways(
    jmsql_factory: ConnectionFactory, jmsql_clean_url: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert jmsql_factory.url is not None
    monkeypatch.setenv("JMSQL_URL", jmsql_factory.url)
    monkeypatch.setenv("JMSQL_CONTROL_URL", jmsql_clean_url)
    with_heartbeats = "select heartbeat_at is not null from jmsql_internal.connection"
    for factory in (ConnectionFactory(), ConnectionFactory(jmsql_factory.url)):
        with factory.create_connection():
            assert server.rows(with_heartbeats) == [(False,)]
    with ConnectionFactory(f"{jmsql_factory.url}&application_name=other").create_connection():
        assert server.rows(with_heartbeats) == [(True,)], "JMSQL_CONTROL_URL belongs to JMSQL_URL"


def test_a_body_that_is_refused_stays_in_its_queue(jmsql_factory: ConnectionFactory) -> None:
    with jmsql_factory.create_context() as context:
        context.create_producer().send(QUEUE, "a").send(QUEUE, "b")
        consumer = context.create_consumer(QUEUE)
        for expected in ("a", "b"):
            for _ in range(7):
                with pytest.raises(jmsql.MessageFormatException):
                    consumer.receive_body(bytes, timeout=60)
            assert consumer.receive_body(str, timeout=60) == expected
