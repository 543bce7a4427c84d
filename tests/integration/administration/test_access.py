"""Roles of PostgreSQL, and what they may do with destinations."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, LiteralString

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg import sql

import jmsql.asyncio
from jmsql import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    Destination,
    JMSException,
    JMSSecurityException,
    Message,
    Queue,
    RedeliveryPolicy,
    Session,
    Topic,
    enlist,
)
from jmsql.admin import Administration, DestinationSettings, SubscriptionChange
from jmsql.domains import TopicRequestor
from jmsql.testing import receive_all, wait_for
from tests.integration.client.server import Server
from tests.texts import receive_texts, send_texts, texts_of

pytestmark = pytest.mark.usefixtures("row_security_is_off_again")

ORDERS = Queue("orders")
PRICES = Topic("prices")
PASSWORD = secrets.token_hex()

_TABLES_WITH_MESSAGES = tuple(
    f"jmsql_internal.{table}" for table in ("message", "delayed_message", "delivery", "body", "message_history")
)


@pytest.fixture(scope="module")
def roles(jmsql_url: str) -> Iterator[dict[str, str]]:
    """Roles of a random name, by what they are for."""
    suffix = secrets.token_hex(4)
    names = {kind: f"jmsql_test_{kind}_{suffix}" for kind in ("producer", "consumer", "browser", "clerk", "stranger")}
    with psycopg.connect(jmsql_url, autocommit=True) as connection:
        for name in names.values():
            connection.execute(
                sql.SQL("create role {} login password {}").format(sql.Identifier(name), sql.Literal(PASSWORD))
            )
        yield names
        for name in names.values():
            connection.execute(sql.SQL("drop owned by {}").format(sql.Identifier(name)))
            connection.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


@pytest.fixture
def url_of(jmsql_clean_url: str, roles: dict[str, str]) -> Callable[[str], str]:
    """Returns the URL with which a role connects."""
    url = sqlalchemy.make_url(jmsql_clean_url)
    return lambda kind: url.set(username=roles[kind], password=PASSWORD).render_as_string(hide_password=False)


@pytest.fixture
def connect(url_of: Callable[[str], str]) -> Iterator[Callable[[str], Connection]]:
    """Opens and starts a connection of a role."""
    with ExitStack() as stack:

        def open_one(kind: str) -> Connection:
            connection = stack.enter_context(ConnectionFactory(url_of(kind)).create_connection())
            connection.start()
            return connection

        yield open_one


Connect = Callable[[str], Connection]


@pytest.fixture
def maintained(jmsql_factory: ConnectionFactory) -> Iterator[None]:
    """A client of the owner's does the maintenance."""
    with jmsql_factory.create_connection():
        yield


@pytest.fixture
def granted(administration: Administration, roles: dict[str, str]) -> dict[str, str]:
    """The roles, after each was given access to the queue "orders" and the topic "prices", the stranger to nothing."""
    for destination in (administration.create_queue("orders"), administration.create_topic("prices")):
        administration.grant(destination, roles["producer"], send=True)
        administration.grant(destination, roles["consumer"], receive=True)
        administration.grant(destination, roles["browser"], browse=True)
    return roles


@pytest.fixture
def members(administration: Administration, roles: dict[str, str], server: Server) -> Iterator[dict[str, str]]:
    """The roles, each a member of the role that has access to all destinations."""
    administration.create_roles()
    for kind in ("producer", "consumer", "browser"):
        server.rows(f"grant jmsql_{kind} to {roles[kind]}")
    server.rows(f"grant jmsql_admin to {roles['clerk']}")
    yield roles
    for kind in ("producer", "consumer", "browser"):
        server.rows(f"revoke jmsql_{kind} from {roles[kind]}")
    server.rows(f"revoke jmsql_admin from {roles['clerk']}")


