"""Steps of a chain whose annotations show that one can read nothing that the step before returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, cast

import pydantic
import pytest

import jmsql
from jmsql import Message, Session, TextMessage
from jmsql.client.sending.steps import steps_as_text
from jmsql.worker import Application, ListenerFunction
from jmsql.worker.handlers.body_checks import check_bodies

SESSION = cast("Session", None)
"""A refused send does not touch its session."""


@dataclass
class Order:
    number: int
    goods: str = "kite"


@dataclass
class Receipt:
    total: int


@dataclass
class Base:
    name: str


@dataclass
class Derived(Base):
    total: int


class Model(pydantic.BaseModel):
    total: int


class Renamed(pydantic.BaseModel):
    total: int = pydantic.Field(alias="sum")


class Reshaped(pydantic.BaseModel):
    total: int

    @pydantic.model_validator(mode="before")
    @classmethod
    def wrap(cls, value: Any) -> Any:
        return {"total": value}


def step(returned: Any, body: Any = str, **options: Any) -> ListenerFunction[..., Any]:
    """Return a handler with a body that returns a value of a type."""

    def handle(body: Any) -> Any: ...

    handle.__annotations__ = {"body": body, "return": returned}
    return Application().listener("steps", **options)(handle)


REFUSED = [
    (int, Order, "int is no Order"),
    (int, str, "int is no str"),
    (bool, date, "bool is no date"),
    (list[int], Order, r"list\[int\] is no Order"),
    (list[int], str, r"list\[int\] is no str"),
    (dict[str, int], int, r"dict\[str, int\] is no int"),
    (dict[str, int], bytes, r"dict\[str, int\] is no bytes"),
    (Receipt, list[int], r"Receipt is no list\[int\]"),
    (Receipt, Order, "Receipt has no 'number', which Order needs"),
    (Order, Model, "Order has no 'total', which Model needs"),
    (Order | int, Receipt, "Order has no 'total'"),
    (int | None, Receipt, "int is no Receipt"),
]
ACCEPTED = [
    (Order, Order),
    (Order, dict),
    (Order, str),
    (Order, bytes),
    (Order, Message),
    (Order, object),
    (Receipt, Model),
    (Model, Receipt),
    (Base, Derived),
    (Base, Model),
    (Order, Renamed),
    (Renamed, Receipt),
    (int, Reshaped),
    (int, float),
    (int, int | None),
    (int | Receipt, Model),
    (str, Order),
    (str, int),
    (bytes, Order),
    (datetime, date),
    (date, datetime),
    (dict[str, Any], Order),
    (dict, Model),
    (list[str], set[str]),
    (tuple[int, ...], list[int]),
    (TextMessage, Order),
    (Any, Order),
    (object, Order),
    (Receipt | None, Model),
    (None, str),
]


@pytest.mark.parametrize(("returned", "taken", "reason"), REFUSED)
def test_a_step_that_can_read_no_result_is_refused(returned: Any, taken: Any, reason: str) -> None:
    first, second = step(returned, bool), step(None, taken)
    sends: list[Callable[[], object]] = [
        lambda: first.send(SESSION, True, then=[second]),
        lambda: first.send_many(SESSION, [True], then=[second]),
        lambda: jmsql.send(SESSION, first, True, then=[second]),
        lambda: jmsql.send(SESSION, "any", True, then=[first, second]),
        lambda: steps_as_text(iter([first, second])),
    ]
    for send in sends:
        with pytest.raises(TypeError, match=f"by its return value: {reason}"):
            send()


@pytest.mark.parametrize(("returned", "taken"), ACCEPTED)
def test_a_step_that_may_read_a_result_is_accepted(returned: Any, taken: Any) -> None:
    assert steps_as_text([step(returned), step(None, taken)]) is not None


def test_a_result_of_none_hands_the_body_on() -> None:
    with pytest.raises(TypeError, match="Order has no 'total', which Receipt needs"):
        steps_as_text([step(None, Order), step(None, Receipt)])
    steps_as_text([step(None, Receipt), step(None, Receipt)])
    steps_as_text([step(Order | None, Receipt), step(None, Receipt)])


def test_steps_without_annotations_and_destinations_are_not_compared() -> None:
    app = Application()

    @app.listener("plain")
    def plain(body):  # type: ignore[no-untyped-def] # as programs without annotations have it
        return body

    @app.listener("chunks", chunk=5)
    def chunks(bodies: list[int]) -> int:
        return 5

    steps_as_text([plain, step(None, Order)])
    steps_as_text([step(int), plain, "queue", step(None, Order)])
    steps_as_text([chunks, step(None, Order)])
    with pytest.raises(TypeError, match="list of steps"):
        steps_as_text(plain)  # type: ignore[arg-type]


def test_a_reply_that_its_handler_cannot_read_is_refused_at_the_start() -> None:
    app = Application()

    @app.listener("receipts")
    def note(receipt: Receipt) -> None: ...

    @app.listener("orders", reply_to=note)
    def ship(order: Order) -> int | None:
        return 5

    @app.listener("quiet", reply_to=note)
    def quiet(order: Order) -> None: ...

    with pytest.raises(TypeError, match=r"ship has reply_to='queue://receipts'.*int is no Receipt"):
        check_bodies(app.listeners, [])
    check_bodies([each for each in app.listeners if not each.name.endswith("ship")], [])
