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
    Topic,
)
from jmsql.admin import Administration
from jmsql.types import AnyDestination
from jmsql.worker import Application, Router
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

    assert app.listeners[-1].reply_to == Queue("results")


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
