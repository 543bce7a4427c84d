"""What jmsql's statements name is PostgreSQL's own, whatever somebody has made in a schema on the search path."""

from __future__ import annotations

import ast
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import psycopg
import pytest
import sqlalchemy
from psycopg import sql
from typer.testing import CliRunner

import jmsql
from jmsql import AcknowledgeMode, Connection, ConnectionFactory, Queue, Session, Topic
from jmsql.admin import Administration
from jmsql.cli.application import app
from jmsql.console import Console, Level, Visitor
from jmsql.metrics import StoreCollector
from jmsql.testing import FAST_TIMINGS, receive_all, wait_for
from jmsql.xa import XAConnectionFactory
from tests.console.http import Browsing, message_paths
from tests.console.serving import served
from tests.integration.access.role_kinds import PASSWORD, roles_of_each_kind
from tests.integration.access.traps import caught, set_traps, trapping_tables

ORDERS, FAILING, LATE, PRICES = Queue("orders"), Queue("failing"), Queue("late"), Topic("prices")

SELECTORS = (
    "color = 'blue' AND weight > 2 AND JMSPriority BETWEEN 0 AND 9 OR weight * 2 + 1 >= 3.5",
    "color LIKE 'b%' OR color NOT LIKE '_x' AND JMSType IS NULL",
    "color IN ('blue', 'red') AND JMSTimestamp > 1.5 AND weight <> 0",
    "color NOT IN ('green') AND JMSMessageID <> 'ID:x' AND JMSDeliveryMode = 'PERSISTENT'",
    "weight < 9 AND -weight BETWEEN -5 AND 5.25 AND color <> 'x'",
)

COMMANDS = (
    ("queues",),
    ("subscriptions",),
    ("clients",),
    ("browse", "orders"),
    ("send", "orders", "text"),
    ("receive", "orders"),
    ("doctor",),
    ("top", "--once", "--interval", "0.1"),
    ("metrics", "--once"),
    ("dead-letters",),
    ("retry", "DLQ"),
    ("destination", "list"),
    ("destination", "show", "orders"),
    ("history", "list"),
    ("history", "days"),
    ("roles", "list"),
    ("binding", "list"),
    ("selector", "explain", "orders", "color = 'blue' and weight > 2"),
)


@pytest.fixture(scope="module")
def database(jmsql_server_url: str) -> Iterator[psycopg.Connection[Any]]:
    """The owner's connection to a database that was migrated over traps, with traps for the schema's types as well."""
    name = f"jmsql_test_traps_{secrets.token_hex(4)}"
    url = sqlalchemy.make_url(jmsql_server_url).set(database=name, drivername="postgresql")
    with psycopg.connect(jmsql_server_url, autocommit=True) as server:
        server.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        server.execute(sql.SQL("alter database {} set track_functions = 'pl'").format(sql.Identifier(name)))
        try:
            with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as database:
                assert set_traps(database)
                jmsql.migrate(url.render_as_string(hide_password=False))
                set_traps(database)
                yield database
        finally:
            server.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture(scope="module")
def url_of(database: psycopg.Connection[Any], jmsql_server_url: str) -> Iterator[Callable[[str], str]]:
    """Returns the URL with which a role of a kind connects, or the owner, who has migrated."""
    url = sqlalchemy.make_url(jmsql_server_url).set(database=database.info.dbname, drivername="postgresql")
    with roles_of_each_kind(database) as roles:

        def url_of(kind: str) -> str:
            of_role = url if kind == "owner" else url.set(username=roles[kind], password=PASSWORD)
            return of_role.render_as_string(hide_password=False)

        yield url_of


def test_traps_catch(url_of: Callable[[str], str]) -> None:
    with psycopg.connect(url_of("owner"), autocommit=True, options="-c track_functions=none") as plain:
        for statement in (
            "select hashtextextended('jmsql', 1)",
            "select has_table_privilege('pg_class'::regclass, 'select')",
            "select row_security_active('pg_class'::regclass)",
            "select pg_has_role('pg_monitor', 'usage')",
            "select starts_with(relname, 'pg') from pg_class",
            "select oid <> 1 from pg_class",
            "select '{}'::jsonb -> 'name'",
            "select jsonb_build_object('a', 1::bigint)",
            "select array_agg(relname) from pg_class",
            "select 1::bigint || ' messages'",
        ):
            with pytest.raises(psycopg.Error):
                plain.execute(statement.encode())


