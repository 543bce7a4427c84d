"""What a worker claims ahead for its handlers: who else gets it, who is blamed, and what happens if a claim is lost."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import sqlalchemy

from jmsql import Connection, ConnectionFactory, Message, Queue
from jmsql.admin import Administration
from jmsql.client._sync.session.transactions import handler as handler_module
from jmsql.testing import FAST_TIMINGS, wait_for
from jmsql.worker import Application
from jmsql.worker.handlers.handler_groups import HandlerGroup, HandlersInThreads
from jmsql.worker.settings import HandlerSettings
from tests.integration.worker.conftest import KILLED_BEFORE_STEP, PATIENCE, StartWorker, WorkerDatabase
from tests.integration.worker.test_handlers import send

ORDERS = Queue("orders")
CLAIMED = "select count(*) from jmsql_internal.delivery where claim_id is not null"
LARGEST_BATCH = 100

StartHandlers = Callable[..., HandlerGroup]


@pytest.fixture
def start_handlers(jmsql_factory: ConnectionFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[StartHandlers]:
    """Starts handlers of the queue in threads of this process, which claim ahead also on a slow machine."""
    monkeypatch.setattr(handler_module, "_AHEAD", 60.0)
    monkeypatch.setattr(handler_module, "_LONGEST", 2.0)
    factory = replace(jmsql_factory, timings=replace(FAST_TIMINGS, prefetch_duration=60.0))
    groups: list[HandlerGroup] = []

    def start(handler: Callable[..., object], concurrency: int = 1) -> HandlerGroup:
        app = Application()
        app.listener("orders")(handler)
        group = HandlersInThreads.open(factory, app.listeners, HandlerSettings(concurrency=concurrency))
        groups.append(group)
        group.start()
        return group

    yield start
    for group in groups:
        if not all(member.has_ended for member in group.members):
            group.end(PATIENCE).result()


class QuickUntil:
    """A handler that is quick, so that messages are claimed ahead for it, until it comes to a message that takes long.

    Args:
        text: That of the message.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.has_come = threading.Event()
        self.may_go = threading.Event()

    def __call__(self, body: str) -> None:
        """Handle a message."""
        if body == self._text:
            self.has_come.set()
            assert self.may_go.wait(PATIENCE)


def receive_all(connection: Connection, count: int) -> dict[str, bool]:
    """Receive so many messages by another client; return their texts, and whether they were delivered before."""
    connection.start()
    with connection.create_session() as session, session.create_consumer(ORDERS) as consumer:
        received = [consumer.receive(PATIENCE) for _ in range(count)]
    return {str(message.get_body(str)): message.jms_redelivered for message in received if message is not None}


def test_messages_behind_a_slow_handler_go_to_others_as_first_deliveries(
    jmsql_factory: ConnectionFactory, connection: Connection, database: WorkerDatabase, start_handlers: StartHandlers
) -> None:
    send(jmsql_factory, "orders", *(f"{number:03}" for number in range(200)))
    handler = QuickUntil("150")
    start_handlers(handler)
    assert handler.has_come.wait(PATIENCE)
    received = receive_all(connection, 49)
    assert received == {f"{number:03}": False for number in range(151, 200)}
    assert database.rows(CLAIMED) == [(1,)]
    handler.may_go.set()
    wait_for(lambda: database.queued() == 0, PATIENCE)


REFUSE_TO_RELEASE_SEVERAL = """
create function refuse() returns trigger language plpgsql as $$
begin
    if (select count(*) from gone) > 1 then raise exception 'full'; end if;
    return null;
end $$;
create trigger refuse after delete on jmsql_internal.delivery referencing old table as gone
    for each statement execute function refuse();
"""
RELEASE_SEVERAL = "drop trigger refuse on jmsql_internal.delivery; drop function refuse()"


