"""Limits of listeners over all workers: a rate of starts, and a number of handlers at a time."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest

import jmsql
from jmsql import ConnectionFactory, Message, Queue
from jmsql.admin import Administration
from jmsql.store.control.slots import Slots
from jmsql.store.receiving.throttling import forget_limits
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.testing import wait_for
from jmsql.timings import InternalTimings
from jmsql.worker import Application, AtMost, Rate
from jmsql.worker.handlers.handler_groups import HandlerGroup, HandlersInThreads
from jmsql.worker.settings import HandlerSettings
from tests.integration.worker.conftest import PATIENCE, StartWorker, WorkerDatabase
from tests.integration.worker.test_handlers import send

MAIL = Queue("mail")
RECORD = """
    create table starts (at timestamptz, value text, number integer);
    create function note_start() returns trigger language plpgsql as $$
    begin
        insert into public.starts
        values (new.started[cardinality(new.started)], new.value, new.numbers[cardinality(new.numbers)]);
        return null;
    end $$;
    create trigger starts_are_noted after insert or update on jmsql_internal.limit_usage
        for each row when (new.is_rate) execute function note_start();
"""


@pytest.fixture
def starts(database: WorkerDatabase) -> Iterator[Callable[[], list[tuple[float, str]]]]:
    """Returns the time in seconds, by the database's record, and the value of each message that a rate let start."""
    database.rows(RECORD)

    def read() -> list[tuple[float, str]]:
        rows = database.rows("select extract(epoch from at)::float8, value, number from starts order by at")
        return [(at, value) for at, value, number in rows for _ in range(number)]

    yield read
    database.rows("drop trigger starts_are_noted on jmsql_internal.limit_usage")
    database.rows("drop table starts; drop function note_start()")


class Workers:
    """Clients that handle messages of the queue in threads of this process."""

    def __init__(self, factory: ConnectionFactory) -> None:
        self.factory = factory
        self.groups: list[HandlerGroup] = []

    def start(
        self,
        handler: Callable[..., object],
        number: int = 1,
        *,
        concurrency: int = 1,
        declares: bool = True,
        **options: Any,
    ) -> None:
        """Start so many clients of a handler."""
        app = Application()
        app.listener("mail", **options)(handler)
        for _ in range(number):
            settings = HandlerSettings(concurrency=concurrency, declares=declares)
            group = HandlersInThreads.open(self.factory, app.listeners, settings)
            self.groups.append(group)
            group.start()

    def end(self) -> None:
        """End all of them."""
        for group in self.groups:
            group.end(PATIENCE).result()
        self.groups.clear()


@pytest.fixture
def workers(jmsql_factory: ConnectionFactory) -> Iterator[Workers]:
    """Starts clients, and ends them."""
    timings = InternalTimings(slot_interval=0.2)
    workers = Workers(replace(jmsql_factory, timings=timings))
    yield workers
    workers.end()


class Handled:
    """A handler that notes what it is called with, and the most calls at a time.

    Args:
        duration: How many seconds a call takes, unless `may_go` is set.
    """

    def __init__(self, duration: float = 0.0) -> None:
        self._lock = threading.Lock()
        self._duration = duration
        self._running = 0
        self.may_go = threading.Event()
        self.bodies: list[str] = []
        self.counts: list[int | None] = []
        self.most = 0

    def __call__(self, message: Message) -> None:
        """Handle a message."""
        with self._lock:
            self.bodies.append(str(message.get_body(str)))
            self.counts.append(message.delivery_count)
            self._running += 1
            self.most = max(self.most, self._running)
        try:
            self.may_go.wait(self._duration)
        finally:  # also of a call that is ended
            with self._lock:
                self._running -= 1

    def wait(self, *bodies: str) -> None:
        """Wait until it was called with these, and no others."""
        wait_for(lambda: len(self.bodies) >= len(bodies), PATIENCE)
        assert sorted(self.bodies) == sorted(bodies)


def send_for(factory: ConnectionFactory, tenant: str | int | None, *bodies: str, group: str | None = None) -> None:
    """Send messages of a tenant."""
    with factory.create_context() as context:
        producer = context.create_producer()
        if tenant is not None:
            producer.set_property("tenant", tenant)
        if group is not None:
            producer.set_property("JMSXGroupID", group)
        for body in bodies:
            producer.send(MAIL, body)


def idle(database: WorkerDatabase) -> bool:
    """Return True if nothing is claimed or was delivered."""
    return database.rows("select from jmsql_internal.delivery") == []


