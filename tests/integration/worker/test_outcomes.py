"""What handlers say of their messages: rejected, later, never again, unreadable; and processes that die meanwhile."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from jmsql import AcknowledgeMode, Connection, ConnectionFactory, Queue, RedeliveryPolicy, Session
from jmsql.admin import Administration
from jmsql.testing import wait_for
from jmsql.values.outcomes import Interruption
from jmsql.values.policies import MOST_INTERRUPTIONS
from jmsql.worker import Application, Reject, RetryAfter
from tests.integration.client.server import Server
from tests.integration.worker.conftest import KILLED_BEFORE_STEP, PATIENCE, StartWorker, WorkerDatabase
from tests.integration.worker.test_handlers import send
from tests.texts import receive, send_texts

DEAD = "select reason, deliveries, error, body from jmsql.dead_letters order by body"
KINDS = pytest.mark.parametrize(
    ("prefix", "transacted"), [("", True), ("", False), ("async ", True), ("async ", False)]
)

UNREADABLE = "jmsql.MessageFormatException:"

OUTCOMES = """
from jmsql.worker import Reject, RetryAfter


@app.listener("orders", transacted={transacted}, no_retry_for=LookupError,
              redelivery=jmsql.RedeliveryPolicy(maximum_deliveries=2, delay=0.05))
{prefix}def handle(message):
    text = message.get_body(str)
    count = message.get_int_property("JMSXDeliveryCount")
    if text == "rejected":
        raise Reject("no such article")
    if text == "rejected for a cause":
        try:
            int("x")
        except ValueError as error:
            raise Reject("no such number") from error
    if text == "missing":
        raise KeyError("article")
    if text == "endless":
        raise RetryAfter(0.05, "the shop is closed", maximum_retries=2)
    if count < 5:
        raise RetryAfter(0.05)
    if text == "fails at last":
        raise ValueError("no")
    Path(f"began {{text}} {{count}}").touch()


@app.listener("numbers", transacted={transacted})
{prefix}def count(number: int):
    raise AssertionError("it is no number")


@app.listener("texts", transacted={transacted})
{prefix}def read(message: jmsql.TextMessage):
    raise AssertionError("it is no text")
"""


@KINDS
def test_a_handler_decides_the_outcome_of_its_message(
    start_worker: StartWorker,
    jmsql_factory: ConnectionFactory,
    database: WorkerDatabase,
    prefix: str,
    transacted: bool,
) -> None:
    worker = start_worker(OUTCOMES.format(prefix=prefix, transacted=transacted))
    send(jmsql_factory, "orders", "rejected", "rejected for a cause", "missing", "endless", "later", "fails at last")
    send(jmsql_factory, "numbers", "a text")
    send(jmsql_factory, "texts", b"bytes")
    wait_for(lambda: len(database.rows(DEAD)) == 7 and worker.began(), PATIENCE)
    assert sorted(row[:3] for row in database.rows(DEAD)) == [
        ("maximum deliveries", 2, "ValueError: no"),
        ("maximum retries", 1, "jmsql.worker.RetryAfter: again in 0.05 s: the shop is closed"),
        ("rejected", 1, "KeyError: 'article'"),
        ("rejected", 1, "jmsql.worker.Reject: no such article"),
        ("rejected", 1, "jmsql.worker.Reject: no such number"),
        ("unreadable", 1, f"{UNREADABLE} The body is not int: Invalid JSON: expected value at line 1 column 1."),
        ("unreadable", 1, f"{UNREADABLE} The handler takes messages of the type TextMessage, and got BytesMessage."),
    ]
    assert worker.began() == [("later", 5)], "it has not failed, and each delivery counts"
    [(error,)] = database.rows("select last_error from jmsql.dead_letters where body = 'rejected for a cause'")
    assert "invalid literal for int() with base 10: 'x'" in error
    assert len(worker.wait_for_log("puts the message ID:.* off in delivery")) >= 6
    assert database.queued() == 7
    assert worker.stop() == 0
    assert len(re.findall("WARNING .* rejects the message", worker.log)) == 4
    assert re.findall("ERROR .* with (.*)", worker.log) == ["KeyError: 'article'", *["ValueError: no"] * 2]
    assert worker.log.count("Traceback") == 3, "what was rejected has none"


KILLED = (
    KILLED_BEFORE_STEP
    + """