def test_objects_of_a_migration_use_none(database: psycopg.Connection[Any]) -> None:
    assert not caught(database)


# Prints, as Python, what jmsql has to ask PostgreSQL: each statement that is there once all of its modules are loaded.
# Those that a project of Django's configures have none.
_STATEMENTS = """
import gc, importlib, pkgutil
import jmsql
from jmsql.store.statement import Statement
from jmsql.store.wire.exchange import numbered

for module in pkgutil.walk_packages(jmsql.__path__, "jmsql."):
    if not module.name.endswith(".__main__") and not module.name.startswith("jmsql.django."):
        importlib.import_module(module.name)
statements = {each.encoded("jmsql") for each in gc.get_objects() if isinstance(each, Statement)}
print([(text, len(names)) for text, names in map(numbered, statements)])
"""


@pytest.fixture(scope="module")
def statements() -> list[tuple[bytes, int]]:
    """The statements of jmsql with the number of their parameters, from a process of its own.

    Modules that other tests have loaded, and statements that those have made, are not among them.
    """
    command = [sys.executable, "-W", "ignore", "-c", _STATEMENTS]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: list[tuple[bytes, int]] = ast.literal_eval(printed)
    return found


def test_statements_use_none(url_of: Callable[[str], str], statements: list[tuple[bytes, int]]) -> None:
    """Also those of which no other test here comes: what EXPLAIN shows is qualified if it is a trap."""
    looked_at = 0
    with psycopg.connect(url_of("owner"), autocommit=True) as plain:
        for text, count in statements:
            if text.split(None, 1)[0].lower() not in {b"select", b"insert", b"update", b"delete", b"with"}:
                continue
            nulls = f"({', '.join(['null'] * count)})" if count else ""
            try:
                plain.execute(b"prepare looked_at as " + text, prepare=False)
                plan = plain.execute(f"explain (verbose, costs off) execute looked_at{nulls}".encode()).fetchall()
            except psycopg.Error as error:
                pytest.fail(f"{error}\n{text.decode()}")
            assert "public." not in "\n".join(line for (line,) in plan), text.decode()
            plain.execute("deallocate looked_at")
            looked_at += 1
    assert looked_at > 200