def limits(database: WorkerDatabase, columns: str = "kind, value, used, is_met") -> list[Any]:
    """Return what the view shows."""
    return database.rows(f"select {columns} from jmsql.limits order by destination, subscription, kind, value")


@pytest.mark.parametrize("options", [{}, {"transacted": False}, {"chunk": 3, "chunk_wait": 0.0}], ids=str)
def test_no_more_messages_start_in_a_time_than_the_rate(
    jmsql_factory: ConnectionFactory, workers: Workers, starts: Any, options: dict[str, Any]
) -> None:
    bodies = [f"{number:02}" for number in range(9)]
    send(jmsql_factory, "mail", *bodies)
    handler = Handled()

    def handle_chunk(messages: list[Message]) -> None:
        for message in messages:
            handler(message)

    workers.start(handle_chunk if "chunk" in options else handler, number=2, rate=Rate(4, per=0.3), **options)
    handler.wait(*bodies)
    times = [at for at, _ in starts()]
    assert len(times) == len(bodies)
    assert all(later - earlier >= 0.3 for earlier, later in zip(times, times[4:], strict=False))
    assert set(handler.counts) == {1}


def test_a_large_rate_counts_starts_that_are_close_together_as_one(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, workers: Workers
) -> None:
    bodies = [f"{number:03}" for number in range(300)]
    send_for(jmsql_factory, None, *bodies)
    handler = Handled()
    workers.start(handler, rate=Rate(299, per=3600))
    wait_for(lambda: len(handler.bodies) >= 299, PATIENCE)
    wait_for(lambda: limits(database) == [("rate", "", 299, True)], PATIENCE)
    workers.end()
    assert database.queued() == 1
    assert database.rows("select cardinality(started) < 299 from jmsql_internal.limit_usage") == [(True,)]


@pytest.mark.parametrize("transacted", [True, False])
def test_no_more_messages_are_handled_at_a_time(
    jmsql_factory: ConnectionFactory, workers: Workers, transacted: bool
) -> None:
    bodies = [f"{number:02}" for number in range(20)]
    send(jmsql_factory, "mail", *bodies)
    handler = Handled(0.02)
    in_pairs = threading.Barrier(2, timeout=PATIENCE)

    def handle(message: Message) -> None:
        in_pairs.wait()
        handler(message)

    workers.start(handle, number=3, concurrency=2, at_most=2, transacted=transacted)
    handler.wait(*bodies)
    assert handler.most == 2
    assert set(handler.counts) == {1}


