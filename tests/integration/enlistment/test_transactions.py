"""What holds for the transactions of applications of every kind: messages share the fate of the rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

import jmsql
import jmsql.asyncio
from jmsql.testing import FAST_TIMINGS, receive_all, wait_for
from tests.integration.asyncio.cancelling import cancelled_at
from tests.integration.client.locked_tables import lock
from tests.integration.client.server import Server, with_parameters
from tests.integration.enlistment.callers import (
    ASYNCHRONOUS,
    KINDS,
    NAME,
    ORDERS,
    Caller,
    Kind,
    received,
    resolved,
)

PRICES = jmsql.Topic("prices")

_APPLICATION = "from pg_stat_activity where datname = current_database() and application_name = %s"

MOST_WAITS = 60
"""More than an operation waits."""

asynchronous_alone = pytest.mark.parametrize("kind", ASYNCHRONOUS.values(), ids=ASYNCHRONOUS, indirect=True)


@pytest.fixture(params=list(KINDS.values()), ids=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


class Others:
    """What other clients see and do, on a connection where each statement commits by itself."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.server = Server(connection)
        self.context = jmsql.enlist(connection, timings=FAST_TIMINGS)

    def stored(self) -> list[int]:
        """The numbers of the orders that are stored."""
        return [number for (number,) in self.server.rows("select number from orders order by number")]

    def announced(self) -> list[int]:
        """The numbers of the orders whose messages are received, in their order."""
        bodies = [message.get_body(dict) for message in receive_all(self.context.create_consumer(ORDERS))]
        return [body["number"] for body in bodies if body is not None]

    def make_queue(self) -> None:
        """Make the queue, which would else be made in the application's transaction, and others would wait for that."""
        self.send(0)
        self.announced()

    def send(self, number: int) -> None:
        self.context.create_producer().send(ORDERS, {"number": number})

    def state(self) -> Any:
        """What the application's connection does."""
        return self.server.rows(f"select state {_APPLICATION}", NAME)[0][0]

    def last_change(self) -> Any:
        """When the application's connection last began to do something else."""
        return self.server.rows(f"select state_change {_APPLICATION}", NAME)[0][0]


@pytest.fixture(scope="module")
def others_connection(jmsql_url: str) -> Iterator[psycopg.Connection[Any]]:
    """One for all tests, each of which has a context of its own on it; the application's table is there meanwhile."""
    with psycopg.connect(jmsql_url, autocommit=True) as connection:
        connection.execute("create table orders (number integer primary key)")
        yield connection
        connection.execute("drop table orders")


@pytest.fixture
def others(others_connection: psycopg.Connection[Any], jmsql_clean_url: str) -> Others:
    assert jmsql_clean_url  # nothing of the tests before is left
    others_connection.execute("delete from orders")
    return Others(others_connection)


@pytest.fixture
def application_url(jmsql_clean_url: str) -> str:
    return with_parameters(jmsql_clean_url, application_name=NAME)


@pytest.fixture
async def caller(kind: Kind, application_url: str, others: Others) -> AsyncIterator[Caller]:
    assert others is not None  # it makes the application's table
    async with kind(application_url) as caller:
        await caller.begin()
        yield caller


async def test_a_commit_does_both_and_a_rollback_neither(caller: Caller, others: Others) -> None:
    await caller.place(1)
    await caller.place(2)
    assert others.stored() == others.announced() == []
    await caller.commit()
    await caller.begin()
    await caller.place(3)
    await caller.rollback()
    await caller.begin()
    await caller.place(4)
    await caller.commit()
    assert others.stored() == others.announced() == [1, 2, 4]


async def test_a_send_begins_the_transaction(caller: Caller, others: Others) -> None:
    await caller.send({"number": 1})
    assert others.announced() == []
    await caller.insert(1)
    await caller.commit()
    assert others.stored() == others.announced() == [1]


async def test_a_rollback_to_a_savepoint_undoes_only_later_work(caller: Caller, others: Others) -> None:
    await caller.place(1)
    async with caller.savepoint(taken_back=True):
        await caller.place(2)
    async with caller.savepoint():
        await caller.place(3)
    await caller.commit()
    assert others.stored() == others.announced() == [1, 3]


async def test_received_messages_are_gone_with_the_commit_and_back_after_a_rollback(
    caller: Caller, others: Others
) -> None:
    others.send(1)
    others.send(2)
    for end in (caller.rollback, caller.commit):
        message = await caller.receive()
        assert message is not None
        assert message.get_body(dict) == {"number": 1}
        assert not message.jms_redelivered
        await end()
        await caller.begin()
    assert others.announced() == [2]


async def test_messages_undone_by_a_savepoint_are_received_again_at_once(caller: Caller, others: Others) -> None:
    others.send(1)
    await caller.insert(1)
    consumer = await caller.consumer()
    for _ in range(2):
        async with caller.savepoint(taken_back=True):
            assert await received(consumer) is not None
            assert await received(consumer) is None
    await caller.commit()
    assert others.announced() == [1]