@pytest.mark.parametrize("kind", ["owner", "administrator"])
def test_the_life_of_messages_meets_none(
    kind: str, url_of: Callable[[str], str], database: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    factory = ConnectionFactory(url_of(kind), timings=FAST_TIMINGS)
    with Administration(url_of(kind)) as administration, factory.create_connection() as connection:
        connection.start()
        administer(administration)
        for mode in AcknowledgeMode:
            send_and_receive(connection, mode)
        subscribe(connection)
        fail(connection, administration)
        listen(connection)
        look(administration)
    take_part(url_of(kind), temporary="")
    prepare(url_of(kind))
    for arguments in COMMANDS:
        run(url_of(kind), *arguments)
    use_console(url_of(kind))
    collector = StoreCollector(url_of(kind))
    assert list(collector.collect())
    collector.close()
    assert not caught(database)
    assert not [each for each in caplog.messages if "lacks the privilege" in each], "nor is a duty beyond its rights"


def test_sends_and_receipts_of_restricted_roles_meet_none(
    url_of: Callable[[str], str], database: psycopg.Connection[Any]
) -> None:
    url = url_of("receiver from all")
    role = sqlalchemy.make_url(url).username
    database.execute("select jmsql_internal.permit(%s, array['send', 'browse'], null)", [role])
    with (
        Administration(url_of("owner")) as administration,
        ConnectionFactory(url_of("owner"), timings=FAST_TIMINGS).create_connection(),  # which does the maintenance
        ConnectionFactory(url, timings=FAST_TIMINGS).create_connection() as connection,
    ):
        connection.start()
        administer(administration)
        for mode in AcknowledgeMode:
            send_and_receive(connection, mode)
        subscribe(connection)
        fail(connection, administration)
        listen(connection)
    take_part(url, temporary="")
    assert not caught(database)


def test_temporary_tables_hide_nothing(url_of: Callable[[str], str], database: psycopg.Connection[Any]) -> None:
    take_part(url_of("owner"), trapping_tables(database))
    assert not caught(database)


def administer(administration: Administration) -> None:
    administration.create_queue("orders")
    administration.alter("orders", history=True)
    administration.create_queue("again")
    administration.create_queue("dead")
    administration.create_queue("expired")
    administration.create_queue(
        "failing", maximum_deliveries=2, redelivery_delay=0.01, dead_letter_queue="dead", expiry_queue="expired"
    )
    administration.create_topic("prices")
    administration.pause("orders")
    administration.resume("orders")
    administration.subscribe(PRICES, "all of them", shared=True)
    administration.bind("jms/orders", ORDERS)
    assert administration.bindings()
    administration.grants(ORDERS)


def send(
    session: Session, destination: Queue | Topic, *, group: str | None = None, delay: float = 0.0, **options: Any
) -> None:
    with session.create_producer(destination) as producer:
        producer.delivery_delay = delay
        for weight in (3, 4):
            message = session.create_text_message("text" * weight)
            message.properties.update(color="blue", weight=weight)
            if group is not None:
                message.set_string_property("JMSXGroupID", group)
            producer.send(message, **options)


def send_and_receive(connection: Connection, mode: AcknowledgeMode) -> None:
    is_transacted = mode is AcknowledgeMode.TRANSACTED
    session = connection.create_session(is_transacted, mode)

    def settle(message: jmsql.Message | None) -> None:
        assert message is not None
        if is_transacted:
            session.commit()
        elif mode is AcknowledgeMode.CLIENT:
            message.acknowledge()

    grouped = Queue(f"grouped {mode.name}")
    for queue, group in ((ORDERS, None), (grouped, "a")):
        for selector in (None, *SELECTORS):
            send(session, queue, group=group, priority=5, time_to_live=60.0)
            if is_transacted:
                session.commit()
            with session.create_consumer(queue, selector) as consumer:
                received = consumer.receive(timeout=60)
                if is_transacted:
                    session.rollback()
                elif mode is AcknowledgeMode.CLIENT:
                    session.recover()
                if mode in {AcknowledgeMode.TRANSACTED, AcknowledgeMode.CLIENT}:
                    received = consumer.receive(timeout=60)
                settle(received)
            with session.create_browser(queue, selector) as browser:
                assert list(browser)
    send(session, LATE, delay=0.1)
    if is_transacted:
        session.commit()
    with session.create_consumer(LATE) as consumer:
        settle(consumer.receive(timeout=60))
    answers = session.create_temporary_queue()
    send(session, answers, delivery_mode=jmsql.DeliveryMode.NON_PERSISTENT)
    if is_transacted:
        session.commit()
    with session.create_consumer(answers) as consumer:
        settle(consumer.receive(timeout=60))
        settle(consumer.receive(timeout=60))
    session.close()


def subscribe(connection: Connection) -> None:
    session = connection.create_session()
    for number, selector in enumerate((None, *SELECTORS)):
        with session.create_shared_durable_consumer(PRICES, f"subscription {number}", selector) as consumer:
            send(session, PRICES)
            assert consumer.receive(timeout=60) is not None
        session.unsubscribe(f"subscription {number}")
    with session.create_consumer(PRICES, no_local=True) as consumer:
        send(session, PRICES, delay=0.01)
        assert consumer.receive(timeout=0.1) is None
    session.close()


def fail(connection: Connection, administration: Administration) -> None:
    session = connection.create_session(transacted=True)
    send(session, FAILING)
    session.commit()
    with session.create_consumer(FAILING) as consumer:
        for _ in range(4):
            assert consumer.receive(timeout=60) is not None
            session.rollback()
    send(session, FAILING, time_to_live=0.01)
    session.commit()
    wait_for(lambda: administration.count("dead") == 2 and administration.count("expired") == 2, 60.0)
    assert administration.dead_letters("dead")
    assert administration.retry("dead", "color = 'blue'").returned
    assert administration.move("failing", "dead", "color = 'blue'")
    assert administration.purge("dead", "weight > 1")
    assert administration.purge("expired")
    session.close()


def listen(connection: Connection) -> None:
    session = connection.create_session()
    heard: list[jmsql.Message] = []
    consumer = session.create_consumer(Queue("heard"))
    consumer.message_listener = heard.append
    other = connection.create_session()
    send(other, Queue("heard"))
    wait_for(lambda: len(heard) == 2)
    session.close()
    other.close()


def look(administration: Administration) -> None:
    assert administration.queues()
    assert administration.subscriptions()
    assert administration.clients()
    assert administration.destinations()
    message = next(administration.browse(ORDERS, SELECTORS[0])).message
    assert message.jms_message_id is not None
    assert administration.message(message.jms_message_id)
    history = administration.history
    [kept, *_] = history.messages(ORDERS)
    assert kept.message.jms_message_id is not None
    assert history.message(kept.message.jms_message_id)
    assert history.count(ORDERS, selector=SELECTORS[0])
    assert history.days()
    assert history.replay(ORDERS, Queue("again"), since=datetime.now(UTC) - timedelta(days=1), selector=SELECTORS[0])
    administration.unsubscribe("all of them")


def use_console(url: str) -> None:
    """Look at each page, with selectors too, and do what the console offers."""
    factory = ConnectionFactory(url, timings=FAST_TIMINGS)
    with factory.create_context() as context:
        for _ in range(3):
            context.create_producer(properties={"color": "blue", "weight": 3}).send(ORDERS, "text")
        context.create_producer(delivery_delay=60.0).send(ORDERS, "late")
        context.create_queue("failing")
    with served(Console(factory, access=lambda _: Visitor("owner", Level.OPERATE))) as where:
        visitor = Browsing(where)
        orders, failing = visitor.find("orders"), visitor.find("failing")
        pages = ["/", "/search", "/dead-letters", "/clients", orders, f"{orders}/history", visitor.find("prices")]
        pages += [f"{orders}?{urlencode({'selector': selector})}" for selector in SELECTORS]
        pages += message_paths(visitor.get(orders).text)
        for page in pages:
            answer = visitor.get(page)
            if answer.status != 200:
                pytest.fail(f"{page}: {answer.text}")
        assert visitor.act(f"{orders}/move", "selector=weight+%3D+3", to="failing")
        for action in ("retry", "purge", "pause", "resume"):
            assert visitor.act(f"{failing}/{action}")
        assert visitor.act(f"{orders}/purge")
        assert visitor.act(f"{orders}/send", text="x", priority="4", jms_type="")


def take_part(url: str, temporary: str) -> None:
    """Send and receive in an application's own transactions, where there may be temporary tables."""
    with ConnectionFactory(url, timings=FAST_TIMINGS).create_context() as context:
        producer = context.create_producer(properties={"color": "blue", "weight": 3})
        for _ in range(4):
            producer.send(ORDERS, "text")
    for commit in (True, False):
        with psycopg.connect(url) as application:
            if temporary:
                application.execute(temporary.encode())
            context = jmsql.enlist(application)
            producer = context.create_producer(properties={"color": "blue", "weight": 3})
            producer.send(ORDERS, "text").send(ORDERS, "more text").send(PRICES, "text")
            producer.delivery_delay = 5.0
            producer.send(ORDERS, "late")
            assert receive_all(context.create_consumer(ORDERS, SELECTORS[0]))
            (application.commit if commit else application.rollback)()
    engine = sqlalchemy.create_engine(
        sqlalchemy.make_url(url).set(drivername="postgresql+psycopg"), use_native_hstore=False
    )
    with engine.begin() as application:
        if temporary:
            application.exec_driver_sql(temporary)
        context = jmsql.enlist(application)
        context.create_producer().send(ORDERS, "text")
        assert receive_all(context.create_consumer(ORDERS))
    engine.dispose()
    with ConnectionFactory(url, timings=FAST_TIMINGS).create_connection() as connection:
        connection.start()
        session = connection.create_session(transacted=True)
        session.database.exec_driver_sql(temporary or "select")
        send(session, ORDERS)
        send(session, PRICES)
        session.commit()
        with session.create_consumer(ORDERS) as consumer:
            assert consumer.receive(timeout=60) is not None
            session.rollback()
            assert consumer.receive(timeout=60) is not None
            session.commit()


def prepare(url: str) -> None:
    with XAConnectionFactory(url, timings=FAST_TIMINGS).create_xa_connection() as connection:
        connection.start()
        session = connection.create_xa_session()
        xid = session.xid(7, secrets.token_hex(4), "messages")
        session.tpc_begin(xid)
        send(session, ORDERS)
        session.tpc_prepare()
        assert xid in session.tpc_recover()
        session.tpc_commit()


def run(url: str, *arguments: str) -> None:
    result = CliRunner().invoke(app, arguments, env={"JMSQL_URL": url}, catch_exceptions=False)
    assert result.exit_code < 2, (arguments, result.output)