def test_messages_behind_a_slow_handler_go_to_others_although_their_first_release_fails(
    jmsql_factory: ConnectionFactory,
    connection: Connection,
    database: WorkerDatabase,
    start_handlers: StartHandlers,
    caplog: pytest.LogCaptureFixture,
) -> None:
    send(jmsql_factory, "orders", *(f"{number:03}" for number in range(200)))
    database.rows(REFUSE_TO_RELEASE_SEVERAL)
    try:
        handler = QuickUntil("150")
        start_handlers(handler)
        assert handler.has_come.wait(PATIENCE)
        wait_for(lambda: "Messages claimed ahead could not be released" in caplog.text, PATIENCE)
    finally:
        database.rows(RELEASE_SEVERAL)
    assert receive_all(connection, 49) == {f"{number:03}": False for number in range(151, 200)}
    handler.may_go.set()
    wait_for(lambda: database.queued() == 0, PATIENCE)


def test_a_worker_that_stops_releases_at_once_the_messages_claimed_ahead(
    jmsql_factory: ConnectionFactory, connection: Connection, database: WorkerDatabase, start_handlers: StartHandlers
) -> None:
    send(jmsql_factory, "orders", *(f"{number:03}" for number in range(200)))
    handler = QuickUntil("150")
    group = start_handlers(handler)
    assert handler.has_come.wait(PATIENCE)
    ended = group.end(PATIENCE)
    wait_for(lambda: database.rows(CLAIMED) == [(1,)], PATIENCE)
    assert not ended.done(), "the handler that runs may finish"
    assert receive_all(connection, 49) == {f"{number:03}": False for number in range(151, 200)}
    handler.may_go.set()
    assert ended.result(PATIENCE) == 0
    assert database.queued() == 0


def test_a_message_of_a_higher_priority_waits_only_for_messages_claimed_ahead(
    jmsql_factory: ConnectionFactory, connection: Connection, start_handlers: StartHandlers
) -> None:
    handled: list[str] = []
    urgent = threading.Event()

    def handle(body: str) -> None:
        handled.append(body)
        if len(handled) == 200:
            send_urgent()
        if body == "urgent":
            urgent.set()

    session = connection.create_session()

    def send_urgent() -> None:
        with session.create_producer(ORDERS) as producer:
            producer.send(session.create_text_message("urgent"), priority=9)

    send(jmsql_factory, "orders", *("x" for _ in range(600)))
    start_handlers(handle)
    assert urgent.wait(PATIENCE)
    assert handled.index("urgent") <= 200 + LARGEST_BATCH


@pytest.mark.parametrize("concurrency", [1, 8])
def test_the_messages_of_a_group_are_handled_one_by_one_and_in_their_order(
    connection: Connection, database: WorkerDatabase, start_handlers: StartHandlers, concurrency: int
) -> None:
    with connection.create_session() as session, session.create_producer(ORDERS) as producer:
        for number in range(120):
            message = session.create_text_message(str(number))
            if number % 4:  # the others are of no group
                message.set_string_property("JMSXGroupID", f"group {number % 4}")
            producer.send(message)
    order: dict[str, list[int]] = defaultdict(list)
    running = Counter[str]()
    together: list[str] = []

    def handle(message: Message) -> None:
        number = int(str(message.get_body(str)))
        group = f"group {number % 4}" if number % 4 else f"none {number}"
        running[group] += 1
        if running[group] > 1:
            together.append(group)
        time.sleep(0.001)  # so that others begin meanwhile, if they can
        order[group].append(number)
        running[group] -= 1

    start_handlers(handle, concurrency)
    wait_for(lambda: database.queued() == 0, PATIENCE)
    assert together == []
    for remainder in (1, 2, 3):
        assert order[f"group {remainder}"] == list(range(remainder, 120, 4))


