"""Indexes for selectors: a consumer with one reads matching messages alone, others go by the primary key."""

from __future__ import annotations

import itertools
import random
import string
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy

from jmsql import (
    ConnectionFactory,
    InvalidDestinationException,
    InvalidSelectorException,
    JMSException,
    TextMessage,
    batch,
    send,
)
from jmsql.client._sync.link.opening import open_runner
from jmsql.selectors import Selector
from jmsql.store.administration.selector_indexes import (
    IndexProgress,
    create_index,
    drop_index,
    explain,
    index_serving,
    selector_indexes,
)
from jmsql.store.receiving.receive import claim_statement, dequeue_statement, lock_statement
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.testing import wait_for
from tests.integration.store.plans import Plan, PlannedStatement, sql_of

MANY = 20_000
RARE = 5
SERVED = ["color = 'blue'", "weight > 5 AND color = 'blue'", "'blue' = color AND JMSType = 'order'"]
NOT_SERVED = ["weight > 5", "color = 'blue' OR color = 'red'", "color IN ('blue', 'red')", "NOT color = 'blue'"]


@pytest.fixture
def database(jmsql_clean_url: str) -> Iterator[psycopg.Connection[Any]]:
    url = sqlalchemy.make_url(jmsql_clean_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def queue_id(database: psycopg.Connection[Any]) -> int:
    """A queue with many messages, a few of which are blue and come last."""
    row = database.execute("insert into jmsql_internal.queue (name) values ('orders') returning queue_id").fetchone()
    assert row is not None
    database.execute(
        """insert into jmsql_internal.message
               (queue_id, message_type, inverse_priority, jms_delivery_mode, jms_type, properties)
           select %s, 'Message', 5, 2, 'order',
                  jsonb_build_object('weight', 7, 'color', case when n > %s then 'blue' else 'red' || n %% 40 end)
           from generate_series(1, %s) as n""",
        (row[0], MANY - RARE, MANY),
    )
    return int(row[0])


@pytest.fixture
def runner(jmsql_clean_url: str, database: psycopg.Connection[Any]) -> Iterator[PsycopgRunner]:
    with open_runner(jmsql_clean_url, "jmsql") as runner:
        yield runner
        for index in runner.run(selector_indexes()):
            for beginning in ("", "delayed_", "callback_"):
                database.execute(f'drop index if exists jmsql_internal."{beginning}{index.name}"')


numbers = itertools.count()


def long_color() -> TextMessage:
    """Make a message that an index on its color refuses."""
    message = TextMessage("over")
    message.set_string_property("color", "".join(random.choices(string.ascii_letters, k=20_000)))
    return message


def parsed(text: str) -> Selector:
    selector = Selector.parse(text)
    assert selector is not None
    return selector


def make(runner: PsycopgRunner, text: str) -> str:
    index, _ = create_index(runner, "orders", parsed(text), lambda progress: None)
    return index.name


def plans(database: psycopg.Connection[Any], queue_id: int, text: str | None) -> dict[str, Plan]:
    """The generic plans by which consumers dequeue, claim and lock messages."""
    found = {}
    selector = Selector.parse(text)
    for name, compose in (("dequeue", dequeue_statement), ("claim", claim_statement), ("lock", lock_statement)):
        statement = compose(selector)
        planned = PlannedStatement(database, f"{name} {next(numbers)}", sql_of(statement, "jmsql"))
        found[name] = planned.run(
            {
                "queue_id": queue_id,
                "lowest": [0] * 10,
                "limit": 10,
                "connection_id": 1,
                "visibility_timeout": None,
                **statement.parameters,
            }
        )
    return found


def scanned(plan: Plan) -> set[str | None]:
    return {scan.index_name for scan in plan.scans if scan.table == "message" and scan.kind != "Tid Scan"}


@pytest.mark.parametrize("vacuumed", [False, True], ids=["as it is", "after vacuum and analyze"])
def test_consumers_with_the_selector_read_the_index_and_all_others_the_primary_key(
    runner: PsycopgRunner, database: psycopg.Connection[Any], queue_id: int, vacuumed: bool
) -> None:
    before = plans(database, queue_id, "color = 'blue'")
    name = make(runner, "color = 'blue'")
    if vacuumed:
        database.execute("vacuum analyze jmsql_internal.message")
    for text in SERVED:
        for plan in plans(database, queue_id, text).values():
            assert name in scanned(plan)
            assert plan.most_rows <= 10 * RARE
    for other in (None, *NOT_SERVED[:1]):
        for plan in plans(database, queue_id, other).values():
            assert scanned(plan) == {"message_pkey"}
    after = plans(database, queue_id, "color = 'blue'")
    for kind, plan in after.items():
        assert plan.buffers < before[kind].buffers / 4


def test_an_index_on_all_that_is_compared_goes_before_one_on_less(
    runner: PsycopgRunner, database: psycopg.Connection[Any], queue_id: int
) -> None:
    one = make(runner, "color = 'blue'")
    two = make(runner, "color = 'blue' AND JMSType = 'order' AND weight > 3")
    assert one == make(runner, "color = 'green'") != two
    served_by = {
        text: runner.run(index_serving(parsed(text))) for text in ("color = 'a'", "JMSType = 'b' AND color = 'a'")
    }
    assert [None if index is None else index.name for index in served_by.values()] == [one, two]
    explanation = explain(runner, "orders", parsed("JMSType = 'order' AND color = 'blue'"))
    assert explanation.uses in {one, two}
    assert explanation.found == RARE


@pytest.mark.parametrize("text", NOT_SERVED)
def test_a_selector_that_no_index_serves_is_refused(runner: PsycopgRunner, queue_id: int, text: str) -> None:
    with pytest.raises(InvalidSelectorException, match="No index serves"):
        create_index(runner, "orders", parsed(text), lambda progress: None)
    assert runner.run(selector_indexes()) == []


def test_there_is_no_such_queue(runner: PsycopgRunner) -> None:
    with pytest.raises(InvalidDestinationException):
        create_index(runner, "nowhere", parsed("color = 'blue'"), lambda progress: None)


def test_a_made_index_is_dropped(runner: PsycopgRunner, queue_id: int) -> None:
    name = make(runner, "color = 'blue'")
    dropped = runner.run(drop_index(parsed("color = 'red'")))
    assert dropped is not None
    assert dropped.name == name
    assert runner.run(drop_index(parsed("color = 'red'"))) is None


def test_a_making_that_breaks_off_leaves_nothing_and_can_be_done_again(
    runner: PsycopgRunner, database: psycopg.Connection[Any], queue_id: int
) -> None:
    """PostgreSQL refuses values that do not fit into a page of the index."""
    long = "".join(random.choices(string.ascii_letters, k=20_000))
    database.execute(
        "update jmsql_internal.message set properties = jsonb_build_object('color', %s::text) "
        "where sequence = (select max(sequence) from jmsql_internal.message)",
        (long,),
    )
    with pytest.raises(JMSException, match="index row"):
        make(runner, "color = 'blue'")
    assert runner.run(selector_indexes()) == []
    database.execute("delete from jmsql_internal.message where length(properties ->> 'color') > 100")
    assert make(runner, "color = 'blue'")


def test_a_delayed_message_that_the_index_would_refuse_when_it_is_due_is_refused_at_its_send(
    runner: PsycopgRunner, jmsql_factory: ConnectionFactory, queue_id: int
) -> None:
    """Else no delayed message of any queue would be delivered after that one."""
    make(runner, "color = 'blue'")
    with jmsql_factory.create_context() as context:
        long = "".join(random.choices(string.ascii_letters, k=20_000))
        with pytest.raises(JMSException, match="index row"):
            send(context, "paints", "long", properties={"color": long}, delivery_delay=0.01)
        send(context, "paints", "short", properties={"color": "red"}, delivery_delay=0.02)
        received = context.create_consumer(context.create_queue("paints")).receive(timeout=60.0)
        assert received is not None
        assert received.get_body(str) == "short"
    assert runner.run(drop_index(parsed("color = 'blue'"))) is not None
    with jmsql_factory.create_context() as context:
        send(context, "paints", "long", properties={"color": long}, delivery_delay=60.0)


def test_a_callback_that_the_index_would_refuse_at_the_end_is_refused_when_its_batch_opens(
    runner: PsycopgRunner, jmsql_factory: ConnectionFactory, queue_id: int
) -> None:
    """Else the last message of the batch could never be acknowledged."""
    make(runner, "color = 'blue' AND JMSCorrelationID = 'x'")
    make(runner, "JMSCorrelationID = 'x'")
    with (
        jmsql_factory.create_connection() as connection,
        pytest.raises(JMSException, match="index row"),
        batch(connection, "paints", on_end="done", body=long_color()) as refused,
    ):
        refused.send("paints", "a")


def test_a_batch_whose_end_an_index_refuses_keeps_no_message_and_no_other_batch_from_its_end(
    runner: PsycopgRunner, database: psycopg.Connection[Any], jmsql_factory: ConnectionFactory, queue_id: int
) -> None:
    """The index was made by hand, perhaps. The server's log names the batch."""
    make(runner, "color = 'blue'")
    [index] = runner.run(selector_indexes())
    database.execute(f'drop index jmsql_internal."callback_{index.name}"')
    warnings: list[str | None] = []
    database.add_notice_handler(lambda notice: warnings.append(notice.message_primary))
    with jmsql_factory.create_connection() as connection, jmsql_factory.create_context() as context:
        with batch(connection, "refused", on_end="done", body=long_color()) as refused:
            refused.send("paints", "a")
        with batch(connection, "other", on_end="done") as other:
            other.send("paints", "b")
        for _ in range(2):
            assert context.create_consumer(context.create_queue("paints")).receive(timeout=60.0) is not None
        ended = context.create_consumer(context.create_queue("done")).receive(timeout=60.0)
        assert ended is not None
        assert ended.jms_correlation_id == f"batch {other.id}"
    database.execute("select jmsql_internal.check_batches(10)")
    assert [text for text in warnings if text is not None and text.startswith(f"The batch {refused.id} cannot end")]
    states = database.execute("select name, state, done from jmsql.batches order by name").fetchall()
    assert states == [("other", "ended", 1), ("refused", "running", 1)]


def test_progress_names_the_phase_of_waiting(
    runner: PsycopgRunner, database: psycopg.Connection[Any], queue_id: int
) -> None:
    told: list[IndexProgress] = []
    making = threading.Thread(target=lambda: create_index(runner, "orders", parsed("color = 'blue'"), told.append))
    with database.transaction():
        database.execute("delete from jmsql_internal.message where sequence < 0")
        making.start()
        wait_for(lambda: any(progress.phase.startswith("waiting for") for progress in told), 60.0)
    making.join(60.0)
    assert runner.run(index_serving(parsed("color = 'blue'"))) is not None