class TestOfCounters:
    """The counts and consumers that a client of a role records."""

    @pytest.fixture
    def others(self, administration: Administration, granted: dict[str, str]) -> Queue:
        """Another queue, to which the producer may send, and from which the consumer may receive."""
        other = administration.create_queue("other")
        administration.grant(other, granted["producer"], send=True)
        administration.grant(other, granted["consumer"], receive=True)
        return other

    @staticmethod
    def sent(server: Server) -> dict[str, int]:
        return dict(server.rows("select destination, sent from jmsql.counters where sent > 0"))

    def test_are_recorded_after_access_to_another_destination_is_gone(
        self,
        granted: dict[str, str],
        others: Queue,
        connect: Connect,
        administration: Administration,
        server: Server,
        jmsql_clean_url: str,
    ) -> None:
        producing = connect("producer")
        session = producing.create_session()
        with psycopg.connect(jmsql_clean_url) as database:
            database.execute("lock table jmsql_internal.destination_counters in exclusive mode")
            send_texts(session, ORDERS, "a")
            send_texts(session, others, "b")
            administration.revoke(others, granted["producer"], send=True)
        producing.close()
        assert self.sent(server) == {"orders": 1}

    def test_are_recorded_though_a_role_has_set_them_to_the_highest_number(
        self, granted: dict[str, str], others: Queue, connect: Connect, url_of: Callable[[str], str], server: Server
    ) -> None:
        url = sqlalchemy.make_url(url_of("consumer")).set(drivername="postgresql")
        with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as attacker:
            attacker.execute(
                "insert into jmsql_internal.destination_counters (destination_id, sent, waited) "
                "select queue_id, 1e15, 1e30 from jmsql_internal.queue where name = 'orders'"
            )
        producing = connect("producer")
        session = producing.create_session()
        send_texts(session, ORDERS, "a")
        send_texts(session, others, "b")
        producing.close()
        assert self.sent(server) == {"orders": 10**15, "other": 1}

    def test_consumers_are_recorded_after_access_to_another_queue_is_gone(
        self, granted: dict[str, str], others: Queue, connect: Connect, administration: Administration, server: Server
    ) -> None:
        listed: LiteralString = "select queue, selector from jmsql.consumers order by selector nulls first, queue"
        session = connect("consumer").create_session()
        consumers = [session.create_consumer(each) for each in (ORDERS, others)]
        wait_for(lambda: server.rows(listed) == [("orders", None), ("other", None)])
        administration.revoke(others, granted["consumer"], receive=True)
        consumers.append(session.create_consumer(ORDERS, "a = 1"))
        wait_for(lambda: server.rows(listed) == [("orders", None), ("orders", "a = 1")])