def test_limits_hold_for_handlers_with_rows_of_psycopg_in_threads_and_in_tasks(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    app = Application(jmsql_factory)
    running: list[str] = []
    most: list[int] = []
    database.rows("create table stored (body text)")

    @app.listener("mail", concurrency=3, at_most=1)
    def handle(body: str, rows: psycopg.Connection[Any]) -> None:
        running.append(body)
        most.append(len([each for each in running if not each.startswith("other")]))
        rows.execute("insert into stored values (%s)", [body])
        running.remove(body)

    @app.listener("other", concurrency=3, at_most=1, rate=Rate(3, per=3600))
    async def handle_other(body: str, rows: psycopg.AsyncConnection[Any]) -> None:
        running.append(body)
        most.append(len([each for each in running if each.startswith("other")]))
        await rows.execute("insert into stored values (%s)", [body])
        running.remove(body)

    async def run() -> None:
        async with app.running():
            send(jmsql_factory, "mail", "a", "b", "c")
            send(jmsql_factory, "other", *(f"other {number}" for number in range(4)))
            stored = "select from stored"
            await asyncio.to_thread(wait_for, lambda: len(database.rows(stored)) == 6, PATIENCE)

    try:
        asyncio.run(run())
        assert database.queued() == 1
    finally:
        database.rows("drop table stored")
    assert most == [1] * 6


def test_a_value_that_is_at_its_limit_holds_up_no_other_and_is_not_claimed(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, workers: Workers
) -> None:
    send_for(jmsql_factory, "acme", "a1", "a2", "a3")
    send_for(jmsql_factory, 17, "n1", "n2")
    send_for(jmsql_factory, None, "one without", "another without")
    handler = Handled()
    workers.start(handler, number=2, rate=Rate(1, per=3600, by="tenant"))
    handler.wait("a1", "n1", "one without")
    send_for(jmsql_factory, "globex", "g1")
    handler.wait("a1", "n1", "one without", "g1")
    wait_for(lambda: idle(database), PATIENCE)
    assert database.queued() == 4
    assert limits(database) == [("rate", value, 1, True) for value in ("", "17", "acme", "globex")]
    waiting = [("", 1), ("17", 1), ("acme", 2), ("globex", 0)]
    wait_for(lambda: limits(database, "value, waiting") == waiting, PATIENCE)
    workers.end()
    assert set(handler.counts) == {1}


def test_a_value_waits_for_its_own_handlers_alone(jmsql_factory: ConnectionFactory, workers: Workers) -> None:
    send_for(jmsql_factory, "acme", "a1", "a2")
    send_for(jmsql_factory, "globex", "g1", "g2")
    handler = Handled(PATIENCE)
    workers.start(handler, number=2, concurrency=4, at_most=AtMost(1, by="tenant"))
    handler.wait("a1", "g1")
    handler.may_go.set()
    handler.wait("a1", "a2", "g1", "g2")
    assert handler.most == 2


def test_a_message_that_waits_for_a_limit_keeps_its_place_in_its_group(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, workers: Workers
) -> None:
    send_for(jmsql_factory, "acme", "first of acme", group="g")
    send_for(jmsql_factory, "acme", "second of acme", group="g")
    send_for(jmsql_factory, "globex", "behind it", group="g")
    send_for(jmsql_factory, "globex", "of another group", group="h")
    handler = Handled()
    workers.start(handler, rate=Rate(1, per=3600, by="tenant"))
    handler.wait("first of acme", "of another group")
    wait_for(lambda: idle(database), PATIENCE)
    assert database.queued() == 2


def test_other_listeners_of_a_worker_go_on_while_one_waits_for_its_limit(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    app = Application(jmsql_factory)
    handled: list[str] = []

    @app.listener("mail", rate=Rate(1, per=3600))
    async def handle(body: str) -> None:
        handled.append(body)

    @app.listener("other")
    def handle_other(body: str) -> None:
        handled.append(body)

    async def run() -> None:
        async with app.running():
            send(jmsql_factory, "mail", "one", "two")
            await asyncio.to_thread(wait_for, lambda: handled == ["one"], PATIENCE)
            send(jmsql_factory, "other", "three")
            await asyncio.to_thread(wait_for, lambda: handled == ["one", "three"], PATIENCE)

    asyncio.run(run())
    assert handled == ["one", "three"]
    assert database.queued() == 1
    assert idle(database)


def test_the_worker_that_starts_last_sets_the_limit(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, workers: Workers
) -> None:
    former, newer = Handled(), Handled()
    workers.start(former, rate=Rate(1, per=3600))
    workers.start(newer, rate=Rate(3, per=3600))
    workers.start(newer, rate=Rate(1, per=3600), declares=False)  # as a process does that takes the place of another
    send(jmsql_factory, "mail", *"abcd")
    wait_for(lambda: len(former.bodies + newer.bodies) == 3, PATIENCE)
    wait_for(lambda: limits(database, "most, used, is_met") == [(3, 3, True)], PATIENCE)
    workers.end()
    assert len(former.bodies + newer.bodies) == 3


def test_a_queue_that_is_made_again_has_its_limit(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, workers: Workers
) -> None:
    handler = Handled()
    workers.start(handler, rate=Rate(1, per=3600))
    send(jmsql_factory, "mail", "one", "two")
    handler.wait("one")
    wait_for(lambda: database.queued() == 1 and idle(database), PATIENCE)  # a queue is not deleted before the commit
    with Administration(workers.factory) as administration:
        administration.delete(MAIL)
    send(jmsql_factory, "mail", "three", "four")
    handler.wait("one", "three")
    assert limits(database, "most, used") == [(1, 1)]


def test_a_handler_keeps_its_slot_when_its_client_loses_the_control_connection(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, workers: Workers
) -> None:
    handler = Handled(PATIENCE)
    workers.start(handler, number=2, at_most=1)
    send(jmsql_factory, "mail", "one", "two")
    wait_for(lambda: handler.bodies, PATIENCE)
    [(holder,)] = database.rows("select claim_ids[1] from jmsql_internal.limit_usage")
    database.rows(
        "select pg_terminate_backend(c.server_process_id) from jmsql_internal.connection c "
        f"join jmsql_internal.delivery d using (connection_id) where d.claim_id = {holder}"
    )
    taken = f"select from jmsql_internal.delivery where claim_id = {holder}"
    wait_for(lambda: database.rows(taken) == [], PATIENCE)  # others may have the message, and have no slot
    returned = "select from jmsql_internal.limit_holder where connection_id <> holder_id and running <> '{}'"
    wait_for(lambda: database.rows(returned), PATIENCE)
    send(jmsql_factory, "mail", "three")
    assert limits(database) == [("at_most", "", 1, True)]
    assert database.rows("select claim_ids from jmsql_internal.limit_usage") == [([holder],)]
    assert len(handler.bodies) == 1
    handler.may_go.set()
    wait_for(lambda: database.queued() == 0, PATIENCE)
    assert handler.most == 1


FROZEN = """
from jmsql.timings import InternalTimings
app = Application(jmsql.ConnectionFactory(timings=InternalTimings(slot_interval=0.2, slot_duration=4.0)))


@app.listener("mail", at_most=1)
def handle(message: jmsql.Message, database: sqlalchemy.Connection):
    store(database, message)
    wait_for_leave(message)
"""


def test_a_process_that_was_frozen_for_long_has_lost_its_slots(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, start_worker: StartWorker
) -> None:
    worker = start_worker(FROZEN)
    worker.wait_until_ready()
    send(jmsql_factory, "mail", "one")
    [(_, frozen)] = wait_for(worker.began, PATIENCE)
    os.kill(frozen, signal.SIGSTOP)
    shown = "select from jmsql_internal.limit_holder"
    wait_for(lambda: not database.rows(f"{shown} where expires_at > clock_timestamp()"), PATIENCE)
    database.rows("delete from jmsql_internal.limit_holder")  # as the maintenance does a minute later
    os.kill(frozen, signal.SIGCONT)
    worker.wait_for_log("was interrupted")


def test_no_call_begins_with_a_message_whose_slot_was_lost(database: WorkerDatabase) -> None:
    slots = Slots(lambda: None, InternalTimings(slot_interval=0.001, slot_duration=10.0))
    slots.hold_for(1)
    ended: list[int] = []

    def begin(sequence: int, claim_id: int) -> bool:
        return slots.begin_call(sequence, claim_id, lambda: ended.append(sequence))

    def claim() -> int:
        [(claim_id,)] = database.rows("select nextval('jmsql_internal.claim_sequence')")
        return int(claim_id)

    with database.connection.transaction(force_rollback=True):
        runner = PsycopgRunner(database.connection, "jmsql")
        runner.run(slots.use())
        before = claim()
        assert begin(1, before)
        wait_for(lambda: slots.seconds_to_next() == 0.0)
        slots.run(runner)  # in time
        assert ended == []
        assert begin(2, before)
        database.rows("update jmsql_internal.limit_holder set expires_at = '-infinity'")
        wait_for(lambda: slots.seconds_to_next() == 0.0)
        slots.run(runner)
        assert ended == [1, 2]
        assert not begin(3, before)
        assert begin(4, claim())
        wait_for(lambda: slots.seconds_to_next() == 0.0)
        slots.run(runner)
    assert ended == [1, 2]


def test_a_coroutine_whose_slot_is_lost_as_its_call_begins_is_not_called(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_call = Slots.begin_call
    calls: list[int] = []
    counts: list[int | None] = []

    def begin_and_lose(self: Slots, sequence: int, claim_id: int, end: Callable[[], object]) -> bool:
        has_begun = begin_call(self, sequence, claim_id, end)
        calls.append(sequence)
        if len(calls) == 1:
            end()  # as the control connection's thread may do in this moment, after a freeze
        return has_begun

    monkeypatch.setattr(Slots, "begin_call", begin_and_lose)
    app = Application(jmsql_factory)

    @app.listener("mail", at_most=1)
    async def handle(message: Message) -> None:
        counts.append(message.delivery_count)

    async def run() -> None:
        async with app.running():
            send(jmsql_factory, "mail", "one")
            await asyncio.to_thread(wait_for, lambda: database.queued() == 0, PATIENCE)

    asyncio.run(run())
    assert counts == [2]


def test_frozen_and_killed_processes_give_their_slots_back(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, start_worker: StartWorker
) -> None:
    worker = start_worker(FROZEN, "--processes", "2")
    worker.wait_until_ready()
    send(jmsql_factory, "mail", "one", "two", "three")
    [(_, frozen)] = wait_for(worker.began, PATIENCE)
    os.kill(frozen, signal.SIGSTOP)
    wait_for(lambda: len(worker.began()) == 2, PATIENCE)
    [other] = {process for _, process in worker.began()} - {frozen}
    os.kill(frozen, signal.SIGCONT)
    worker.wait_for_log("was interrupted")
    assert len(worker.began()) == 2
    os.kill(other, signal.SIGKILL)
    worker.give_leave()
    database.wait_until_handled(3)
    assert sorted(text for text, _ in database.handled()) == ["one", "three", "two"]


def test_a_rate_goes_on_after_the_servers_clock_was_set_back(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, workers: Workers
) -> None:
    send(jmsql_factory, "mail", "one")
    handler = Handled()
    workers.start(handler, rate=Rate(1, per=7200))
    handler.wait("one")
    workers.end()
    database.rows("update jmsql_internal.limit_usage set started = array[clock_timestamp() + interval '1 hour']")
    send(jmsql_factory, "mail", "two")
    workers.start(handler, rate=Rate(1, per=7200))
    handler.wait("one", "two")


def test_a_killed_process_holds_no_slots_for_long_after_the_servers_clock_was_set_back(
    database: WorkerDatabase,
) -> None:
    with database.connection.transaction(force_rollback=True):
        # A new row may not be of the future; those from before the clock was set back are.
        database.rows("alter table jmsql_internal.limit_holder drop constraint limit_holder_expires_at_check")
        database.rows(
            "insert into jmsql_internal.limit_holder (holder_id, connection_id, running, expires_at) "
            "values (1, 1, '{}', clock_timestamp() + interval '1 hour')"
        )
        PsycopgRunner(database.connection, "jmsql").run(forget_limits)
        [(rest,)] = database.rows("select expires_at - clock_timestamp() from jmsql_internal.limit_holder")
    assert rest <= timedelta(seconds=10)


def test_limits_do_not_hold_where_a_test_drains_a_transaction(jmsql_factory: ConnectionFactory) -> None:
    app = Application(jmsql_factory)
    app.listener("mail", rate=Rate(1, per=3600), at_most=1)(lambda body: None)
    with jmsql_factory.create_connection() as connection, connection.create_session(transacted=True) as session:
        for body in ("one", "two"):
            session.create_producer(MAIL).send(session.create_text_message(body))
        assert len(app.drain(transaction=session.database)) == 2
        session.rollback()


def test_a_subscription_has_a_limit_of_its_own(jmsql_factory: ConnectionFactory, database: WorkerDatabase) -> None:
    app = Application(jmsql_factory)
    handled: list[str] = []

    def handle(body: str) -> None:
        handled.append(body)

    app.listener("topic://news", subscription="first", durable=False, selector="a = 1", rate=Rate(1, per=3600))(handle)
    app.listener("topic://news", subscription="second", durable=False, rate=Rate(2, per=3600))(handle)

    async def run() -> None:
        async with app.running():
            with jmsql_factory.create_context() as context:
                for body in "xyz":
                    context.create_producer().set_property("a", 1).send(jmsql.Topic("news"), body)
            await asyncio.to_thread(wait_for, lambda: len(handled) == 3, PATIENCE)
            shown = "destination, subscription, most, used, waiting"
            rest = [("news", "first", 1, 1, 2), ("news", "second", 2, 2, 1)]
            await asyncio.to_thread(wait_for, lambda: limits(database, shown) == rest, PATIENCE)

    asyncio.run(run())
    assert sorted(handled) == ["x", "x", "y"]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"rate": 5}, TypeError, "such as Rate"),
        ({"at_most": 0}, ValueError, "from 1 to 1,000,000, not 0"),
        ({"at_most": "3"}, TypeError, "not '3'"),
        ({"at_most": True}, TypeError, "not True"),
        ({"at_most": 3, "chunk": 10}, ValueError, "takes chunks"),
    ],
)
def test_limits_that_cannot_hold_are_refused(options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Application().listener("mail", **options)(lambda body: None)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((0,), ValueError),
        ((1.5,), TypeError),
        ((5, 0), ValueError),
        ((5, "1 s"), TypeError),
        ((5, float("nan")), ValueError),
        ((5, 1.0, ""), ValueError),
        ((5, 1.0, 3), TypeError),
    ],
)
def test_rates_that_are_none_are_refused(arguments: tuple[Any, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        Rate(*arguments)
