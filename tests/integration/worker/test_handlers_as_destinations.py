"""A registered handler stands for the destination of its messages, wherever a destination is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import jmsql
import jmsql.asyncio
from jmsql import (
    Connection,
    ConnectionFactory,
    IllegalStateException,
    InvalidDestinationException,
    MessageFormatException,
    Queue,
    RedeliveryPolicy,
    Topic,
)
from jmsql.admin import Administration
from jmsql.types import AnyDestination
from jmsql.worker import Application, Router
from jmsql.worker.handlers.body_checks import check_bodies
from tests.integration.worker.conftest import PATIENCE

app = Application()
router = Router()


@app.listener("numbers")
def double(number: int) -> int:
    return 2 * number


@app.listener("doubled")
def note(number: int) -> None:
    pass


@app.listener("topic://news", subscription="readers")
def read(text: str) -> None:
    pass


@router.listener("lost")
def lost() -> None:
    pass


def unregistered() -> None:
    pass


def test_a_session_sends_to_handlers_and_receives_from_their_queues(connection: Connection) -> None:
    connection.start()
    with connection.create_session() as session:
        jmsql.send(session, double, 1, reply_to=note)
        jmsql.JMSContext(session).create_producer().send(double, 2)
        session.create_producer(double).send(double.checked_message(3))
        found = [each.get_body(int) for each in session.create_browser(double)]
        assert found == [1, 2, 3]
        consumer = session.create_consumer(double)
        first = consumer.receive(PATIENCE)
        assert first is not None
        assert first.jms_reply_to == Queue("doubled")
        subscriber = session.create_consumer(read)
        jmsql.send(session, read, "text")
        assert subscriber.receive_body(str, PATIENCE) == "text"
        assert session.create_shared_durable_consumer(read, "mine").destination == Topic("news")


def test_bodies_for_a_handler_are_checked_however_they_are_sent(connection: Connection, jmsql_url: str) -> None:
    connection.start()
    with connection.create_session() as session, Administration(jmsql_url) as administration:
        sends: list[Callable[[], Any]] = [
            lambda: jmsql.send(session, double, "one"),
            lambda: jmsql.send(connection, double, "one"),
            lambda: jmsql.JMSContext(session).create_producer().send(double, "one"),
            lambda: connection.requestor(double).request("one"),
            lambda: administration.set_schedule("daily", "@daily", double, "one"),
        ]
        for send in sends:
            with pytest.raises(MessageFormatException, match="The body is not int"):
                send()
        assert list(session.create_browser(double)) == []


async def test_a_requestor_asks_a_handler(jmsql_factory: ConnectionFactory) -> None:
    app = Application(jmsql_factory)

    @app.listener("squares")
    def square(number: int) -> int:
        return number * number

    factory = jmsql.asyncio.ConnectionFactory(jmsql_factory.url, timings=jmsql_factory.timings)
    async with app.running(), await factory.create_connection() as connection:
        await connection.start()
        reply = await connection.requestor(square).request(7, timeout=PATIENCE)
        assert reply.get_body(int) == 49


def test_a_listener_replies_to_a_handler() -> None:
    app = Application()

    @app.listener("results")
    def results(number: int) -> None:
        pass

    @app.listener("sums", reply_to=results)
    def add(numbers: list[int]) -> int:
        return sum(numbers)

    assert app.listeners[-1].reply_destination == Queue("results")


def parts() -> tuple[Router, Router]:
    """Return a router whose handler names another's: for replies, dead letters, and the ticks of a schedule."""
    ends, works = Router(), Router()

    @ends.listener("ends")
    def end(number: int) -> None:
        pass

    policy = RedeliveryPolicy(maximum_deliveries=1, dead_letter_queue=end)

    @works.listener("works", reply_to=end, redelivery=policy)
    def work(number: int) -> int:
        if not number:
            raise ValueError
        return number

    works.schedule("hourly", "@hourly", end, 5)
    return ends, works