async def test_a_transaction_does_not_receive_its_own_messages(caller: Caller) -> None:
    await caller.place(1)
    assert await caller.receive() is None
    browser = await resolved(caller.context.create_browser(ORDERS))
    found = [each async for each in browser] if hasattr(browser, "__aiter__") else list(browser)
    assert found == []


class TestWaiting:
    async def test_it_waits_in_no_transaction_if_none_was_open(
        self, kind: Kind, application_url: str, others: Others
    ) -> None:
        async with kind(application_url) as caller:
            consumer = await caller.consumer()
            before = others.last_change()
            receiving = caller.start(lambda: consumer.receive(60))
            await asyncio.to_thread(wait_for, lambda: others.state() == "idle" and others.last_change() > before)
            others.send(1)
            message = await receiving
            assert message.get_body(dict) == {"number": 1}

    async def test_it_waits_in_the_callers_transaction(self, caller: Caller, others: Others) -> None:
        await caller.insert(1)
        consumer = await caller.consumer()
        receiving = caller.start(lambda: consumer.receive(60))
        await asyncio.to_thread(wait_for, lambda: others.state() == "idle in transaction")
        others.send(1)
        assert await receiving is not None
        await caller.rollback()
        assert others.stored() == []
        assert others.announced() == [1]


async def test_in_autocommit_mode_each_send_and_receive_is_on_its_own(
    kind: Kind, application_url: str, others: Others
) -> None:
    async with kind(application_url, autocommit=True) as caller:
        await caller.place(1)
        assert others.stored() == others.announced() == [1]
        others.send(2)
        assert await caller.receive() is not None
        assert others.announced() == []


async def test_messages_of_all_kinds_arrive(caller: Caller, others: Others) -> None:
    bytes_message = jmsql.BytesMessage()
    bytes_message.write_bytes(b"\x00\xff" * 70_000)
    text_message = jmsql.TextMessage("50 % off \\ \"quoted\" 'too' {braces} $1 %(name)s 🚀 \x00")
    text_message.set_object_property("price", 9.5)
    bodies = [bytes_message, text_message, jmsql.Message(), {"map": 1}, ["object", 1]]
    for body in bodies:
        await caller.send(body, priority=9, time_to_live=3600, properties={"seen": True}, jms_type="order")
    await caller.send("of a group", properties={"JMSXGroupID": "a"})
    await caller.send("later", delivery_delay=timedelta(hours=1))
    await caller.commit()
    assert others.server.rows("select count(*) from jmsql_internal.delayed_message") == [(1,)]
    await caller.begin()
    consumer = await caller.consumer()
    messages = [await received(consumer) for _ in range(len(bodies) + 1)]
    assert [type(message).__name__ for message in messages] == [
        "BytesMessage",
        "TextMessage",
        "Message",
        "MapMessage",
        "ObjectMessage",
        "TextMessage",
    ]
    first, second, _, fourth, fifth, last = messages
    assert isinstance(first, jmsql.BytesMessage)
    assert first.get_body(bytes) == b"\x00\xff" * 70_000
    assert isinstance(second, jmsql.TextMessage)
    assert second.text == text_message.text
    assert second.get_object_property("price") == 9.5
    assert second.jms_type == "order"
    assert second.jms_priority == 9
    assert fourth is not None
    assert fourth.get_body(dict) == {"map": 1}
    assert fifth is not None
    assert fifth.get_body(list) == ["object", 1]
    assert last is not None
    assert last.get_string_property("JMSXGroupID") == "a"


async def test_selectors_choose_received_messages(caller: Caller) -> None:
    for price in (5, 15):
        await caller.send(str(price), properties={"price": price, "name": "it's"})
    await caller.commit()
    await caller.begin()
    consumer = await caller.consumer(
        ORDERS, "price between 10 and 20.5 and name like '%''s' and JMSType in ('x') or price + 1 > 15"
    )
    message = await received(consumer)
    assert message is not None
    assert message.get_body(str) == "15"
    assert await received(consumer) is None


async def test_subscriptions_get_publications(caller: Caller, jmsql_factory: jmsql.ConnectionFactory) -> None:
    with jmsql_factory.create_context() as context:
        consumers = [context.create_consumer(PRICES, selector) for selector in (None, "price > 10")]
        for price in (5, 15):
            await caller.send("x" * 3000, PRICES, properties={"price": price})
        await caller.commit()
        counts = []
        for consumer, count in zip(consumers, (2, 1), strict=True):
            assert all(consumer.receive(timeout=60) for _ in range(count))
            counts.append(consumer.receive(timeout=0))
        assert counts == [None, None]


@pytest.mark.requirement("session.transactions.transactioninprogress")
async def test_the_transaction_is_the_callers_to_end(caller: Caller) -> None:
    with pytest.raises(jmsql.TransactionInProgressException, match="commit that instead"):
        await resolved(caller.context.commit())
    with pytest.raises(jmsql.TransactionInProgressException, match="roll that back instead"):
        await resolved(caller.context.rollback())
    with pytest.raises(jmsql.IllegalStateException):
        await resolved(caller.context.recover())


