"""What an application does to a session's database connection beside its own rows."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.pq import TransactionStatus
from sqlalchemy import orm, text
from sqlalchemy.exc import SQLAlchemyError

from jmsql import (
    Connection,
    ConnectionFactory,
    JMSException,
    Message,
    MessageConsumer,
    Queue,
    Session,
    TransactionRolledBackException,
)
from jmsql.admin import Administration
from jmsql.testing import receive_all
from tests.integration.client.server import Server
from tests.texts import receive, send_texts, texts_left, texts_of

pytestmark = pytest.mark.usefixtures("maintenance_suspended")

QUEUE = Queue("database")


@pytest.fixture
def connection(jmsql_factory: ConnectionFactory) -> Iterator[Connection]:
    with jmsql_factory.create_connection() as connection:
        connection.start()
        yield connection


@pytest.fixture
def administration(jmsql_factory: ConnectionFactory) -> Iterator[Administration]:
    with Administration(jmsql_factory) as administration:
        yield administration


@pytest.fixture
def session(connection: Connection) -> Session:
    return connection.create_session(transacted=True)


def send(session: Session, name: str) -> None:
    session.create_producer(QUEUE).send(session.create_text_message(name))


def send_to_one_that_expects_many(session: Session, consumer: MessageConsumer) -> None:
    """Send ten messages, after as many as it takes for the consumer to fetch ahead."""
    numbers = [str(number) for number in range(10)]
    for _ in range(2):
        send_texts(session, QUEUE, *numbers)
        for _ in range(10):
            receive(consumer)
        session.commit()
    send_texts(session, QUEUE, *numbers)


FAILURE_AT_COMMIT = """
    create temporary table twice (i int unique deferrable initially deferred) on commit drop;
    insert into twice values (1), (1)"""


def driver_connection(session: Session) -> psycopg.Connection[object]:
    connection = session.database.connection.driver_connection
    assert isinstance(connection, psycopg.Connection)
    return connection


def driver_block(session: Session) -> None:
    connection = driver_connection(session)
    with connection.transaction():
        connection.execute("select 1")


STEPS: dict[str, Callable[[Session], object]] = {
    "select": lambda session: session.database.execute(text("select 1")),
    "failure": lambda session: session.database.execute(text("select 1 / 0")),
    "failure at commit": lambda session: session.database.execute(text(FAILURE_AT_COMMIT)),
    "commit": lambda session: session.database.commit(),
    "rollback": lambda session: session.database.rollback(),
    "commit as text": lambda session: session.database.execute(text("/* done */ commit")),
    "rollback as text": lambda session: session.database.execute(text("rollback")),
    "rollback and chain": lambda session: session.database.execute(text("rollback and chain")),
    "commit and chain": lambda session: session.database.execute(text("commit and chain")),
    "commit behind a statement": lambda session: session.database.execute(text("select 1; commit; begin")),
    "rollback behind a statement": lambda session: session.database.execute(text("select 1; abort and chain")),
    "commit of the driver": lambda session: driver_connection(session).commit(),
    "rollback of the driver": lambda session: driver_connection(session).rollback(),
    "block of the driver": driver_block,
    "receive": lambda session: session.create_consumer(Queue("database.empty")).receive(timeout=0),
    "send": lambda session: None,
}


class Application:
    """Uses a session and its database connection, and remembers the messages that it has sent."""

    def __init__(self, session: Session, queue: Queue = QUEUE) -> None:
        self._session = session
        self.queue = queue
        self.sent: list[str] = []
        self.committed: list[str] = []
        """The messages that were sent before its last commit that succeeded."""

    def do(self, *steps: str) -> None:
        """Take steps; a failure of one that is the application's own is caught."""
        for step in steps:
            if step == "send":
                name = str(len(self.sent))
                self._session.create_producer(self.queue).send(self._session.create_text_message(name))
                self.sent.append(name)
            with contextlib.suppress(SQLAlchemyError, psycopg.Error):
                is_whole = step.startswith("commit") and not self._has_failed()
                STEPS[step](self._session)
                if is_whole:
                    self.committed = list(self.sent)

    def end(self, *steps: str) -> None:
        """Take steps, and commit the session."""
        self.do(*steps)
        self._session.commit()

    def _has_failed(self) -> bool:
        return driver_connection(self._session).info.transaction_status == TransactionStatus.INERROR