async def test_a_handler_of_a_router_is_named_before_an_application_includes_it(
    jmsql_factory: ConnectionFactory,
) -> None:
    ends, works = parts()
    app = Application(jmsql_factory)
    app.include(works)
    app.include(ends, prefix="last.")
    app.listeners = [each for each in app.listeners if works.has(each)]  # so that the messages stay there
    factory = jmsql.asyncio.ConnectionFactory(jmsql_factory.url, timings=jmsql_factory.timings)
    async with app.running(), await factory.create_context() as context:
        producer = context.create_producer()
        await producer.send("works", 1)
        await producer.send("works", 0)
        consumer = await context.create_consumer("last.ends")
        assert {await consumer.receive_body(int, timeout=PATIENCE) for _ in range(2)} == {0, 1}
    assert [each.destination for each in app.schedules] == [Queue("last.ends")]


def test_a_handler_that_is_named_stands_for_its_queue_in_the_same_application() -> None:
    ends, works = parts()
    applications = {"a.": Application(), "b.": Application()}
    for prefix, app in applications.items():
        app.include(works)
        app.include(ends, prefix)
        assert app.listeners[0].reply_destination == Queue(f"{prefix}ends")
        assert app.schedules[0].destination == Queue(f"{prefix}ends")
    with pytest.raises(
        IllegalStateException, match=r"dead_letter_queue of .*work: .*end is in several places: queue://a"
    ):
        applications["a."].listeners[0].resolve_handlers()


async def test_an_application_with_an_unknown_handler_does_not_start() -> None:
    _, works = parts()
    app = Application()
    app.include(works)
    with pytest.raises(IllegalStateException, match=r"^The schedule 'hourly': .*end belongs to a Router"):
        async with app.running():
            pass
    with pytest.raises(IllegalStateException, match=r"^The reply_to of the handler .*work: .*end belongs to a Router"):
        check_bodies(app.listeners, [])


def test_a_policy_takes_a_queue_and_its_handler_for_dead_letters() -> None:
    for given in ("doubled", "queue://doubled", Queue("doubled"), note):
        assert RedeliveryPolicy(3, dead_letter_queue=given).dead_letter_queue == "doubled"
    with pytest.raises(InvalidDestinationException, match="Expected a queue"):
        RedeliveryPolicy(3, dead_letter_queue=read)
    with pytest.raises(InvalidDestinationException, match=r"once @app\.listener has registered it"):
        RedeliveryPolicy(3, dead_letter_queue=unregistered)  # type: ignore[arg-type]


def test_an_administration_takes_handlers_for_their_destinations(connection: Connection, jmsql_url: str) -> None:
    with Administration(jmsql_url) as administration:
        administration.create(note)
        administration.create(double, dead_letter_queue=note)
        assert administration.destination(double).settings["dead_letter_queue"] == "doubled"
        administration.pause(double)
        administration.resume(double)
        jmsql.send(connection, double, 1)
        assert administration.depth(double).number == 1
        assert administration.move(double, note) == 1
        assert administration.count(note) == 1
        administration.set_schedule("hourly", "@hourly", double, 5)
        assert administration.purge(note) == 1


@pytest.mark.parametrize("given", [unregistered, test_a_listener_replies_to_a_handler])
def test_a_function_that_is_not_registered_is_refused_with_advice(connection: Connection, given: Any) -> None:
    with connection.create_session() as session:
        for use in (lambda: jmsql.send(session, given, 1), lambda: session.create_consumer(given)):
            with pytest.raises(InvalidDestinationException, match=r"once @app\.listener has registered it"):
                use()
        with pytest.raises(InvalidDestinationException, match=r"^Expected a destination such as .* got 5\.$"):
            session.create_consumer(5)  # type: ignore[arg-type]
        with pytest.raises(InvalidDestinationException, match="Expected a queue"):
            session.create_browser(read)
        with pytest.raises(IllegalStateException, match="a Router that no application includes"):
            session.create_consumer(lost)


def test_type_checkers_take_handlers_for_destinations() -> None:
    """Checked by mypy."""
    given: list[AnyDestination] = [double, "numbers", Queue("numbers"), read]
    assert given[0] is double