from jmsql.worker import Reject, RetryAfter


@app.listener("orders", transacted={transacted}, redelivery=jmsql.RedeliveryPolicy(maximum_deliveries=10, delay=0.05))
{prefix}def handle(message):
    text = message.get_body(str)
    outcome, step = text.split()
    with Path("calls").open("a") as calls:
        calls.write(f"{{text}}\\n")
    has_killed = Path(f"killed {{text}}")
    if not has_killed.exists():
        has_killed.touch()
        steps.left = int(step)
    else:
        steps.left = None
    if outcome == "reject":
        raise Reject("no such article")
    if Path("calls").read_text().splitlines().count(text) < 3:
        raise RetryAfter(0.05)
"""
)
QUEUED = "select count(*) from jmsql.messages where queue = 'orders'"
STEPS = 5
"""More exchanges with PostgreSQL than an outcome takes."""


@KINDS
def test_a_process_killed_at_any_step_has_followed_its_handler_or_failed(
    start_worker: StartWorker,
    jmsql_factory: ConnectionFactory,
    database: WorkerDatabase,
    prefix: str,
    transacted: bool,
) -> None:
    worker = start_worker(
        KILLED.format(prefix=prefix, transacted=transacted),
        *("--timing", "minimum_restart_delay=0.01", "--timing", "maximum_restart_delay=0.01"),
    )
    rejected = [f"reject {step}" for step in range(STEPS)]
    later = [f"later {step}" for step in range(STEPS)]
    send(jmsql_factory, "orders", *rejected, *later)
    wait_for(
        lambda: database.rows("select count(*) from jmsql.messages where queue = 'orders'") == [(0,)], 2 * PATIENCE
    )
    dead = database.rows("select reason, body, deliveries from jmsql.dead_letters order by sequence")
    assert sorted(body for _, body, _ in dead) == rejected, "each is there exactly once"
    assert {reason for reason, _, _ in dead} == {"rejected"}
    assert all(deliveries <= 2 for _, _, deliveries in dead), "the death of the process counts once"
    calls = Counter((worker.directory / "calls").read_text().splitlines())
    assert all(1 <= calls[text] <= 2 for text in rejected)
    assert all(3 <= calls[text] <= 4 for text in later)
    assert len(worker.wait_for_log("was killed by SIGKILL")) >= 4, "steps that kill, for both outcomes"
    assert worker.stop() == 0


MODES = pytest.mark.parametrize("mode", [AcknowledgeMode.TRANSACTED, AcknowledgeMode.CLIENT])


@MODES
def test_the_error_given_to_a_session_decides_the_outcome(
    mode_session: Session, queue: Queue, others: Session, server: Server, mode: AcknowledgeMode
) -> None:
    send_texts(others, queue, "rejected", "later")
    undo = mode_session.rollback if mode is AcknowledgeMode.TRANSACTED else mode_session.recover
    with mode_session.create_consumer(queue) as consumer:
        receive(consumer)
        undo(Reject("by a session"))
        wait_for(lambda: server.rows(DEAD), PATIENCE)  # maintenance may have to move it
        assert server.rows(DEAD) == [("rejected", 1, "jmsql.worker.Reject: by a session", "rejected")]
        receive(consumer)
        undo(RetryAfter(timedelta(minutes=1)))
        counts = (
            "select delivery_count, retry_count, error_count, first_failed_at from jmsql_internal.delivery"
            " join jmsql_internal.delivery_outcome using (queue_id, inverse_priority, sequence)"
        )
        assert server.rows(counts) == [(1, 1, 0, None)]
        minute = "select next_attempt - now() between '50 seconds' and '1 minute' from jmsql_internal.delivery"
        assert server.rows(minute) == [(True,)]


@MODES
def test_interrupted_deliveries_count_as_failed_only_after_many(
    mode_session: Session, queue: Queue, others: Session, server: Server, mode: AcknowledgeMode
) -> None:
    send_texts(others, queue, "text")
    undo = mode_session.rollback if mode is AcknowledgeMode.TRANSACTED else mode_session.recover
    with mode_session.create_consumer(queue) as consumer:
        consumer.redelivery_policy = RedeliveryPolicy(maximum_deliveries=1)
        for number in range(MOST_INTERRUPTIONS):
            message = receive(consumer)
            assert (message.jms_redelivered, message.delivery_count) == (number > 0, number + 1)
            undo(Interruption())
        receive(consumer)
        undo(RetryAfter(0, maximum_retries=1))
        receive(consumer)
        undo(Interruption())
        wait_for(lambda: server.rows(DEAD), PATIENCE)  # maintenance may have to move it
        assert server.rows(DEAD) == [("maximum deliveries", 1, "The worker has ended before the handler.", "text")]


def test_a_listener_rejects_its_message(connection: Connection, queue: Queue, server: Server) -> None:
    def reject(_: object) -> None:
        raise Reject("by a listener")

    with connection.create_session() as session, session.create_consumer(queue) as consumer:
        send_texts(session, queue, "rejected")
        consumer.message_listener = reject
        connection.start()
        wait_for(lambda: server.rows(DEAD), PATIENCE)
    assert server.rows(DEAD) == [("rejected", 1, "jmsql.worker.Reject: by a listener", "rejected")]


@MODES
def test_rejected_messages_go_where_the_destination_says(
    mode_session: Session, others: Session, server: Server, mode: AcknowledgeMode, jmsql_clean_url: str
) -> None:
    with Administration(jmsql_clean_url) as administration:
        administration.create_queue("hopeless")
        administration.create_queue("orders", dead_letter_queue="hopeless")
    send_texts(others, Queue("orders"), "text")
    undo = mode_session.rollback if mode is AcknowledgeMode.TRANSACTED else mode_session.recover
    with mode_session.create_consumer(Queue("orders")) as consumer:
        receive(consumer)
        undo(Reject())
    # If something else holds the message for the moment, maintenance moves it.
    wait_for(
        lambda: server.rows("select queue, reason from jmsql.dead_letters") == [("hopeless", "rejected")], PATIENCE
    )


@MODES
def test_a_dead_letter_is_not_rejected_to_where_it_is(
    mode_session: Session, others: Session, server: Server, mode: AcknowledgeMode
) -> None:
    """It stays, and comes again as after any other error: at once after the first, then later."""
    send_texts(others, Queue("DLQ"), "text")
    undo = mode_session.rollback if mode is AcknowledgeMode.TRANSACTED else mode_session.recover
    with mode_session.create_consumer(Queue("DLQ")) as consumer:
        for _ in range(2):
            receive(consumer)
            undo(Reject())
    assert server.rows("select queue, delivery_count from jmsql.messages") == [("DLQ", 2)]
    assert server.rows("select next_attempt > now() from jmsql_internal.delivery") == [(True,)]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"delay": -1}, ValueError),
        ({"delay": "soon"}, TypeError),
        ({"delay": 1, "maximum_retries": 0}, ValueError),
        ({"delay": 1, "maximum_retries": 1.5}, TypeError),
    ],
)
def test_a_retry_that_cannot_be_is_refused(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        RetryAfter(**arguments)


def test_only_exceptions_are_never_retried() -> None:
    with pytest.raises(TypeError, match="Expected classes of exceptions in no_retry_for"):
        Application().listener("orders", no_retry_for=("ValueError",))  # type: ignore[arg-type]


def test_outcomes_survive_a_pickle() -> None:
    retry = pickle.loads(pickle.dumps(RetryAfter(5, "closed", maximum_retries=3)))
    assert (retry.delay, retry.reason, retry.maximum_retries) == (5, "closed", 3)
    assert str(pickle.loads(pickle.dumps(Reject("no")))) == "no"
