"""Messages that handlers fail with: they wait, others go on, and at last they are dead letters."""

from __future__ import annotations

import re

import psycopg
import pytest
import sqlalchemy

from jmsql import ConnectionFactory
from jmsql.testing import wait_for
from tests.integration.access.role_kinds import PASSWORD, roles_of_each_kind
from tests.integration.worker.conftest import PATIENCE, StartWorker, WorkerDatabase
from tests.integration.worker.test_handlers import send
from tests.unreadable_messages import READABLE, UNREADABLE, store_unreadable

DEAD = "select original_destination, reason, deliveries, body from jmsql.dead_letters"


@pytest.mark.parametrize("transacted", [True, False])
def test_a_message_that_kills_its_process_ends_in_the_dead_letter_queue(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase, transacted: bool
) -> None:
    worker = start_worker(
        f"""
import signal


@app.listener("orders", transacted={transacted}, redelivery=jmsql.RedeliveryPolicy(maximum_deliveries=2))
def handle(message):
    Path(f"began {{message.get_body(str)}} {{os.getpid()}}").touch()
    if message.get_body(str) == "poison":
        os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    send(jmsql_factory, "orders", "poison", "good")
    wait_for(lambda: database.rows(DEAD), 2 * PATIENCE)
    assert database.rows(DEAD) == [("queue://orders", "maximum deliveries", 2, "poison")]
    wait_for(lambda: "good" in dict(worker.began()), 2 * PATIENCE)
    wait_for(lambda: database.queued() == 1, PATIENCE)
    assert [text for text, _ in worker.began()].count("poison") == 2
    assert worker.stop() == 0


@pytest.mark.usefixtures("row_security_is_off_again")
def test_a_worker_whose_role_may_only_receive_gets_rid_of_poison(
    start_worker: StartWorker,
    jmsql_factory: ConnectionFactory,
    jmsql_clean_url: str,
    database: WorkerDatabase,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    send(jmsql_factory, "orders", "in a transaction")
    send(jmsql_factory, "invoices", "acknowledged")
    with roles_of_each_kind(database.connection) as roles:
        database.rows("select jmsql.create_queue('DLQ')")
        database.rows(f"select jmsql.grant_access('invoices', '{roles['receiver']}', 'receive')")
        url = sqlalchemy.make_url(jmsql_clean_url).set(username=roles["receiver"])
        worker = start_worker(
            """
@app.listener("orders", redelivery=jmsql.RedeliveryPolicy(maximum_deliveries=2))
@app.listener("invoices", transacted=False, redelivery=jmsql.RedeliveryPolicy(maximum_deliveries=2))
def handle(message):
    raise RuntimeError("poison")
""",
            "--url",
            url.render_as_string(hide_password=False),
        )
        wait_for(lambda: len(database.rows(DEAD)) == 2, PATIENCE)
        assert sorted(database.rows(DEAD)) == [
            ("queue://invoices", "maximum deliveries", 2, "acknowledged"),
            ("queue://orders", "maximum deliveries", 2, "in a transaction"),
        ]
        assert worker.stop() == 0


def test_a_message_that_fails_waits_while_a_single_thread_goes_on_and_keeps_its_error(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    worker = start_worker(
        """
class OutOfStock(Exception):
    pass


@app.listener("orders")
def handle(message, database):
    if message.get_body(str) == "poison":
        raise OutOfStock("none at postgresql://app:secret@db/shop")
    store(database, message)


@app.listener("limited", redelivery=jmsql.RedeliveryPolicy(2, delay=0.1, dead_letter_queue="hopeless"))
def limited(message):
    raise OutOfStock("none")
"""
    )
    send(jmsql_factory, "orders", "poison", "a", "b")
    send(jmsql_factory, "limited", "poison")
    wait_for(lambda: database.handled() == [("a", 1), ("b", 1)], PATIENCE)
    waiting = "select delivery_count >= 1, next_attempt > now(), last_error from jmsql.messages where queue = 'orders'"
    # Between two waits, it is delivered again.
    ((has_failed, _, error),) = wait_for(lambda: [row for row in database.rows(waiting) if row[1]], PATIENCE)
    assert has_failed
    assert re.match(r'Traceback \(most recent call last\):\n  File ".*messaging\.py", line \d+, in handle\n', error)
    assert "jmsql/worker" not in error, "the frames that have called the handler are left out"
    assert error.endswith("OutOfStock: none at postgresql://app:***@db/shop\n")
    wait_for(lambda: database.rows(DEAD), PATIENCE)
    assert database.rows("select queue, deliveries, error from jmsql.dead_letters") == [
        ("hopeless", 2, "messaging.OutOfStock: none")
    ]
    assert worker.stop() == 0


CAUGHT = """
@app.listener("orders", redelivery=jmsql.RedeliveryPolicy(maximum_deliveries=2))
{prefix}def handle(message, database):
    if message.get_body(str) == "refused by the commit":
        {await_}database.execute(sqlalchemy.text("insert into parts values (0)"))
        return
    try:
        {await_}database.execute(sqlalchemy.text("select 1 / 0"))
    except Exception:
        pass
    if message.get_body(str) == "goes on":
        try:
            {await_}database.execute(insertion(message))
        except Exception:
            pass
"""


@pytest.mark.parametrize(("prefix", "await_"), [("", ""), ("async ", "await ")], ids=["def", "async def"])
def test_a_message_keeps_why_its_commit_failed_if_the_handler_has_caught_the_error_of_a_statement(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase, prefix: str, await_: str
) -> None:
    database.rows("create table wholes (id int primary key)")
    database.rows("create table parts (id int references wholes deferrable initially deferred)")
    try:
        worker = start_worker(CAUGHT.format(prefix=prefix, await_=await_))
        send(jmsql_factory, "orders", "ends", "goes on", "refused by the commit")
        wait_for(lambda: len(database.rows(DEAD)) == 3, PATIENCE)
        errors = dict(database.rows("select body, error from jmsql.dead_letters"))
        caught = (
            "jmsql.TransactionRolledBackException: The transaction was rolled back: one of its statements had failed "
            "before (division by zero), and the error was caught. Do it again, and run what may fail inside a "
            "savepoint: begin_nested(), or psycopg's transaction()."
        )
        assert [errors["ends"], errors["goes on"]] == [caught, caught]
        assert 'violates foreign key constraint "parts_id_fkey"' in errors["refused by the commit"]
        assert worker.wait_for_log(r"one of its statements had failed before \(division by zero\)")
        assert worker.stop() == 0
    finally:
        database.rows("drop table parts, wholes")


@pytest.mark.parametrize(("transacted", "prefix"), [(True, ""), (False, ""), (True, "async ")])
def test_messages_that_cannot_be_read_end_in_the_dead_letter_queue_with_the_reason(
    start_worker: StartWorker,
    jmsql_factory: ConnectionFactory,
    jmsql_url: str,
    database: WorkerDatabase,
    transacted: bool,
    prefix: str,
) -> None:
    with psycopg.connect(jmsql_url, autocommit=True) as connection:
        connection.execute("select jmsql.create_queue('orders', '{\"maximum_deliveries\": 2}')")
        store_unreadable(connection, "orders")
    send(jmsql_factory, "orders", "good")
    worker = start_worker(
        f"""
@app.listener("orders", transacted={transacted})
{prefix}def handle(message):
    message.jms_reply_to, dict(message.properties)
    if isinstance(message, jmsql.StreamMessage):
        message.read_object()
    else:
        message.get_body(object)
    Path(f"began {{message.get_body(str)[:4]}} {{os.getpid()}}").touch()
"""
    )
    died = len(UNREADABLE) - len(READABLE)
    wait_for(lambda: len(database.rows(DEAD)) == died and "good" in dict(worker.began()), 2 * PATIENCE)
    reasons = database.rows("select distinct reason, deliveries, error like '%Exception: %' from jmsql.dead_letters")
    assert reasons == [("maximum deliveries", 2, True)]
    assert len({process for _, process in worker.began()}) == 1
    assert worker.stop() == 0