LOSSES = {
    "given to another client": (
        "update jmsql_internal.delivery set claim_id = null, connection_id = null, claimed_at = null"
    ),
    "forgotten": "delete from jmsql_internal.delivery",
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_handler_whose_claim_is_lost_is_rolled_back(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, start_handlers: StartHandlers, loss: str
) -> None:
    calls: list[str] = []

    def handle(body: str, database: sqlalchemy.Connection) -> None:
        calls.append(body)
        database.execute(sqlalchemy.text("insert into handled (text) values (:text)"), {"text": f"call {len(calls)}"})
        if len(calls) == 1:
            lose()

    def lose() -> None:
        database.rows(LOSSES[loss])

    send(jmsql_factory, "orders", "text")
    start_handlers(handle)
    wait_for(lambda: database.queued() == 0, PATIENCE)
    assert database.rows("select text from handled") == [("call 2",)]
    assert calls == ["text", "text"]


def test_the_visibility_timeout_of_a_destination_is_extended_while_a_transacted_handler_runs(
    jmsql_factory: ConnectionFactory, jmsql_clean_url: str, database: WorkerDatabase, start_handlers: StartHandlers
) -> None:
    with Administration(jmsql_clean_url) as administration:
        administration.create_queue("orders", visibility_timeout=2.0)
    calls: list[str] = []
    never = threading.Event()

    def handle(body: str) -> None:
        calls.append(body)
        never.wait(4.5)

    send(jmsql_factory, "orders", "text")
    start_handlers(handle, 2)
    wait_for(lambda: database.queued() == 0, PATIENCE)
    assert calls == ["text"]


def test_purging_leaves_the_message_that_is_handled(
    jmsql_factory: ConnectionFactory,
    jmsql_clean_url: str,
    database: WorkerDatabase,
    start_handlers: StartHandlers,
) -> None:
    handler = QuickUntil("text")
    send(jmsql_factory, "orders", "text")
    start_handlers(handler)
    assert handler.has_come.wait(PATIENCE)
    with Administration(jmsql_clean_url) as administration:
        assert administration.purge("orders") == 0
    handler.may_go.set()
    wait_for(lambda: database.queued() == 0, PATIENCE)


def test_innocent_messages_that_were_claimed_ahead_of_a_death_are_blamed_once(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    worker = start_worker(
        """
import signal


@app.listener("orders", redelivery=jmsql.RedeliveryPolicy(maximum_deliveries=4))
def handle(message, database):
    if message.get_body(str) == "poison":
        os.kill(os.getpid(), signal.SIGKILL)
    store(database, message)
""",
        *("--timing", "minimum_restart_delay=0.01", "--timing", "maximum_restart_delay=0.01"),
    )
    innocents = [f"{number:03}" for number in range(150)]
    send(jmsql_factory, "orders", *innocents[:75], "poison", *innocents[75:])
    wait_for(lambda: database.rows("select body, deliveries from jmsql.dead_letters"), 2 * PATIENCE)
    assert database.rows("select body, deliveries from jmsql.dead_letters") == [("poison", 4)]
    wait_for(lambda: len(database.handled()) == 150, PATIENCE)
    assert [text for text, _ in database.handled()] == innocents, "nothing is lost or doubled"
    assert {count for _, count in database.handled()} <= {1, 2}
    assert worker.stop() == 0


KILLED_AT_COMMIT = (
    KILLED_BEFORE_STEP
    + """

@app.listener("orders", concurrency={concurrency})
{prefix}def handle(message, database):
    text = message.get_body(str)
    has_killed = Path(f"killed {{text}}")
    if text.startswith("kill") and not has_killed.exists():
        has_killed.touch()
        steps.left = int(text.split()[1])
    {call}database.execute(insertion(message))
"""
)


@pytest.mark.parametrize(("prefix", "call"), [("", ""), ("async ", "await ")])
@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_process_that_is_killed_at_any_exchange_loses_and_doubles_nothing(
    start_worker: StartWorker,
    jmsql_factory: ConnectionFactory,
    database: WorkerDatabase,
    prefix: str,
    call: str,
    concurrency: int,
) -> None:
    worker = start_worker(
        KILLED_AT_COMMIT.format(prefix=prefix, call=call, concurrency=concurrency),
        *("--timing", "minimum_restart_delay=0.01", "--timing", "maximum_restart_delay=0.01"),
    )
    texts = [f"{number:03}" for number in range(100)]
    for place, step in ((20, 0), (50, 1), (80, 2)):
        texts.insert(place, f"kill {step}")
    send(jmsql_factory, "orders", *texts)
    database.wait_until_handled(len(texts))
    assert sorted(text for text, _ in database.handled()) == sorted(texts)
    assert len(worker.wait_for_log("was killed by SIGKILL")) >= 1
    assert worker.stop() == 0
