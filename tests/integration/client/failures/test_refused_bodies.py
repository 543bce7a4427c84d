"""Bodies that `receive_body` refuses in AUTO sessions, where the message is dequeued meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jmsql import ConnectionFactory, JMSContext, JMSException, MessageFormatException, Queue
from jmsql.admin import Administration
from jmsql.testing import receive_all, wait_for
from tests.integration.client.server import SESSIONS, Server

pytestmark = pytest.mark.usefixtures("maintenance_suspended")

PATIENCE = 60.0


@pytest.fixture
def context(factory: ConnectionFactory) -> Iterator[JMSContext]:
    with factory.create_context() as context:
        yield context


def type_that(act: Callable[[], bool]) -> type[Any]:
    """Make a type that does something when it is asked whether a body is of it."""

    class Acting(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return act()

    return Acting("Body", (), {})


def test_no_history_is_kept_of_it(context: JMSContext, jmsql_clean_url: str, server: Server) -> None:
    with Administration(jmsql_clean_url) as administration:
        queue = administration.create_queue("orders", history=True)
    context.create_producer().send(queue, "text")
    consumer = context.create_consumer(queue)
    for _ in range(3):
        with pytest.raises(MessageFormatException):
            consumer.receive_body(bytes, PATIENCE)
    assert server.rows("select count(*) from jmsql.history") == [(0,)]
    assert consumer.receive_body(str, PATIENCE) == "text"
    wait_for(lambda: server.rows("select delivery_count from jmsql.history") == [(1,)])


def test_nothing_stays_open_and_all_statements_can_be_used(context: JMSContext, queue: Queue, server: Server) -> None:
    context.create_producer(properties={"colour": "blue"}).send(queue, "text")
    every, blue = context.create_consumer(queue), context.create_consumer(queue, "colour = 'blue'")
    open_ones = "select from pg_stat_activity where application_name = %s and state like 'idle in %%'"
    for number in range(8):
        for consumer in (every, blue):
            with pytest.raises(MessageFormatException):
                consumer.receive_body(bytes, PATIENCE)
            wait_for(lambda: not server.rows(open_ones, SESSIONS))
        context.create_producer().send(Queue("others"), number)
        assert len(list(context.create_browser(queue))) == 1
    assert blue.receive_body(str, PATIENCE) == "text"
    assert len(receive_all(context.create_consumer(Queue("others")))) == 8


def test_a_connection_that_breaks_meanwhile_costs_no_message(context: JMSContext, queue: Queue, server: Server) -> None:
    def break_connection() -> bool:
        assert server.terminate(SESSIONS) >= 1
        return False

    context.create_producer().send(queue, "a").send(queue, "b")
    consumer = context.create_consumer(queue)
    with pytest.raises(MessageFormatException):
        consumer.receive_body(type_that(break_connection), PATIENCE)
    received = [message for _ in "ab" if (message := consumer.receive(PATIENCE))]
    assert [message.get_body(str) for message in received] == ["a", "b"]
    assert not any(message.jms_redelivered for message in received)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, JMSException])
def test_any_other_exception_leaves_the_message_as_well(
    context: JMSContext, queue: Queue, error: type[BaseException]
) -> None:
    def fail() -> bool:
        raise error("no")

    context.create_producer().send(queue, "text")
    consumer = context.create_consumer(queue)
    with pytest.raises(error):
        consumer.receive_body(type_that(fail), PATIENCE)
    assert consumer.receive_body(str, PATIENCE) == "text"


def test_a_consumer_that_passed_over_it_meanwhile_is_told(
    context: JMSContext, jmsql_factory: ConnectionFactory, queue: Queue
) -> None:
    with jmsql_factory.create_context() as other:
        others = other.create_consumer(queue)
        seen: list[object] = []

        def look() -> bool:
            seen.append(others.receive_no_wait())
            return False

        context.create_producer().send(queue, "text")
        with pytest.raises(MessageFormatException):
            context.create_consumer(queue).receive_body(type_that(look), PATIENCE)
        assert seen == [None]
        assert others.receive_body(str, PATIENCE) == "text"