async def test_operations_that_need_a_jmsql_connection_are_refused(caller: Caller) -> None:
    context = caller.context
    for call in (
        context.create_temporary_queue,
        context.create_temporary_topic,
        lambda: context.create_consumer(PRICES),
        lambda: context.create_durable_consumer(PRICES, "name"),
        lambda: context.create_shared_consumer(PRICES, "name"),
        lambda: context.create_shared_durable_consumer(PRICES, "name"),
        lambda: context.unsubscribe("name"),
    ):
        with pytest.raises(jmsql.IllegalStateException, match="connection"):
            await resolved(call())
    with pytest.raises(jmsql.IllegalStateException, match="listener"):
        await resolved((await caller.consumer()).set_message_listener(print))


async def test_errors_of_the_server_are_those_of_jms(caller: Caller, kind: Kind) -> None:
    enlist: Any = jmsql.asyncio.enlist if kind in ASYNCHRONOUS.values() else jmsql.enlist
    context = enlist(caller.transaction, schema="nowhere")
    for code in ("42P01", "25P02"):
        with pytest.raises(jmsql.JMSException) as failure:
            await resolved(context.create_producer().send(ORDERS, "text"))
        assert failure.value.error_code == code
        assert failure.value.linked_exception is not None
    await caller.rollback()


async def test_a_lost_connection_is_reported_and_sqlalchemy_goes_on(caller: Caller, others: Others) -> None:
    await caller.send({"number": 1})
    assert others.server.terminate(NAME) == 1
    for call in (lambda: caller.send({"number": 2}), caller.receive):
        with pytest.raises(jmsql.JMSException) as failure:
            await call()
        assert failure.value.linked_exception is not None
    if hasattr(caller.transaction, "begin_nested"):
        await caller.rollback()
        await caller.place(3)
        await caller.commit()
        assert others.stored() == others.announced() == [3]


class TestCancellation:
    @asynchronous_alone
    async def test_a_receive_that_waits_leaves_the_transaction_whole(self, caller: Caller, others: Others) -> None:
        others.make_queue()
        await caller.place(1)
        consumer = await caller.consumer()
        receiving = asyncio.create_task(consumer.receive())
        await asyncio.to_thread(wait_for, lambda: others.state() == "idle in transaction")
        receiving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receiving
        others.send(2)
        assert await received(consumer, 60) is not None
        await caller.commit()
        assert others.stored() == others.announced() == [1]

    @asynchronous_alone
    async def test_a_message_that_comes_with_the_cancellation_is_received(
        self, caller: Caller, others: Others, blocker: psycopg.Connection
    ) -> None:
        others.send(1)
        consumer = await caller.consumer()
        lock(blocker, "message")
        receiving = asyncio.create_task(consumer.receive())
        await asyncio.to_thread(others.server.wait_until_someone_waits)
        receiving.cancel()
        blocker.rollback()
        assert await receiving is not None
        await caller.commit()
        assert others.announced() == []

    @asynchronous_alone
    async def test_a_send_is_done_as_a_whole(self, caller: Caller, others: Others, blocker: psycopg.Connection) -> None:
        await caller.insert(1)
        lock(blocker, "message")
        sending = asyncio.create_task(caller.send({"number": 1}))
        await asyncio.to_thread(others.server.wait_until_someone_waits)
        sending.cancel()
        blocker.rollback()
        await sending
        await caller.commit()
        assert others.stored() == others.announced() == [1]

    @asynchronous_alone
    async def test_wherever_a_send_waits(self, kind: Kind, application_url: str, others: Others) -> None:
        others.make_queue()
        for number in range(1, MOST_WAITS):
            async with kind(application_url) as caller:
                await caller.begin()
                outcome = await cancelled_at(number, caller.send({"number": 1}))
                await caller.send({"number": 2})
                await caller.commit()
            assert others.announced() == ([2] if outcome.was_cancelled else [1, 2])
            if outcome.waited < number:
                break
        assert 1 < number < MOST_WAITS - 1

    @asynchronous_alone
    async def test_wherever_a_receive_waits(self, kind: Kind, application_url: str, others: Others) -> None:
        for number in range(1, MOST_WAITS):
            others.send(1)
            others.send(2)
            async with kind(application_url) as caller:
                await caller.begin()
                consumer = await caller.consumer()
                outcome = await cancelled_at(number, consumer.receive(0))
                message = await received(consumer)
                assert message is not None
                assert message.get_body(dict) == {"number": 1 if outcome.was_cancelled else 2}
                await caller.commit()
            assert others.announced() == ([2] if outcome.was_cancelled else [])
            if outcome.waited < number:
                break
        assert 1 < number < MOST_WAITS - 1

    @asynchronous_alone
    async def test_wherever_a_receive_that_finds_nothing_waits(
        self, kind: Kind, application_url: str, others: Others
    ) -> None:
        others.make_queue()
        for number in range(1, MOST_WAITS):
            async with kind(application_url) as caller:
                consumer = await caller.consumer()
                outcome = await cancelled_at(number, consumer.receive(0))
                await caller.begin()
                await caller.place(number)
                await caller.commit()
            assert others.announced() == [number]
            if outcome.waited < number:
                break
        assert others.stored() == list(range(1, number + 1))
        assert 1 < number < MOST_WAITS - 1