class TestOnDestinations:
    def test_a_producer_sends_and_reads_nothing(
        self, granted: dict[str, str], connect: Connect, session: Session, url_of: Callable[[str], str]
    ) -> None:
        kept = session.create_shared_durable_consumer(PRICES, "kept")
        producing = connect("producer")
        for transacted in (False, True):
            its_session = producing.create_session(transacted)
            send_texts(its_session, ORDERS, "a", "b")
            send_texts(its_session, PRICES, "x" * 3000)
        its_session = producing.create_session()
        its_session.create_producer(ORDERS).delivery_delay = 60
        with its_session.create_producer(ORDERS) as later:
            later.delivery_delay = 60
            later.send(its_session.create_text_message("later"))
        with pytest.raises(JMSSecurityException, match=r'may not receive from the queue "orders".*destination grant'):
            its_session.create_consumer(ORDERS)
        with pytest.raises(JMSSecurityException, match="browse"):
            its_session.create_browser(ORDERS)
        with pytest.raises(JMSSecurityException):
            its_session.create_consumer(PRICES)
        with psycopg.connect(url_of("producer"), autocommit=True) as plain:
            for relation in (*_TABLES_WITH_MESSAGES, "jmsql.messages", "jmsql.history"):
                assert plain.execute(f"select * from {relation}".encode()).fetchall() == []
            assert plain.execute("select sum(ready) from jmsql.queues").fetchone() == (0,)
            assert plain.execute("select sum(ready) from jmsql.subscriptions").fetchone() == (0,)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                plain.execute("delete from jmsql_internal.message")
        assert texts_of(receive_all(session.create_consumer(ORDERS))) == ["a", "b"] * 2
        assert receive_texts(kept, 2) == ["x" * 3000] * 2
        kept.close()

    @pytest.mark.parametrize("mode", list(AcknowledgeMode))
    def test_a_consumer_receives_and_does_not_send(
        self, granted: dict[str, str], connect: Connect, session: Session, mode: AcknowledgeMode
    ) -> None:
        its_session = connect("consumer").create_session(mode is AcknowledgeMode.TRANSACTED, mode)
        subscriber = its_session.create_consumer(PRICES)
        send_texts(session, ORDERS, "a", "b")
        send_texts(session, PRICES, "x" * 3000)
        consumer = its_session.create_consumer(ORDERS)
        assert receive_texts(consumer, 2) == ["a", "b"]
        [price] = receive_all(subscriber)
        assert price.get_body(str) == "x" * 3000
        if its_session.transacted:
            its_session.commit()
        price.acknowledge()
        for destination in (ORDERS, PRICES):
            with pytest.raises(JMSException, match=_refusal_of(granted["consumer"], destination)) as refusal:
                send_texts(its_session, destination, "c")
            assert isinstance(refusal.value, JMSSecurityException) or its_session.transacted

    def test_a_browser_sees_and_takes_nothing(
        self, granted: dict[str, str], connect: Connect, session: Session, url_of: Callable[[str], str]
    ) -> None:
        send_texts(session, ORDERS, "a")
        its_session = connect("browser").create_session()
        assert texts_of(its_session.create_browser(ORDERS)) == ["a"]
        with pytest.raises(JMSSecurityException, match="may not receive"):
            its_session.create_consumer(ORDERS)
        with pytest.raises(JMSSecurityException):
            send_texts(its_session, ORDERS, "b")
        with psycopg.connect(url_of("browser"), autocommit=True) as plain:
            assert plain.execute("select queue, body from jmsql.messages").fetchall() == [("orders", "a")]
            for statement in (
                "delete from jmsql_internal.message",
                "select from jmsql_internal.message for update",
                "update jmsql_internal.message set text_body = 'b'",
                "insert into jmsql_internal.delivery (queue_id, inverse_priority, sequence) values (1, 5, 1)",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    plain.execute(statement.encode())
        assert texts_of(receive_all(session.create_consumer(ORDERS))) == ["a"]

    def test_a_stranger_can_do_nothing(
        self, granted: dict[str, str], session: Session, url_of: Callable[[str], str]
    ) -> None:
        send_texts(session, ORDERS, "a")
        with pytest.raises(JMSSecurityException):
            ConnectionFactory(url_of("stranger")).create_connection()
        with psycopg.connect(url_of("stranger"), autocommit=True) as plain:
            for (relation,) in plain.execute(
                "select format('%I.%I', n.nspname, c.relname) from pg_class c join pg_namespace n "
                "on n.oid = c.relnamespace "
                "where n.nspname in ('jmsql', 'jmsql_internal') and c.relkind in ('r', 'v', 'p', 'S')"
            ).fetchall():
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    plain.execute(f"select * from {relation}".encode())
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                plain.execute("select jmsql.create_queue('mine')")

    def test_other_destinations_stay_closed(
        self, granted: dict[str, str], connect: Connect, session: Session, url_of: Callable[[str], str]
    ) -> None:
        secret, secrets_topic = Queue("secret"), Topic("secrets")
        kept = session.create_shared_durable_consumer(secrets_topic, "kept")
        send_texts(session, secret, "hidden")
        send_texts(session, secrets_topic, "x" * 3000)
        for kind in ("consumer", "browser"):
            with psycopg.connect(url_of(kind), autocommit=True) as plain:
                for relation in _TABLES_WITH_MESSAGES:
                    assert plain.execute(f"select * from {relation}".encode()).fetchall() == []
                assert plain.execute("select * from jmsql.messages").fetchall() == []
                assert plain.execute("select sum(ready) from jmsql.queues").fetchone() == (0,)
        with psycopg.connect(url_of("consumer"), autocommit=True) as plain:
            assert plain.execute("update jmsql_internal.subscription set ended = true").rowcount == 0
            assert plain.execute("update jmsql_internal.queue set connection_id = null").rowcount == 0
            for statement in (
                "delete from jmsql_internal.message",
                "delete from jmsql_internal.subscription",
                "update jmsql_internal.queue set deleted_at = now()",
                "update jmsql_internal.queue set paused = true",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    plain.execute(statement.encode())
        producing, consuming = connect("producer").create_session(), connect("consumer").create_session()
        for destination in (secret, secrets_topic):
            with pytest.raises(JMSSecurityException):
                send_texts(producing, destination, "mine")
            with pytest.raises(JMSSecurityException):
                consuming.create_consumer(destination)
        with pytest.raises(JMSSecurityException):
            consuming.create_shared_durable_consumer(secrets_topic, "kept")
        with pytest.raises(JMSSecurityException):
            consuming.create_shared_durable_consumer(PRICES, "kept")
        assert texts_of(receive_all(session.create_consumer(secret))) == ["hidden"]
        assert texts_of(receive_all(kept)) == ["x" * 3000]
        kept.close()
        with pytest.raises(JMSSecurityException):
            consuming.unsubscribe("kept")
        session.unsubscribe("kept")

    def test_a_message_cannot_be_changed(
        self, granted: dict[str, str], session: Session, url_of: Callable[[str], str]
    ) -> None:
        send_texts(session, ORDERS, "a")
        with psycopg.connect(url_of("consumer"), autocommit=True) as plain:
            for change in ("transaction_id = '1'", "text_body = 'b'"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    plain.execute(f"update jmsql_internal.message set {change}".encode())

    def test_durable_subscriptions_come_and_go(
        self, granted: dict[str, str], connect: Connect, session: Session
    ) -> None:
        consuming = connect("consumer").create_session()
        consuming.create_shared_durable_consumer(PRICES, "audit").close()
        send_texts(session, PRICES, "a")
        with consuming.create_shared_durable_consumer(PRICES, "audit") as consumer:
            assert receive_texts(consumer, 1) == ["a"]
        consuming.create_shared_durable_consumer(PRICES, "audit", "weight > 1").close()
        consuming.unsubscribe("audit")

    def test_a_consumer_keeps_messages_collected_with_another_selector(
        self, granted: dict[str, str], connect: Connect, session: Session
    ) -> None:
        consuming = connect("consumer").create_session()
        consuming.create_shared_durable_consumer(PRICES, "audit", "weight is null").close()
        send_texts(session, PRICES, "collected")
        keep = SubscriptionChange.KEEP
        with consuming.create_shared_durable_consumer(PRICES, "audit", "weight > 1", if_changed=keep) as consumer:
            send_texts(session, PRICES, "not chosen")
            assert texts_of(receive_all(consumer)) == ["collected"]
        consuming.unsubscribe("audit")

    def test_revoking(self, granted: dict[str, str], administration: Administration, connect: Connect) -> None:
        producing = connect("producer").create_session()
        send_texts(producing, ORDERS, "a")
        administration.revoke(ORDERS, granted["producer"], send=True)
        with pytest.raises(JMSSecurityException):
            send_texts(producing, ORDERS, "b")
        send_texts(producing, PRICES, "c")
        administration.revoke(PRICES, granted["producer"], send=True)
        assert [each for each in administration.grants() if each.role == granted["producer"]] == []
        with pytest.raises(JMSSecurityException):
            connect("producer")

    def test_giving_and_taking_no_access_is_refused(
        self, granted: dict[str, str], administration: Administration, server: Server
    ) -> None:
        role = granted["producer"]
        for change in (administration.grant, administration.revoke):
            with pytest.raises(ValueError, match="Expected one or several of send=True, receive=True and browse=True"):
                change(ORDERS, role)
        for call in ("grant_access('orders', '{}', variadic '{{}}')", "revoke_access('orders', '{}', variadic '{{}}')"):
            with pytest.raises(psycopg.DatabaseError, match="one or several of send, receive and browse") as refusal:
                server.rows(f"select jmsql.{call.format(role)}")
            assert refusal.value.sqlstate == "JMS03"
        with pytest.raises(psycopg.DatabaseError, match="got sned"):
            server.rows(f"select jmsql.revoke_access('orders', '{role}', 'sned')")
        assert [each.send for each in administration.grants(ORDERS) if each.role == role] == [True]

    def test_grants_are_shown(self, granted: dict[str, str], administration: Administration) -> None:
        shown = administration.grants("topic://prices")
        assert {(each.role, each.send, each.receive, each.browse) for each in shown} == {
            (granted["producer"], True, False, False),
            (granted["consumer"], False, True, True),
            (granted["browser"], False, False, True),
        }
        assert [each.destination for each in administration.grants()] == ["prices"] * 3 + ["orders"] * 3 or len(
            administration.grants()
        ) == 6


class TestEverywhere:
    def test_members_have_access_to_all_and_make_destinations(self, members: dict[str, str], connect: Connect) -> None:
        producing, consuming = connect("producer").create_session(), connect("consumer").create_session()
        send_texts(producing, ORDERS, "a")
        assert texts_of(connect("browser").create_session().create_browser(ORDERS)) == ["a"]
        assert receive_texts(consuming.create_consumer(ORDERS), 1) == ["a"]
        subscriber = consuming.create_consumer(PRICES)
        send_texts(producing, PRICES, "b")
        assert receive_texts(subscriber, 1) == ["b"]
        with pytest.raises(JMSSecurityException):
            producing.create_consumer(ORDERS)
        with pytest.raises(JMSSecurityException):
            send_texts(consuming, ORDERS, "c")

    def test_administrators_administer(
        self, members: dict[str, str], url_of: Callable[[str], str], connect: Connect
    ) -> None:
        with Administration(url_of("clerk")) as administration:
            administration.create_queue("orders", paused=True)
            administration.grant("orders", members["stranger"], send=True)
            send_texts(connect("stranger").create_session(), ORDERS, "a")
            administration.resume("orders")
            assert administration.count("orders") == 1
            assert administration.purge("orders") == 1
            administration.revoke("orders", members["stranger"], send=True)
            administration.delete("orders")

    def test_others_do_not(
        self, members: dict[str, str], administration: Administration, url_of: Callable[[str], str]
    ) -> None:
        administration.create_queue("orders")
        with Administration(url_of("consumer")) as clerks:
            for forbidden in (
                lambda: clerks.grant("orders", members["consumer"], send=True),
                lambda: clerks.revoke("orders", members["consumer"], receive=True),
                lambda: clerks.create_queue("others", paused=True),
                lambda: clerks.pause("orders"),
                lambda: clerks.delete("orders"),
                clerks.create_roles,
            ):
                with pytest.raises(JMSSecurityException):
                    forbidden()
        assert [each.settings for each in administration.destinations() if each.destination == "orders"] == [{}]

    def test_making_the_roles_again_changes_nothing(
        self, members: dict[str, str], administration: Administration
    ) -> None:
        before = administration.grants()
        assert administration.create_roles() == []
        assert administration.grants() == before
        assert [(each.role, each.destination) for each in before] == [
            (f"jmsql_{kind}", None) for kind in ("admin", "browser", "consumer", "producer")
        ]


def test_requests_and_replies(granted: dict[str, str], connect: Connect, server: Server) -> None:
    """The temporary destination for the reply belongs to the requestor; who has the request may send there."""
    answering, asking = connect("consumer"), connect("producer")
    session = answering.create_session()
    consumer = session.create_consumer(PRICES)

    def answer(request: object) -> None:
        destination = request.jms_reply_to  # type: ignore[attr-defined]
        session.create_producer(destination).send(session.create_text_message("17.5"))

    consumer.message_listener = answer
    with TopicRequestor(asking.create_session(), PRICES) as requestor:
        reply = requestor.request(session.create_text_message("?"), timeout=60)
    assert reply is not None
    assert reply.get_body(str) == "17.5"
    asking.close()
    wait_for(lambda: server.rows("select count(*) from jmsql_internal.topic where connection_id is not null") == [(0,)])


def test_dead_letters_go_where_the_role_may_not_send(
    granted: dict[str, str],
    administration: Administration,
    connect: Connect,
    session: Session,
    url_of: Callable[[str], str],
) -> None:
    dead, elsewhere = administration.create_queue("dead"), administration.create_queue("elsewhere")
    administration.alter(ORDERS, maximum_deliveries=1, dead_letter_queue=dead)
    send_texts(session, ORDERS, "a")
    consuming = connect("consumer").create_session(transacted=True)
    assert receive_texts(consuming.create_consumer(ORDERS), 1) == ["a"]
    consuming.rollback()
    assert receive_texts(session.create_consumer(dead), 1) == ["a"]
    send_texts(session, ORDERS, "b")
    mark_exhausted = """
        insert into jmsql_internal.delivery (queue_id, inverse_priority, sequence, dead_letter_queue_id)
        select m.queue_id, m.inverse_priority, m.sequence, q.queue_id
        from jmsql_internal.message m, jmsql_internal.queue q
        where q.name = %s"""
    with psycopg.connect(url_of("consumer"), autocommit=True) as plain:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            plain.execute(mark_exhausted, (elsewhere.name,))
        assert plain.execute(mark_exhausted, (dead.name,)).rowcount == 1


def test_the_first_grant_survives_a_deadlock(
    administration: Administration, roles: dict[str, str], server: Server, jmsql_clean_url: str
) -> None:
    """It locks the tables of messages and of queues, one after the other."""
    administration.create_queue("orders")
    with psycopg.connect(jmsql_clean_url) as other, ThreadPoolExecutor() as threads:
        unprotect(other)
        other.execute("set deadlock_timeout = '1min'")  # the other one is ended
        other.execute("lock table jmsql_internal.queue in row exclusive mode")
        granting = threads.submit(administration.grant, ORDERS, roles["consumer"], receive=True)
        wait_for(lambda: server.rows("select from pg_locks where not granted and mode = 'AccessExclusiveLock'"))
        other.execute("lock table jmsql_internal.message in row exclusive mode")
        other.commit()
        granting.result(60)
    assert [summary.role for summary in administration.grants(ORDERS)] == [roles["consumer"]]


WAITING_FOR_TABLES = """
    select from pg_locks where not granted and mode = 'AccessExclusiveLock' and relation is not null"""


def test_the_first_grant_holds_up_no_session_while_a_transaction_stays_open(
    administration: Administration, roles: dict[str, str], jmsql_factory: ConnectionFactory, server: Server
) -> None:
    administration.create_queue("orders")
    assert jmsql_factory.url is not None
    with psycopg.connect(jmsql_factory.url) as owner:
        unprotect(owner)
    with (
        ThreadPoolExecutor() as threads,
        jmsql_factory.create_connection() as connection,
        jmsql_factory.create_context() as other,
    ):
        long = connection.create_session(transacted=True)
        long.create_producer(ORDERS).send(long.create_text_message("the first"))
        long.database.execute(sqlalchemy.text("select 1"))  # the message is inserted by now
        granting = threads.submit(administration.grant, ORDERS, roles["consumer"], receive=True)
        producer, consumer = other.create_producer(), other.create_consumer(ORDERS)
        attempts, waited = 0, False
        while attempts < 3:  # a grant that kept its place in the queue for the lock would stop this loop
            producer.send(ORDERS, "another")
            assert consumer.receive_body(str, timeout=60) == "another"
            waits = server.rows(WAITING_FOR_TABLES) != []
            attempts += waited and not waits
            waited = waits
        assert not granting.done()
        long.commit()
        granting.result(60)
    assert [summary.role for summary in administration.grants(ORDERS)] == [roles["consumer"]]
    assert server.rows("select relrowsecurity from pg_class where oid = 'jmsql_internal.message'::regclass") == [
        (True,)
    ]


def test_the_first_grant_names_the_table_that_is_locked(server: Server, jmsql_clean_url: str) -> None:
    with psycopg.connect(jmsql_clean_url) as other:
        unprotect(other)
        other.execute("lock table jmsql_internal.message in row exclusive mode")
        with pytest.raises(psycopg.Error, match=r"locks the table jmsql_internal\.message") as caught:
            server.rows("select jmsql_internal.enable_row_security('300 ms')")
    assert caught.value.sqlstate == "JMS03"
    assert server.rows("select relname from pg_class where relrowsecurity and relname = 'queue'") == []


def unprotect(connection: psycopg.Connection[Any]) -> None:
    """Leave some tables as before any grant."""
    for table in ("queue", "message"):
        connection.execute(f"alter table jmsql_internal.{table} disable row level security".encode())
    connection.commit()


POLICIES: dict[str, tuple[DestinationSettings, RedeliveryPolicy | None]] = {
    "of the queue, without a dead-letter queue": ({"maximum_deliveries": 2}, None),
    "of the queue, with one": ({"maximum_deliveries": 2, "dead_letter_queue": "dead"}, None),
    "of the queue, with a delay": ({"maximum_deliveries": 2, "redelivery_delay": 0.01}, None),
    "of the consumer": ({}, RedeliveryPolicy(2)),
    "of the consumer, with a delay": ({}, RedeliveryPolicy(2, 0.01)),
}


@pytest.mark.parametrize("is_member", [False, True], ids=["granted the queue", "member"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_receiving_role_gets_rid_of_poison(
    policy: str,
    is_member: bool,
    request: pytest.FixtureRequest,
    administration: Administration,
    connect: Connect,
    session: Session,
    caplog: pytest.LogCaptureFixture,
) -> None:
    request.getfixturevalue("members" if is_member else "granted")
    settings, own = POLICIES[policy]
    for name in ("dead", "DLQ"):  # which a migration makes, too
        administration.create_queue(name)
    consuming = connect("consumer")
    for mode in AcknowledgeMode:
        queue = administration.create_queue("orders")
        administration.alter(queue, **settings)
        send_texts(session, queue, mode.name)
        its_session = consuming.create_session(mode is AcknowledgeMode.TRANSACTED, mode)
        consumer = its_session.create_consumer(queue)
        consumer.redelivery_policy = own
        if mode in {AcknowledgeMode.TRANSACTED, AcknowledgeMode.CLIENT}:
            for _ in range(2):
                assert consumer.receive(timeout=60.0) is not None
                (its_session.rollback if mode is AcknowledgeMode.TRANSACTED else its_session.recover)()
        else:
            consumer.message_listener = _fail
        dead = session.create_consumer(Queue("dead" if "dead_letter_queue" in settings else "DLQ"))
        assert receive_texts(dead, 1) == [mode.name]
        dead.close()
        its_session.close()
        assert administration.count(queue) == 0
    assert "row-level security" not in caplog.text


@pytest.mark.parametrize("is_member", [False, True], ids=["granted the queue", "member"])
def test_a_receiving_role_names_no_other_dead_letter_queue(
    is_member: bool, request: pytest.FixtureRequest, administration: Administration, connect: Connect
) -> None:
    """Its messages would be refused there, and come again for ever."""
    request.getfixturevalue("members" if is_member else "granted")
    for name in ("dead", "elsewhere", "orders"):
        administration.create_queue(name)
    administration.alter(ORDERS, maximum_deliveries=5, dead_letter_queue="dead")
    consumer = connect("consumer").create_session().create_consumer(ORDERS)
    with pytest.raises(JMSSecurityException, match="may not send to 'elsewhere'"):
        consumer.redelivery_policy = RedeliveryPolicy(2, dead_letter_queue="elsewhere")
    with pytest.raises(JMSSecurityException, match="may not send to 'elsewhere'"):
        consumer.default_redelivery_policy = RedeliveryPolicy(2, dead_letter_queue="elsewhere")
    consumer.redelivery_policy = RedeliveryPolicy(2, dead_letter_queue="dead")


def _fail(_: object) -> None:
    raise RuntimeError("poison")


def _refusal_of(role: str, destination: Destination) -> str:
    kind = "topic" if isinstance(destination, Topic) else "queue"
    return rf'jmsql destination grant.*the role "{role}" may not send to the {kind} "{destination.name}"'


class TestOfRefusedSends:
    """The error of a send without access names the role, the destination, and the remedy."""

    @pytest.fixture
    def secret(self, administration: Administration, granted: dict[str, str]) -> Queue:
        """A queue to which no role may send."""
        return administration.create_queue("secret")

    @pytest.fixture
    def refused(self, granted: dict[str, str], secret: Queue) -> str:
        """Pattern of the error."""
        return _refusal_of(granted["producer"], secret)

    def test_in_a_batch_with_permitted_ones(self, connect: Connect, secret: Queue, refused: str) -> None:
        session = connect("producer").create_session(transacted=True)
        producer = session.create_producer()
        for destination in (ORDERS, PRICES, secret, ORDERS):
            producer.send(session.create_text_message("a"), destination=destination)
        with pytest.raises(JMSException, match=refused):
            session.commit()

    def test_of_delayed_messages(self, connect: Connect, secret: Queue, refused: str) -> None:
        session = connect("producer").create_session()
        producer = session.create_producer(secret)
        producer.delivery_delay = 60
        with pytest.raises(JMSSecurityException, match=refused):
            producer.send(session.create_text_message("a"))

    def test_of_asynchronous_sends(self, connect: Connect, secret: Queue, refused: str) -> None:
        session = connect("producer").create_session()
        outcomes: list[Exception | None] = []
        with session.create_producer(secret) as producer:
            message = session.create_text_message("a")
            producer.send(message, completion_listener=lambda _, error: outcomes.append(error))
        [error] = outcomes
        with pytest.raises(JMSSecurityException, match=refused):
            raise error or AssertionError

    def test_before_a_statement_of_the_application(self, connect: Connect, secret: Queue, refused: str) -> None:
        session = connect("producer").create_session(transacted=True)
        database = session.database
        session.create_producer(secret).send(session.create_text_message("a"))
        with pytest.raises(JMSSecurityException, match=refused):
            database.execute(sqlalchemy.text("select 1"))

    def test_in_enlisted_transactions(self, url_of: Callable[[str], str], secret: Queue, refused: str) -> None:
        with psycopg.connect(url_of("producer")) as transaction, pytest.raises(JMSSecurityException, match=refused):
            enlist(transaction).create_producer().send(secret, "a")

    def test_of_many_messages(self, connect: Connect, secret: Queue, refused: str) -> None:
        session = connect("producer").create_session(transacted=True)
        with pytest.raises(JMSException, match=refused):
            send_texts(session, secret, *"a" * 100)

    def test_of_the_end_of_a_batch(self, connect: Connect, secret: Queue, refused: str) -> None:
        with pytest.raises(JMSSecurityException, match=refused), jmsql.batch(connect("producer"), "b", on_end=secret):
            pass

    @pytest.mark.parametrize("transacted", [False, True])
    @pytest.mark.parametrize("number", [1, 2])
    @pytest.mark.parametrize("destination", [ORDERS, PRICES])
    def test_of_a_role_that_only_browses(
        self, connect: Connect, granted: dict[str, str], transacted: bool, number: int, destination: Destination
    ) -> None:
        """It has no privilege at all to insert, which PostgreSQL checks before any policy."""
        kind = "topic" if isinstance(destination, Topic) else "queue"
        named = rf'sending to the {kind} "{destination.name}" as the role "{granted["browser"]}": .*destination grant'
        named = named.replace("sending", "(sending|publishing)")
        session = connect("browser").create_session(transacted)
        with pytest.raises(JMSException, match=named):
            send_texts(session, destination, *"ab"[:number])

    def test_of_a_role_that_only_browses_in_an_enlisted_transaction(
        self, url_of: Callable[[str], str], granted: dict[str, str]
    ) -> None:
        named = f'sending to the queue "orders" as the role "{granted["browser"]}"'
        with psycopg.connect(url_of("browser")) as transaction, pytest.raises(JMSSecurityException, match=named):
            enlist(transaction).create_producer().send(ORDERS, "a")

    def test_in_sql(self, url_of: Callable[[str], str], granted: dict[str, str], secret: Queue) -> None:
        named = f'role "{granted["producer"]}" may not send to '
        with psycopg.connect(url_of("producer"), autocommit=True) as plain:
            with pytest.raises(psycopg.Error, match=f'{named}"secret"'):
                plain.execute("select jmsql.send('secret', 'a')")
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match=f'{named}the queue "secret"'):
                plain.execute(
                    "insert into jmsql_internal.message (queue_id, inverse_priority, jms_message_id, "
                    "jms_delivery_mode, message_type) select queue_id, 5, gen_random_uuid(), 2, 'Message' "
                    "from jmsql_internal.queue where name = 'secret'"
                )

    @pytest.mark.usefixtures("granted")
    @pytest.mark.parametrize("misspelt", [Queue("odrers"), Topic("pirces")], ids=str)
    def test_of_a_misspelt_name(self, connect: Connect, misspelt: Destination) -> None:
        session = connect("producer").create_session()
        with pytest.raises(JMSException, match=f"There is no .*'{misspelt.name}'.*jmsql destination create"):
            send_texts(session, misspelt, "a")


@pytest.mark.usefixtures("maintained")
@pytest.mark.parametrize("mode", list(AcknowledgeMode))
def test_one_right_suffices_for_a_whole_life_of_messages(
    mode: AcknowledgeMode,
    granted: dict[str, str],
    administration: Administration,
    connect: Connect,
) -> None:
    """One role sends, one receives what is plain, late, in groups, in the history, expired or dead, one browses."""
    for name in ("dead", "expired"):
        administration.grant(administration.create_queue(name), granted["consumer"], receive=True)
    administration.alter(ORDERS, history=True, expiry_queue="expired", maximum_deliveries=2, dead_letter_queue="dead")
    is_transacted = mode is AcknowledgeMode.TRANSACTED
    sending = connect("producer").create_session(is_transacted, mode)
    receiving = connect("consumer").create_session(is_transacted, mode)
    reply_to = sending.create_temporary_queue()
    with sending.create_producer(ORDERS) as producer:
        for text, delay, time_to_live in (("plain", 0.0, 0.0), ("late", 0.05, 0.0), ("expired", 0.0, 0.01)):
            producer.delivery_delay = delay
            for group in (None, "group"):
                message = sending.create_text_message(text)
                message.jms_reply_to = reply_to
                if group is not None:
                    message.set_string_property("JMSXGroupID", group)
                producer.send(message, time_to_live=time_to_live)
    if is_transacted:
        sending.commit()
    browser = connect("browser").create_session().create_browser(ORDERS)
    assert {"plain"} <= set(texts_of(browser)) <= {"plain", "late"}

    consumer = receiving.create_consumer(ORDERS)
    received = [_kept(receiving, consumer.receive(timeout=60.0)) for _ in range(4)]
    assert sorted(texts_of(received)) == ["late", "late", "plain", "plain"]
    expired = receiving.create_consumer(Queue("expired"))
    assert [_kept(receiving, expired.receive(timeout=60.0)).get_body(str) for _ in range(2)] == ["expired"] * 2
    with receiving.create_producer(received[0].jms_reply_to) as replies:
        replies.send(receiving.create_text_message("reply"))
    if is_transacted:
        receiving.commit()
    assert receive_texts(sending.create_consumer(reply_to), 1) == ["reply"]
    if mode in {AcknowledgeMode.TRANSACTED, AcknowledgeMode.CLIENT}:
        send_texts(sending, ORDERS, "poison")
        if is_transacted:
            sending.commit()
        for _ in range(2):
            assert consumer.receive(timeout=60.0) is not None
            (receiving.rollback if is_transacted else receiving.recover)()
        assert receive_texts(receiving.create_consumer(Queue("dead")), 1) == ["poison"]
    receiving.close()
    wait_for(lambda: administration.history.count(ORDERS) >= 4)

    with pytest.raises(JMSSecurityException):
        sending.create_consumer(ORDERS)


def _kept(session: Session, message: Message | None) -> Message:
    """Settle a message that has been received, and return it."""
    assert message is not None
    if session.transacted:
        session.commit()
    elif session.acknowledge_mode is AcknowledgeMode.CLIENT:
        message.acknowledge()
    return message


def test_a_transaction_of_the_callers(granted: dict[str, str], session: Session, url_of: Callable[[str], str]) -> None:
    with psycopg.connect(url_of("producer")) as plain:
        enlist(plain).create_producer().send(ORDERS, "a")
        with pytest.raises(JMSSecurityException):
            enlist(plain).create_consumer(ORDERS)
    with psycopg.connect(url_of("producer")) as plain:
        enlist(plain).create_producer().send(ORDERS, "b")
    with psycopg.connect(url_of("consumer")) as plain:
        received = enlist(plain).create_consumer(ORDERS).receive(timeout=0)
        assert received is not None
        assert received.get_body(str) == "b"


async def test_a_transaction_of_the_callers_on_asyncpg(granted: dict[str, str], url_of: Callable[[str], str]) -> None:
    producer, consumer = [await asyncpg.connect(url_of(kind)) for kind in ("producer", "consumer")]
    try:
        await jmsql.asyncio.enlist(producer).create_producer().send(ORDERS, "a")
        with pytest.raises(JMSSecurityException):
            await jmsql.asyncio.enlist(producer).create_consumer(ORDERS)
        async with jmsql.asyncio.enlist(consumer).create_consumer(ORDERS) as consuming:
            received = await consuming.receive(timeout=0)
            assert received is not None
            assert received.get_body(str) == "a"
            assert await consuming.receive(timeout=0) is None
    finally:
        await producer.close()
        await consumer.close()


def test_maintenance_is_left_to_roles_that_see_everything(
    granted: dict[str, str], connect: Connect, connection: Connection, jmsql_clean_url: str, server: Server
) -> None:
    connection.close()
    restricted = connect("consumer").create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    wait_for(lambda: server.rows("select count(*) from jmsql_internal.connection") == [(1,)])
    with ConnectionFactory(jmsql_clean_url).create_connection() as owners:
        sending = owners.create_session()
        with sending.create_producer(ORDERS) as producer:
            producer.send(sending.create_text_message("late"), time_to_live=0.01)
            producer.delivery_delay = 0.1
            producer.send(sending.create_text_message("later"))
        assert receive_texts(restricted.create_consumer(ORDERS), 1) == ["later"]
        wait_for(lambda: server.rows("select text_body from jmsql_internal.message") == [("later",)])


def test_all_views_have_the_rights_of_the_asking_role(server: Server) -> None:
    """With their owner's, they would show what policies hide."""
    assert (
        server.rows(
            "select relname from pg_class where relnamespace = 'jmsql'::regnamespace and relkind = 'v' "
            "and not coalesce('security_invoker=true' = any(reloptions), false)"
        )
        == []
    )


def test_all_tables_are_protected_or_known_not_to_need_it(granted: dict[str, str], server: Server) -> None:
    open_tables = {"schema_version", "configuration", "binding", "permission", "grouped_queue", "leadership"}
    open_tables |= {"removal"}  # which nothing is ever in
    open_tables |= {"access_list", "noted_counters"}  # on which nobody has any privilege
    # None but administrators have any privilege on these.
    open_tables |= {
        "batch_check",
        "coalescing",
        "deduplication",
        "pending_transaction",
        "schedule",
        "spark_staging",
        "spark_write",
    }
    open_tables |= {"spark_source", "spark_batch", "spark_cursor", "maintenance_task"}
    unprotected = server.rows(
        "select relname from pg_class where not relispartition and not relrowsecurity and relkind in ('r', 'p') "
        "and relnamespace in ('jmsql'::regnamespace, 'jmsql_internal'::regnamespace)"
    )
    assert {name for (name,) in unprotected} == open_tables
