"""Clients at work, in a process that is killed at some time: producers and consumers that write business rows.

Each role runs on a thread, with a connection of its own. SIGTERM ends the work in order; an error other than the faults
may cause ends it with exit code 1.
"""

from __future__ import annotations

import ctypes
import itertools
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import sqlalchemy

import jmsql
from jmsql import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    IllegalStateException,
    JMSException,
    Message,
    MessageConsumer,
    Queue,
    ResourceAllocationException,
    Timings,
    Topic,
    TransactionRolledBackException,
)
from jmsql.store.connections.engine import open_engine
from tests.faults.network import enter

logger = logging.getLogger("work")

NEWS = Topic("news")
SUBSCRIBERS = {"news all": None, "news even": "parity = 'even'"}
"""The durable subscriptions with one consumer each, whose client identifier is their name."""

SENT = sqlalchemy.text("insert into business.sent (channel, number) values (:channel, :number)")
DONE = sqlalchemy.text("insert into business.done (channel, number, client) values (:channel, :number, :client)")
WAIT = 0.2
AT_WORK = "at work"
"""What a process writes when it begins."""

_PR_SET_PDEATHSIG = 1
_UNREACHABLE = 3
"""What `jmsql worker` ends with where it begins while the server is away."""

ROOT = Path(__file__).parents[2]

_TIMINGS = Timings()

stopping = threading.Event()


class StoppedError(Exception):
    """The work is to end before it has begun."""


class Worker:
    """What a role has at hand.

    Args:
        name: The name of the process.
        url: The way to the database.
        seed: Where the choices begin.
    """

    def __init__(self, name: str, url: str, seed: str) -> None:
        self.name = name
        self.random = random.Random(seed)
        self.url = url
        self._engine = open_engine(url, pool_pre_ping=True)
        instance = uuid.uuid4().hex[:8]
        self._numbers = (f"{name}-{instance}-{number}" for number in itertools.count())

    def numbers(self) -> list[str]:
        """New numbers for a transaction's messages."""
        return list(itertools.islice(self._numbers, self.random.randint(1, 12)))

    def pause(self) -> None:
        """Wait a little, as after an error."""
        stopping.wait(self.random.uniform(0.0, 0.05))

    def rest(self) -> None:
        """Wait a little, so that consumers keep up."""
        stopping.wait(self.random.uniform(0.0, 0.5))

    @contextmanager
    def connection(self, client_id: str | None = None, timings: Timings = _TIMINGS) -> Iterator[Connection]:
        """Connect, however long it takes, and start."""
        while not stopping.is_set():
            try:
                connection = ConnectionFactory(self.url, client_id=client_id, timings=timings).create_connection()
            except JMSException as error:
                logger.info("connecting: %s", error)
                self.pause()
                continue
            with connection:
                connection.start()
                yield connection
            return
        raise StoppedError

    def note(self, statement: sqlalchemy.TextClause, **values: str) -> None:
        """Write a business row, in a transaction of its own, however long it takes."""
        while True:
            try:
                with self._engine.begin() as database:
                    database.execute(statement, values)
            except (sqlalchemy.exc.DBAPIError, psycopg.OperationalError) as error:
                logger.info("noting: %s", str(error).splitlines()[0])
                self.pause()
            else:
                return


def ignoring_faults(worker: Worker, work: Callable[[], object], undo: Callable[[], object] = lambda: None) -> None:
    """Do a piece of work; if a fault comes in between, undo it, and go on a little later."""
    try:
        work()
    except (JMSException, sqlalchemy.exc.DBAPIError) as error:
        if not is_fault(error):
            raise
        logger.info("%s", error)
        try:
            undo()
        except JMSException as failure:
            logger.info("undoing: %s", failure)
        worker.pause()


def is_fault(error: Exception) -> bool:
    """Whether an error is one that the faults cause, rather than a defect of these programs or of jmsql."""
    if isinstance(error, sqlalchemy.exc.DBAPIError):
        return isinstance(error, sqlalchemy.exc.OperationalError) or error.connection_invalidated
    if isinstance(error, IllegalStateException):
        return "has an active consumer" in str(error)  # the one that was killed, as yet
    return type(error) in {JMSException, ResourceAllocationException, TransactionRolledBackException}


@contextmanager
def perhaps_undone(worker: Worker, session: jmsql.Session) -> Iterator[None]:
    """Work in a savepoint, or not; roll it back, or release it. Rows and messages share its fate."""
    kind = worker.random.choice(["none", "none", "SQLAlchemy's", "SQL's"])
    is_undone = worker.random.random() < 0.3
    if kind == "none":
        yield
    elif kind == "SQLAlchemy's":
        savepoint = session.database.begin_nested()
        yield
        (savepoint.rollback if is_undone else savepoint.commit)()
    else:
        session.database.exec_driver_sql("savepoint step")
        yield
        session.database.exec_driver_sql("rollback to savepoint step" if is_undone else "release savepoint step")


# Producers