SETTINGS = [
    "set role pg_read_all_data",
    "set session authorization pg_read_all_data",
    "set statement_timeout = '5min'",
    "set default_transaction_read_only = on",
    "set search_path = pg_temp",
    "set default_transaction_isolation = 'serializable'",
    "create temporary table leaked ()",
    "select pg_advisory_lock(4711)",
    "listen leaked",
    "prepare leaked as select 1",
    "declare leaked cursor with hold for select 1",
]
STATE = text(
    """
    select current_user, session_user, current_setting('statement_timeout'),
           current_setting('default_transaction_read_only'), current_setting('search_path'),
           current_setting('default_transaction_isolation'), to_regclass('pg_temp.leaked'),
           (select count(*) from pg_locks where pid = pg_backend_pid() and objid = 4711 and locktype = 'advisory'),
           (select count(*) from pg_listening_channels()),
           (select count(*) from pg_prepared_statements where name = 'leaked'),
           (select count(*) from pg_cursors where name = 'leaked')"""
)


@pytest.mark.parametrize("statement", SETTINGS)
@pytest.mark.parametrize("closed_by", ["session", "application"])
def test_its_settings_do_not_reach_the_next_session(
    connection: Connection, session: Session, statement: str, closed_by: str
) -> None:
    with connection.create_session(transacted=True) as untouched:
        before = untouched.database.execute(STATE).one()
    database = session.database
    database.exec_driver_sql(statement)
    session.commit()
    if closed_by == "session":
        session.close()
    else:
        database.close()
    with connection.create_session(transacted=True) as following:
        assert following.database.execute(STATE).one() == before
        send(following, "one")
        following.commit()


def test_a_session_whose_database_was_never_asked_for_gives_its_connection_back(
    connection: Connection, server: Server
) -> None:
    processes = text("select pg_backend_pid()")
    with connection.create_session(transacted=True) as session:
        send(session, "one")
        session.commit()
        assert session._transaction.database is not None
        first = session._transaction.database.begin().connection.scalar(processes)
    with connection.create_session(transacted=True) as session:
        assert session._transaction.database is not None
        assert session._transaction.database.begin().connection.scalar(processes) == first
    assert server.rows("select count(*) from jmsql.messages") == [(1,)]


def test_a_look_that_needs_no_statement_begins_no_work(connection: Connection, session: Session) -> None:
    """A selector's look at an empty queue runs none, and the server's transaction stays closed until the fetch."""
    consumer = session.create_consumer(QUEUE, "JMSPriority = 4")
    for number in range(3):
        with connection.create_session() as sender:
            send(sender, f"message {number}")
        assert receive(consumer).get_body(str) == f"message {number}"
        session.database.execute(text("select 1"))
        session.commit()
        assert consumer.receive(timeout=0) is None


