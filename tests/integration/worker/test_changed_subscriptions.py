"""A release whose listener has another selector, or another topic, for a durable subscription that is there."""

from __future__ import annotations

import signal

import pytest

from jmsql import ConnectionFactory, Topic
from jmsql.testing import receive_all, wait_for
from tests.integration.worker.conftest import PATIENCE, StartWorker, WorkerDatabase, WriteApplication

SUBSCRIPTION = """
    select t.name, s.selector from jmsql_internal.subscription s join jmsql_internal.topic t using (topic_id)
    where s.name = 'desk'"""


def release(selector: str, topic: str = "prices") -> str:
    return f"""
@app.listener(jmsql.Topic({topic!r}), subscription="desk", selector={selector!r})
def note(message, database):
    store(database, message)
"""


def publish(factory: ConnectionFactory, *regions: str) -> None:
    with factory.create_context() as context:
        for region in regions:
            message = context.create_text_message(region)
            message.set_string_property("region", region)
            context.create_producer().send(Topic("prices"), message)


@pytest.fixture
def backlog(jmsql_factory: ConnectionFactory, database: WorkerDatabase) -> None:
    """Two messages from the north, which the subscription of the former release has collected."""
    with jmsql_factory.create_context() as context:
        context.create_shared_durable_consumer(Topic("prices"), "desk", "region = 'north'").close()
    publish(jmsql_factory, "north", "south", "north")


@pytest.mark.parametrize(
    ("source", "options", "difference"),
    [
        (
            release("region = 'south'"),
            [],
            "it has the selector \"region = 'north'\", and \"region = 'south'\" is wanted",
        ),
        (release("region = 'north'", "costs"), [], "its topic is 'prices', and 'costs' is wanted"),
        (
            release("region = 'north'", "costs"),
            ["--on-subscription-change", "keep"],
            "its topic is 'prices', and 'costs' is wanted",
        ),
    ],
    ids=["selector", "topic", "topic, to be kept"],
)
@pytest.mark.usefixtures("backlog")
def test_a_worker_that_would_drop_messages_does_not_start_and_names_the_ways_out(
    start_worker: StartWorker, database: WorkerDatabase, source: str, options: list[str], difference: str
) -> None:
    worker = start_worker(source, *options)
    assert worker.exit_code() == 3
    said = worker.log.splitlines()[-1]
    assert difference in said
    assert "and holds 2 messages. Nothing was changed." in said
    assert ("--on-subscription-change keep" in said) == (not options and "costs" not in source)
    assert "--on-subscription-change drop" in said
    assert "`jmsql unsubscribe desk`" in said
    assert database.queued() == 2
    assert database.rows(SUBSCRIPTION) == [("prices", "region = 'north'")]


@pytest.mark.usefixtures("backlog")
def test_the_backlog_may_be_kept(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    """By two processes that start at once, too; the new selector decides from then on."""
    worker = start_worker(release("region = 'south'"), "--on-subscription-change", "keep", "--processes", "2")
    worker.wait_until_ready()
    publish(jmsql_factory, "north", "south")
    database.wait_until_handled(3)
    assert [text for text, _ in database.handled()] == ["north", "north", "south"]
    assert worker.stop() == 0


@pytest.mark.usefixtures("backlog")
def test_the_backlog_may_be_dropped(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    worker = start_worker(release("region = 'south'"), "--on-subscription-change", "drop")
    worker.wait_until_ready()
    assert "Dropped: 2 messages." in worker.log
    publish(jmsql_factory, "north", "south")
    database.wait_until_handled(1)
    assert [text for text, _ in database.handled()] == ["south"]
    assert worker.stop() == 0


@pytest.mark.parametrize("change", ["keep", "drop"])
def test_a_release_does_not_change_the_subscription_while_another_consumes(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase, change: str
) -> None:
    with jmsql_factory.create_context() as former:
        consumer = former.create_shared_durable_consumer(Topic("prices"), "desk", "region = 'north'")
        worker = start_worker(release("region = 'south'"), "--on-subscription-change", change)
        assert worker.exit_code() == 3
        assert "end it before this one starts" in worker.log
        publish(jmsql_factory, "north", "south")
        assert [message.get_body(str) for message in receive_all(consumer)] == ["north"]
    assert database.rows(SUBSCRIPTION) == [("prices", "region = 'north'")]


def test_new_code_with_another_selector_does_not_take_the_places_of_the_old(
    start_worker: StartWorker,
    jmsql_factory: ConnectionFactory,
    database: WorkerDatabase,
    write_application: WriteApplication,
) -> None:
    worker = start_worker(release("region = 'north'"))
    worker.wait_until_ready()
    write_application(release("region = 'south'"))
    worker.send_signal(signal.SIGHUP)
    worker.wait_for_log("The old processes go on: .*close that one first")
    publish(jmsql_factory, "north")
    wait_for(lambda: [text for text, _ in database.handled()] == ["north"], PATIENCE)
    assert worker.stop() == 0