def produce(worker: Worker, *channels: str) -> None:
    """Send to queues, and write a row for each message in the same transaction."""
    with worker.connection() as connection:
        session = connection.create_session(transacted=True)
        while not stopping.is_set():

            def send() -> None:
                channel = worker.random.choice(channels)
                with session.create_producer(Queue(channel)) as producer:
                    for number in worker.numbers():
                        with perhaps_undone(worker, session):
                            session.database.execute(SENT, {"channel": channel, "number": number})
                            producer.send(session.create_text_message(number))
                worker.random.choice([session.commit] * 9 + [session.rollback])()

            ignoring_faults(worker, send, session.rollback)
            worker.rest()


def produce_in_groups(worker: Worker) -> None:
    """Send to message groups, and write a row for each message in the same transaction."""
    with worker.connection() as connection:
        session = connection.create_session(transacted=True)
        producer = session.create_producer()

        def send() -> None:
            for number in worker.numbers():
                group = worker.random.choice("abcd")
                session.database.execute(SENT, {"channel": "groups", "number": f"{number}-{group}"})
                message = session.create_text_message(f"{number}-{group}")
                message.properties["JMSXGroupID"] = group
                producer.send(message, Queue("groups"))
            worker.random.choice([session.commit] * 9 + [session.rollback])()

        while not stopping.is_set():
            ignoring_faults(worker, send, session.rollback)
            worker.rest()


def publish(worker: Worker) -> None:
    """Publish to the topic, and write a row for each subscription that is to have the message."""
    with worker.connection() as connection:
        session = connection.create_session(transacted=True)
        while not stopping.is_set():

            def send() -> None:
                with session.create_producer(NEWS) as producer:
                    for number in worker.numbers():
                        parity = worker.random.choice(["even", "odd"])
                        for channel in ("news all", "news shared", *(["news even"] if parity == "even" else [])):
                            session.database.execute(SENT, {"channel": channel, "number": number})
                        message = session.create_text_message(number)
                        message.properties["parity"] = parity
                        producer.send(message)
                session.commit()

            ignoring_faults(worker, send, session.rollback)
            worker.rest()


def greet(worker: Worker) -> None:
    """Send in a session without transactions, and write a row for each message once it is known to be sent."""
    with worker.connection() as connection:
        session = connection.create_session()
        while not stopping.is_set():
            for number in worker.numbers():

                def send(number: str = number) -> None:
                    with session.create_producer(Queue("greetings")) as producer:
                        producer.send(session.create_text_message(number))
                    worker.note(SENT, channel="greetings", number=number)

                ignoring_faults(worker, send)
            worker.rest()


# Consumers in transactions


def consume(worker: Worker, channel: str, forward_to: str | None = None) -> None:
    """Receive from a queue, write a row for each message in the same transaction, and perhaps send on."""
    with worker.connection() as connection:
        session = connection.create_session(transacted=True)
        _consume(worker, connection, lambda: session.create_consumer(Queue(channel)), channel, forward_to, session)


def subscribe(worker: Worker, channel: str) -> None:
    """Receive from a durable subscription that has this consumer alone."""
    with worker.connection(client_id=channel) as connection:
        session = connection.create_session(transacted=True)
        selector = SUBSCRIBERS[channel]
        _consume(
            worker,
            connection,
            lambda: session.create_durable_consumer(NEWS, channel, selector),
            channel,
            None,
            session,
        )


def share(worker: Worker) -> None:
    """Receive from a durable subscription that several clients share."""
    with worker.connection() as connection:
        session = connection.create_session(transacted=True)
        channel = "news shared"
        _consume(
            worker,
            connection,
            lambda: session.create_shared_durable_consumer(NEWS, channel),
            channel,
            None,
            session,
        )


def _consume(
    worker: Worker,
    connection: Connection,
    create_consumer: Callable[[], MessageConsumer],
    channel: str,
    forward_to: str | None,
    session: jmsql.Session,
) -> None:
    consumers: list[MessageConsumer] = []
    producer = session.create_producer()  # which, unlike one of a queue, looks for nothing in a server that is gone

    def receive() -> None:
        if not consumers:
            consumers.append(create_consumer())
        for _ in range(worker.random.randint(1, 10)):
            with perhaps_undone(worker, session):
                message = consumers[0].receive(timeout=WAIT)
                if message is None:
                    break
                do(worker, session, channel, message)
                if forward_to is not None:
                    number = text(message)
                    session.database.execute(SENT, {"channel": forward_to, "number": number})
                    producer.send(session.create_text_message(number), Queue(forward_to))
        worker.random.choice([session.commit] * 9 + [session.rollback])()

    while not stopping.is_set():
        ignoring_faults(worker, receive, session.rollback)


def listen(worker: Worker, channel: str, forward_to: str) -> None:
    """Have a listener called, which does the same."""
    with worker.connection() as connection:
        session = connection.create_session(transacted=True)
        producer = session.create_producer()  # which, unlike one of a queue, looks for nothing in a server that is gone

        def on_message(message: Message) -> None:
            def handle() -> None:
                do(worker, session, channel, message)
                session.database.execute(SENT, {"channel": forward_to, "number": text(message)})
                producer.send(session.create_text_message(text(message)), Queue(forward_to))
                worker.random.choice([session.commit] * 9 + [session.rollback])()

            ignoring_faults(worker, handle, session.rollback)

        ignoring_faults(worker, lambda: set_listener(session, channel, on_message))
        stopping.wait()