class TestClosed:
    def test_after_the_commit_the_session_works_again(self, session: Session, jmsql_factory: ConnectionFactory) -> None:
        with session.database as database:
            database.execute(text("select 1"))
            send(session, "one")
            session.commit()
        send(session, "two")
        session.commit()
        assert session.database.scalar(text("select 2")) == 2
        session.close()
        assert texts_left(jmsql_factory, QUEUE) == ["one", "two"]

    def test_before_the_commit_nothing_took_effect_and_the_commit_says_so(
        self, session: Session, jmsql_factory: ConnectionFactory
    ) -> None:
        send(session, "one")
        session.database.close()
        with pytest.raises(TransactionRolledBackException, match=r"session\.database was closed"):
            send(session, "two")
        with pytest.raises(TransactionRolledBackException, match=r"session\.database was closed"):
            session.commit()
        send(session, "three")
        session.commit()
        assert texts_left(jmsql_factory, QUEUE) == ["three"]

    @pytest.mark.parametrize("is_lost", [False, True], ids=["closed", "lost"])
    @pytest.mark.parametrize("steps", [["commit"], ["commit", "send", "select"], ["commit as text"]], ids=" and ".join)
    def test_after_a_commit_of_the_application_it_is_no_rollback(
        self, session: Session, server: Server, jmsql_factory: ConnectionFactory, steps: list[str], is_lost: bool
    ) -> None:
        database = session.database
        process = database.scalar(text("select pg_backend_pid()"))
        Application(session).do("send", "select", *steps)
        if is_lost:
            server.rows("select pg_terminate_backend(%s, 10000)", process)
        else:
            database.close()
        with pytest.raises(JMSException, match="whether it took effect is not known") as raised:
            session.commit()
        assert raised.value.error_code == "08007"
        assert texts_left(jmsql_factory, QUEUE) == ["0"]

    def test_a_receive_says_so_too_and_the_messages_come_again(self, session: Session) -> None:
        consumer = session.create_consumer(QUEUE)
        send_texts(session, QUEUE, "one", "two")
        assert receive(consumer).get_body(str) == "one"
        session.database.close()
        with pytest.raises(TransactionRolledBackException, match=r"session\.database was closed"):
            consumer.receive(timeout=0)
        session.rollback()
        message = receive(consumer)
        assert (message.get_body(str), message.jms_redelivered) == ("one", True)


