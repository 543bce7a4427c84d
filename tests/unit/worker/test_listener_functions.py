"""Registered handlers are objects: called as before, with a destination."""

from __future__ import annotations

import asyncio
import functools
import inspect
import pickle
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal
from unittest.mock import Mock

import pytest
import sqlalchemy
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncSession

from jmsql import IllegalStateException, JMSContext, MessageFormatException, Queue, Session, TextMessage, Topic
from jmsql import asyncio as jms
from jmsql import send as jmsql_send
from jmsql.client.sending.options import SendOptions
from jmsql.worker import Application, HandlerCall, ListenerFunction, Router


@dataclass
class Order:
    number: int


app = Application()
SESSION = Mock(Session)


@app.listener("orders")
def ship(order: Order, limit: int = 5) -> str:
    """Ship an order."""
    return f"{order.number} of {limit}"


def test_a_call_calls_the_function_and_nothing_else() -> None:
    assert ship(Order(1)) == "1 of 5"
    assert ship(order=Order(1), limit=6) == "1 of 6"
    assert (ship.__doc__, ship.__module__, ship.name) == ("Ship an order.", __name__, f"{__name__}.ship")
    assert list(inspect.signature(ship).parameters) == ["order", "limit"]
    assert pickle.loads(pickle.dumps(ship)) is ship


def test_a_callable_objects_attributes_do_not_hide_those_of_the_listener() -> None:
    class Mailer:
        def __init__(self) -> None:
            self.send = self.options = self._declared = Mock()

        def __call__(self, body: str) -> None:
            pass

    mailer = app.listener("mail")(Mailer())
    assert mailer.send == ListenerFunction.send.__get__(mailer)
    assert mailer.destination == Queue("mail")


async def later(order: Order, *, limit: int = 5) -> int:
    return min(order.number, limit)


class Later:
    async def __call__(self, order: Order) -> int:
        return order.number

    def number(self, order: Order) -> int:
        return order.number


@pytest.mark.parametrize("function", [later, functools.partial(later, limit=6), Later(), Later().__call__])
def test_frameworks_know_a_coroutine_function(function: Callable[[Order], Coroutine[Any, Any, int]]) -> None:
    handler = app.listener("awaited")(function)
    assert asyncio.iscoroutinefunction(handler)
    assert inspect.iscoroutinefunction(handler)
    assert asyncio.run(handler(Order(4))) == 4


@pytest.mark.parametrize("function", [ship.function, functools.partial(ship.function, limit=6), Later().number])
def test_frameworks_know_a_plain_function(function: Callable[[Order], object]) -> None:
    handler = app.listener("called")(function)
    assert not asyncio.iscoroutinefunction(handler)
    assert not inspect.iscoroutinefunction(handler)
    assert inspect.signature(handler) == inspect.signature(function)


def test_a_handler_of_two_queues_sends_to_that_of_the_outer_decorator() -> None:
    both = app.listener("b")(ship)
    assert both.function is ship.function
    assert (both.destination, ship.destination) == (Queue("b"), Queue("orders"))


def test_a_target_in_the_place_of_the_body_is_named() -> None:
    class Taken(Session):
        def __init__(self) -> None: ...

    for body in (Taken(), orm.Session(), AsyncSession()):
        for send in (ship.send, ship.send_many):
            with pytest.raises(TypeError, match=r"target comes before the body: write .*ship\.send\(target, body\)"):
                send(Order(1), body)  # type: ignore[arg-type,call-overload]


def test_options_that_a_send_does_not_know_are_refused_with_those_that_it_knows() -> None:
    for send, body in ((ship.send, Order(1)), (ship.send_many, [Order(1)])):
        with pytest.raises(TypeError, match=r"takes no countdown=… and no eta=…; it takes priority, delivery_delay, "):
            send(SESSION, body, countdown=5, eta=6)  # type: ignore[call-overload]


def test_the_options_are_those_of_the_send() -> None:
    parameters = set(inspect.signature(jmsql_send).parameters)
    assert parameters - {"target", "destination", "body", "schema"} == set(SendOptions.__annotations__)


@pytest.mark.parametrize(
    ("annotation", "body", "text"),
    [
        (list[Order], [Order(1)], '[{"number":1}]'),
        (dict[str, Order] | None, {"a": Order(1)}, '{"a":{"number":1}}'),
        (Literal["red", "blue"], "red", '"red"'),
        (date, "2026-11-28", '"2026-11-28"'),
        (int, "5", "5"),
        (Order, '{"number": 1}', '{"number": 1}'),
        (str, "red", "red"),
        (object, "red", "red"),
    ],
    ids=str,
)
def test_a_body_that_no_message_holds_goes_as_json(annotation: Any, body: object, text: str) -> None:
    def handle(body): ...  # type: ignore[no-untyped-def]

    handle.__annotations__ = {"body": annotation}
    application = Application()
    application.listener("orders")(handle)
    assert application.listeners[0].checked_message(body).get_body(str) == text


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("body", [5, {"number": "five"}, TextMessage('{"number": "five"}'), Order("five"), None])  # type: ignore[arg-type]
def test_a_body_that_the_handler_would_refuse_is_refused_by_the_sender(body: object) -> None:
    with pytest.raises(MessageFormatException, match=r"Order|number"):
        ship.send(SESSION, body)  # type: ignore[call-overload]


def test_a_handler_of_chunks_is_sent_the_elements() -> None:
    @app.listener("chunks", chunk=10)
    def handle(orders: list[Order]) -> None: ...

    (listener,) = [each for each in app.listeners if handle.has(each)]
    assert listener.checked_message(Order(1)).get_body(str) == '{"number":1}'
    with pytest.raises(MessageFormatException, match="The body is not Order"):
        handle.send(SESSION, [Order(1)])