def set_listener(session: jmsql.Session, channel: str, on_message: Callable[[Message], None]) -> None:
    """Make the consumer of a queue, however long it takes."""
    while not stopping.is_set():
        try:
            session.create_consumer(Queue(channel)).message_listener = on_message
        except JMSException as error:
            logger.info("consuming: %s", error)
            stopping.wait(WAIT)
        else:
            return


def do(worker: Worker, session: jmsql.Session, channel: str, message: Message) -> None:
    session.database.execute(DONE, {"channel": channel, "number": text(message), "client": worker.name})


def text(message: Message) -> str:
    return str(message.get_body(str))


# Consumers without


def acknowledge(worker: Worker, channel: str, mode: AcknowledgeMode) -> None:
    """Receive, write a row, and then acknowledge."""
    # A full disk keeps the row away for minutes, in which a lazy session is not to acknowledge the message.
    with worker.connection(timings=Timings(acknowledgement_delay=3600.0)) as connection:
        session = connection.create_session(mode)
        consumers: list[MessageConsumer] = []

        def receive() -> None:
            if not consumers:
                consumers.append(session.create_consumer(Queue(channel)))
            message = None
            for _ in range(worker.random.randint(1, 5)):
                following = consumers[0].receive(timeout=WAIT)
                if following is None:
                    break
                message = following
                worker.note(DONE, channel=channel, number=text(message), client=worker.name)
            if message is not None:
                message.acknowledge()  # and those before it

        while not stopping.is_set():
            ignoring_faults(worker, receive)
        ignoring_faults(worker, session.recover)


def hear(worker: Worker, channel: str) -> None:
    """Have a listener called, whose return acknowledges."""
    with worker.connection() as connection:
        set_listener(
            connection.create_session(),
            channel,
            lambda message: worker.note(DONE, channel=channel, number=text(message), client=worker.name),
        )
        stopping.wait()


def work_on_jobs(worker: Worker) -> None:
    """Run `jmsql worker`, and start it again as service managers do while the server is away."""
    command = [sys.executable, "-m", "jmsql", "worker", "tests.faults.messaging:app", "--concurrency", "2"]
    environment = os.environ | {"JMSQL_URL": worker.url, "PYTHONPATH": str(ROOT)}
    library = ctypes.CDLL(None)
    while not stopping.is_set():
        process = subprocess.Popen(
            command,
            env=environment,
            preexec_fn=lambda: library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509 - calls one function
        )
        while process.poll() is None and not stopping.wait(WAIT):
            pass
        process.terminate()
        code = process.wait()
        if code not in (0, _UNREACHABLE):
            raise AssertionError(f"the worker ended with exit code {code}")


ROLES: dict[str, Callable[[Worker], None]] = {
    "produce orders": lambda worker: produce(worker, "orders"),
    "produce the rest": lambda worker: produce(worker, "parcels", "letters", "notes", "postcards", "jobs"),
    "produce in groups": produce_in_groups,
    "publish news": publish,
    "greet": greet,
    "take orders": lambda worker: consume(worker, "orders", "invoices"),
    "listen to orders": lambda worker: listen(worker, "orders", "invoices"),
    "take invoices": lambda worker: consume(worker, "invoices"),
    "work on jobs": work_on_jobs,
    "take groups": lambda worker: consume(worker, "groups"),
    "take greetings": lambda worker: consume(worker, "greetings"),
    "take parcels": lambda worker: acknowledge(worker, "parcels", AcknowledgeMode.CLIENT),
    "take letters": lambda worker: acknowledge(worker, "letters", AcknowledgeMode.DUPS_OK),
    "take postcards": lambda worker: acknowledge(worker, "postcards", AcknowledgeMode.AUTO),
    "listen to notes": lambda worker: hear(worker, "notes"),
    "read all news": lambda worker: subscribe(worker, "news all"),
    "read even news": lambda worker: subscribe(worker, "news even"),
    "share news": share,
}


def work(network: str | None, name: str, seed: str, url: str, *roles: str) -> None:
    """Do the work of a process, until SIGTERM ends it.

    Args:
        network: The namespace of the network on which it is; None: that of the tests.
        name: The name of the process.
        seed: Where the choices begin.
        url: The way to the database.
        roles: What it does.
    """
    if network is not None:
        enter(network)
    logging.basicConfig(format=f"%(asctime)s {name} %(threadName)s %(message)s", level=logging.INFO)
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())

    def run(role: str) -> None:
        try:
            known[role](Worker(f"{name} {role}", url, f"{seed} {name} {role}"))
        except StoppedError:
            logger.info("stopped")
        except BaseException:
            logger.exception("DEFECT in %s", role)
            os._exit(1)

    from tests.faults.asyncio_work import AWAITED_ROLES  # which needs what is above

    known = ROLES | AWAITED_ROLES
    logger.info(AT_WORK)
    threads = [threading.Thread(target=run, args=[role], name=role) for role in roles]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(WAIT)