class TestEndedByTheApplication:
    def test_a_rollback_takes_the_sends_with_it_and_the_commit_says_so(
        self, session: Session, jmsql_factory: ConnectionFactory
    ) -> None:
        send(session, "one")
        session.database.rollback()
        with pytest.raises(TransactionRolledBackException, match=r"session\.database was rolled back"):
            session.commit()
        send(session, "two")
        session.commit()
        assert texts_left(jmsql_factory, QUEUE) == ["two"]

    def test_a_rollback_of_an_orm_session_does_too(self, session: Session, jmsql_factory: ConnectionFactory) -> None:
        send(session, "one")
        with orm.Session(session.database) as joined:
            joined.execute(text("select 1"))
            joined.rollback()
        with pytest.raises(TransactionRolledBackException, match=r"session\.database was rolled back"):
            session.commit()
        assert texts_left(jmsql_factory, QUEUE) == []

    def test_a_rollback_before_the_session_did_anything_does_no_harm(
        self, session: Session, jmsql_factory: ConnectionFactory
    ) -> None:
        session.database.execute(text("select 1"))
        session.database.rollback()
        send(session, "one")
        session.commit()
        assert texts_left(jmsql_factory, QUEUE) == ["one"]

    def test_a_rollback_of_rows_is_noticed_if_a_message_was_sent_with_them(
        self, session: Session, jmsql_factory: ConnectionFactory
    ) -> None:
        database = session.database
        database.execute(text("select 1"))
        send(session, "one")
        database.rollback()
        with pytest.raises(TransactionRolledBackException, match=r"session\.database was rolled back"):
            session.commit()
        assert texts_left(jmsql_factory, QUEUE) == []

    @pytest.mark.parametrize("statement", ["rollback and chain", "commit and chain", "rollback; begin"])
    def test_no_message_fetched_ahead_is_received_after_a_hidden_end(
        self, connection: Connection, session: Session, statement: str
    ) -> None:
        consumer = session.create_consumer(QUEUE)
        numbers = [str(number) for number in range(20)]
        send_texts(session, QUEUE, *numbers)
        for _ in range(12):
            receive(consumer)
        session.database.execute(text(statement))
        theirs = receive_all(connection.create_session().create_consumer(QUEUE))
        assert numbers[-1] in texts_of(theirs)
        with pytest.raises(JMSException, match="whether it took effect is not known"):
            consumer.receive(timeout=0)

    def test_no_message_fetched_ahead_is_received_after_a_rollback(self, session: Session) -> None:
        consumer = session.create_consumer(QUEUE)
        send_to_one_that_expects_many(session, consumer)
        receive(consumer)
        database = session.database
        database.rollback()
        database.execute(text("select 1"))  # in a transaction of its own, which has no lock
        with pytest.raises(TransactionRolledBackException, match=r"session\.database was rolled back"):
            consumer.receive(timeout=0)
        session.rollback()
        assert [receive(consumer).get_body(str) for _ in range(10)] == [str(number) for number in range(10)]

    def test_a_commit_releases_messages_fetched_ahead(self, connection: Connection, session: Session) -> None:
        consumer = session.create_consumer(QUEUE)
        send_to_one_that_expects_many(session, consumer)
        assert session.database is not None
        received = [receive(consumer).get_body(str)]
        database = session.database
        database.commit()
        database.execute(text("select 1"))
        other = connection.create_session()
        theirs = other.create_consumer(QUEUE)
        received += [receive(theirs).get_body(str) for _ in range(9)]
        assert consumer.receive(timeout=0) is None
        session.commit()
        assert sorted(map(str, received)) == [str(number) for number in range(10)]

    @pytest.mark.parametrize("work", ["nothing", "a statement", "a send"])
    def test_a_connection_lost_before_the_commit_has_rolled_back(
        self, session: Session, server: Server, jmsql_factory: ConnectionFactory, work: str
    ) -> None:
        send(session, "lost")
        [process] = session.database.execute(text("select pg_backend_pid()")).one()
        if work == "a statement":
            session.database.execute(text("create table business ()"))
        elif work == "a send":
            send(session, "lost too")
        server.rows("select pg_terminate_backend(%s, 10000)", process)
        with pytest.raises(TransactionRolledBackException, match="was lost") as raised:
            session.commit()
        assert raised.value.error_code == "08006"
        send(session, "sent")
        session.commit()
        assert texts_left(jmsql_factory, QUEUE) == ["sent"]

    def test_a_rollback_of_the_driver_does_too(self, session: Session, jmsql_factory: ConnectionFactory) -> None:
        send(session, "one")
        driver_connection(session).rollback()
        with pytest.raises(TransactionRolledBackException, match=r"session\.database was rolled back"):
            session.commit()
        send(session, "two")
        session.commit()
        assert texts_left(jmsql_factory, QUEUE) == ["two"]

    @pytest.mark.parametrize("steps", [["failure", "commit"], ["failure at commit", "commit"]], ids=" and ".join)
    def test_a_commit_that_the_server_refuses_is_a_rollback(
        self, session: Session, jmsql_factory: ConnectionFactory, steps: list[str]
    ) -> None:
        Application(session).do("send", "select", *steps)
        with pytest.raises(TransactionRolledBackException, match=r"session\.database was rolled back"):
            session.commit()
        assert texts_left(jmsql_factory, QUEUE) == []

    @pytest.mark.parametrize("then", [["send"], ["select"], ["send", "select"], ["receive"]], ids=" and ".join)
    @pytest.mark.parametrize("how", ["commit as text", "rollback as text", "rollback and chain"])
    @pytest.mark.parametrize("is_continued", [False, True], ids=["first part", "second part"])
    def test_work_after_a_hidden_end_does_not_hide_it(
        self, session: Session, jmsql_factory: ConnectionFactory, how: str, then: list[str], is_continued: bool
    ) -> None:
        application = Application(session)
        if is_continued:
            application.do("send", "select", "commit")
        application.do("send", "select", how)
        with pytest.raises(JMSException, match="whether it took effect is not known") as raised:
            application.end(*then)
        assert raised.value.error_code == "08007"
        session.rollback()
        application.do("send")
        session.commit()
        assert len(texts_left(jmsql_factory, QUEUE)) == 1 + is_continued + how.startswith("commit")

    def test_a_rollback_of_nothing_after_a_commit_does_no_harm(
        self, session: Session, jmsql_factory: ConnectionFactory
    ) -> None:
        Application(session).do("send", "select", "commit", "select", "rollback")
        session.commit()
        assert texts_left(jmsql_factory, QUEUE) == ["0"]

    @given(steps=st.lists(st.sampled_from(list(STEPS)), max_size=8))
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_a_commit_that_succeeds_has_committed_all(
        self, connection: Connection, jmsql_factory: ConnectionFactory, steps: list[str]
    ) -> None:
        with connection.create_session(transacted=True) as session:
            application = Application(session, Queue(f"database.{uuid.uuid4()}"))
            outcome: JMSException | None = None
            try:
                application.end(*steps)
            except JMSException as error:
                outcome = error
        left = texts_left(jmsql_factory, application.queue)
        if outcome is None:
            assert left == application.sent
        elif isinstance(outcome, TransactionRolledBackException):
            assert left == application.committed
        else:
            assert outcome.error_code is not None
            assert outcome.error_code.startswith("08")