def test_type_checkers_know_the_types_of_a_send() -> None:
    """Checked by mypy, which refuses a comment that ignores no error."""

    @app.listener("orders")
    async def awaited(order: Order, database: AsyncSession) -> int:
        return order.number

    @app.listener("orders")
    def after_database(database: sqlalchemy.Connection, order: Order) -> None: ...

    @app.listener("orders")
    def after_call(call: HandlerCall, order: Order) -> None: ...

    @app.listener("orders")
    def after_two(database: sqlalchemy.Connection, context: JMSContext, order: Order) -> None: ...

    @app.listener("orders")
    def several(orders: list[Order]) -> None: ...

    @app.listener("orders")
    def message(message: TextMessage, database: sqlalchemy.Connection) -> None: ...

    @app.listener("orders")
    def nothing() -> None: ...

    @app.listener("orders")
    def call_alone(call: HandlerCall) -> None: ...

    @app.listener("orders")
    def two_alone(database: sqlalchemy.Connection, context: JMSContext) -> None: ...

    @app.listener("orders")
    def default(number: int = 5) -> None: ...

    @app.listener("orders", chunk=10)
    def chunk(orders: list[Order]) -> None: ...

    def blocking(session: Session, database: sqlalchemy.Connection) -> str:
        for target in (session, database):
            ship.send(target, Order(1), priority=7)
            awaited.send(target, Order(1))
            after_database.send(target, Order(1))
            after_call.send(target, Order(1))
            after_two.send(target, Order(1))
            several.send(target, [Order(1)])
            chunk.send(target, Order(1))
            chunk.send_many(target, [Order(1)])
            message.send(target, TextMessage())
            nothing.send(target, None)
            call_alone.send(target, None)
            two_alone.send(target, None)
            default.send(target, None)
            default.send(target, 6)
        ship.send(session, 5)  # type: ignore[call-overload]
        awaited.send(session, 5)  # type: ignore[call-overload]
        after_database.send(session, 5)  # type: ignore[call-overload]
        after_call.send(session, 5)  # type: ignore[call-overload]
        after_two.send(session, 5)  # type: ignore[call-overload]
        several.send(session, [5])  # type: ignore[list-item]
        chunk.send(session, 5)  # type: ignore[call-overload]
        ship.send_many(session, [5])  # type: ignore[list-item]
        ship.send(session, Order(1), prority=5)  # type: ignore[call-overload]
        ship(5)  # type: ignore[arg-type]
        return ship.send(session, Order(1))

    async def tasks(session: jms.Session, database: AsyncSession) -> str:
        number: int = await awaited(Order(1), database)
        await ship.send(session, Order(number))
        await awaited.send(database, 5)  # type: ignore[call-overload]
        return await awaited.send(database, Order(1))

    assert callable(blocking)
    assert callable(tasks)


def shop() -> tuple[Router, ListenerFunction[[Order], None], ListenerFunction[[str], None]]:
    router = Router()

    @router.listener("orders")
    def take(order: Order) -> None: ...

    @router.listener(Topic("prices"), subscription="desk")
    def note(text: str) -> None: ...

    return router, take, note


def test_an_application_includes_a_router_under_a_prefix() -> None:
    router, take, note = shop()
    application = Application()
    application.include(router, prefix="shop.")
    assert [each.destination for each in application.listeners] == [Queue("shop.orders"), Topic("shop.prices")]
    assert (take.destination, note.destination) == (Queue("shop.orders"), Topic("shop.prices"))


def test_routers_include_routers_and_their_later_listeners() -> None:
    inner, take, _ = shop()
    outer, application = Router(), Application()
    application.include(outer, prefix="a.")
    outer.include(inner, prefix="b.")
    late = inner.listener("late")(ship)
    assert [each.destination.name for each in application.listeners] == ["a.b.orders", "a.b.prices", "a.b.late"]
    assert (take.destination.name, late.destination.name) == ("a.b.orders", "a.b.late")
    assert repr(outer) == "<Router b.orders, b.prices, b.late>"


def test_a_listener_of_a_router_that_is_nowhere_included_does_not_send() -> None:
    _, take, _ = shop()
    with pytest.raises(IllegalStateException, match="a Router that no application includes here"):
        take.send(SESSION, Order(1))


def test_a_listener_in_several_places_does_not_choose_one() -> None:
    router, take, _ = shop()
    Application().include(router)
    Application().include(router)
    assert take.destination == Queue("orders")
    Application().include(router, "other.")
    with pytest.raises(IllegalStateException, match=r"several places: queue://orders \(jmsql\), queue://other.orders"):
        take.send(SESSION, Order(1))


def test_an_inclusion_that_fails_includes_nothing() -> None:
    router, _, _ = shop()

    @router.listener("sessions")
    def handle(session: object, first: Order, second: Order) -> None: ...

    application = Application()
    with pytest.raises(TypeError, match="for which a message has no value"):
        application.include(router)
    assert application.listeners == []


def test_a_router_is_included_once_and_not_in_itself() -> None:
    inner, outer = Router(), Router()
    outer.include(inner)
    with pytest.raises(ValueError, match="included here already"):
        outer.include(inner, "again.")
    for router in (inner, outer):
        with pytest.raises(ValueError, match="cannot include itself"):
            inner.include(router)
    for other in (Application(), 5):
        with pytest.raises(TypeError, match=r"Expected a jmsql\.worker\.Router"):
            outer.include(other)  # type: ignore[arg-type]