COMMITS: dict[str, Callable[[Session], object]] = {
    "SQLAlchemy's": lambda session: session.database.commit(),
    "the driver's": lambda session: driver_connection(session).commit(),
}


class TestACommitByTheApplication:
    """It is one of the session's work so far, and the locks of messages fetched ahead end with it."""

    @pytest.fixture(params=COMMITS)
    def commit(self, request: pytest.FixtureRequest) -> Callable[[Session], object]:
        return COMMITS[request.param]

    @pytest.fixture(params=[None, 5], ids=["no policy", "a policy"])
    def queue(self, request: pytest.FixtureRequest, administration: Administration) -> Queue:
        return administration.create_queue(f"database.{uuid.uuid4()}", maximum_deliveries=request.param)

    def test_no_other_consumer_gets_what_was_received_before(
        self, connection: Connection, session: Session, queue: Queue, commit: Callable[[Session], object]
    ) -> None:
        send_texts(session, queue, "one", "two")
        assert session.database is not None
        consumer = session.create_consumer(queue)
        received = texts_of([receive(consumer)])  # after the application's last statement
        session.database.execute(text("select 1"))
        received += texts_of([receive(consumer)])
        commit(session)
        assert texts_of(receive_all(connection.create_session().create_consumer(queue))) == []
        session.commit()
        assert received == ["one", "two"]

    def test_messages_sent_before_are_sent(
        self, connection: Connection, session: Session, queue: Queue, commit: Callable[[Session], object]
    ) -> None:
        session.database.execute(text("select 1"))
        session.create_producer(queue).send(session.create_text_message("one"))
        commit(session)
        assert texts_of(receive_all(connection.create_session().create_consumer(queue))) == ["one"]
        session.commit()

    def test_it_commits_sends_if_no_statement_has_run(
        self, connection: Connection, session: Session, queue: Queue
    ) -> None:
        database = session.database
        session.create_producer(queue).send(session.create_text_message("one"))
        database.commit()
        assert texts_of(receive_all(connection.create_session().create_consumer(queue))) == ["one"]
        session.close()

    def test_no_send_by_the_listener_of_another_is_lost(
        self, session: Session, server: Server, queue: Queue, commit: Callable[[Session], object]
    ) -> None:
        producer = session.create_producer(queue)
        database = session.database
        for _ in range(20):
            database.execute(text("select 1"))
            producer.send(
                session.create_text_message("first"),
                completion_listener=lambda *_: producer.send(session.create_text_message("second")),
            )
            commit(session)
            session.commit()
        assert server.rows("select count(*) from jmsql_internal.message") == [(40,)]

    @pytest.mark.parametrize("way", ["SQLAlchemy's", "the driver's"])
    @pytest.mark.parametrize("undo", ["text", "method"])
    def test_after_lost_work_it_does_not_stand_for_the_sessions_deliveries(
        self, session: Session, server: Server, way: str, undo: str
    ) -> None:
        consumer = session.create_consumer(QUEUE)
        send(session, "one")
        session.commit()
        assert receive(consumer).jms_redelivered is False
        database, driver = session.database, driver_connection(session)
        database.execute(text("select 1"))
        if undo == "text":
            database.execute(text("rollback"))
        else:
            database.rollback()
        database.execute(text("select 1"))
        (database if way == "SQLAlchemy's" else driver).commit()
        with pytest.raises(JMSException):
            session.commit()
        session.rollback()

        message = receive(consumer)
        assert (message.jms_redelivered, message.delivery_count) == (True, 2)
        session.commit()
        assert server.rows("select count(*) from jmsql_internal.message") == [(0,)]

    def test_the_order_goes_on(
        self, connection: Connection, session: Session, queue: Queue, commit: Callable[[Session], object]
    ) -> None:
        consumer = session.create_consumer(queue)
        numbers = [str(number) for number in range(30)]
        send_texts(session, queue, *numbers)
        received = texts_of(receive(consumer) for _ in range(12))  # so that it expects many, and fetches ahead
        commit(session)
        for _ in range(3):
            received += texts_of(receive(consumer) for _ in range(2))
            session.database.execute(text("select 1"))
            received += texts_of([receive(consumer)])
            commit(session)
        received += texts_of(receive_all(consumer))
        session.commit()
        assert received == numbers
        assert texts_of(receive_all(connection.create_session().create_consumer(queue))) == []

    @pytest.mark.parametrize("end", ["close", "rollback", "commit"])
    def test_what_it_has_committed_is_no_part_of_the_next_end(
        self, session: Session, queue: Queue, server: Server, commit: Callable[[Session], object], end: str
    ) -> None:
        send_texts(session, queue, "one", "two")
        assert session.database is not None
        consumer = session.create_consumer(queue)
        received = texts_of(receive(consumer) for _ in range(2))
        session.create_producer(queue).send(session.create_text_message("three"))
        commit(session)
        assert server.rows("select text_body from jmsql_internal.message") == [("three",)]
        getattr(session, end)()
        assert received == ["one", "two"]
        assert server.rows("select text_body from jmsql_internal.message") == [("three",)]
        assert server.rows("select from jmsql_internal.delivery") == []

    def test_messages_fetched_ahead_are_free_at_once(
        self, connection: Connection, session: Session, queue: Queue, commit: Callable[[Session], object]
    ) -> None:
        consumer = session.create_consumer(queue)
        numbers = [str(number) for number in range(20)]
        send_texts(session, queue, *numbers)
        assert session.database is not None
        received = texts_of(receive(consumer) for _ in range(12))
        commit(session)
        received += texts_of(receive_all(connection.create_session().create_consumer(queue)))
        assert received == numbers
        session.commit()


@pytest.mark.parametrize("maximum_deliveries", [None, 5], ids=["no policy", "a policy"])
def test_messages_fetched_ahead_come_again_after_a_rollback_to_a_savepoint(
    session: Session, administration: Administration, maximum_deliveries: int | None
) -> None:
    queue = administration.create_queue(f"database.{uuid.uuid4()}", maximum_deliveries=maximum_deliveries)
    numbers = [str(number) for number in range(20)]
    send_texts(session, queue, *numbers)
    consumer = session.create_consumer(queue)
    savepoint = session.database.begin_nested()
    for _ in range(12):
        receive(consumer)
    savepoint.rollback()
    assert texts_of(receive_all(consumer)) == numbers


def test_a_listener_whose_transaction_was_rolled_back_goes_on(
    connection: Connection, session: Session, jmsql_factory: ConnectionFactory
) -> None:
    with connection.create_session() as sender:
        send_texts(sender, QUEUE, "one")
    told: list[tuple[str | None, bool]] = []
    done = threading.Event()

    def listen(message: Message) -> None:
        told.append((message.get_body(str), message.jms_redelivered))
        if len(told) == 1:
            session.database.rollback()
        else:
            session.commit()
            done.set()

    session.create_consumer(QUEUE).message_listener = listen
    assert done.wait(60)
    assert told == [("one", False), ("one", True)]
    session.close()
    assert texts_left(jmsql_factory, QUEUE) == []


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_an_end_that_psycopg_refuses_in_a_block_ends_nothing(session: Session, others: Session, end: str) -> None:
    connection = driver_connection(session)
    send(session, "a")
    with connection.transaction(), pytest.raises(psycopg.ProgrammingError, match="forbidden"):
        getattr(connection, end)()
    session.commit()
    assert texts_of(receive_all(others.create_consumer(QUEUE))) == ["a"]
