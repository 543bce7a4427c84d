"""What surrounds calls, and what it provides, is checked when a handler is registered as far as it can be known."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import orm

from jmsql import TextMessage
from jmsql.worker import Application, HandlerCall


class Client:
    """No message has one."""


class Gateway(ABC):
    """An abstract class."""

    @abstractmethod
    def pay(self) -> None: ...


class Bank(Gateway):
    def pay(self) -> None: ...


@dataclass
class Order:
    """A body."""

    number: int


@dataclass
class Settings:
    """What could be a body, too."""

    limit: int


@contextmanager
def around(_: HandlerCall) -> Iterator[None]:
    yield


@asynccontextmanager
async def asynchronous(_: HandlerCall) -> AsyncIterator[None]:
    yield


class Asynchronous(AbstractAsyncContextManager[None]):
    def __init__(self, call: HandlerCall) -> None:
        pass

    async def __aexit__(self, *_: object) -> None: ...


def plain(text: str) -> None: ...


def with_client(order: Order, client: Client) -> None: ...


def with_settings(settings: Settings, order: Order, body: dict[str, object]) -> None: ...


def body_of(app: Application) -> Any:
    return app.listeners[-1].body


def test_without_it_nothing_is_provided() -> None:
    with pytest.raises(TypeError, match=r"parameter client: .*or a class that around=… of the application provides"):
        Application().listener("orders")(with_client)
    with pytest.raises(ValueError, match="provides=… names the classes that around=… provides, and there is none"):
        Application(provides=[Client])


def test_a_class_that_is_no_body_may_be_provided() -> None:
    app = Application(around=around)
    app.listener("orders")(with_client)
    assert body_of(app) is Order


def test_of_several_that_could_be_the_body_one_is_and_the_others_are_provided() -> None:
    app = Application(around=around)

    @app.listener("orders")
    def first(order: Order, settings: Settings) -> None: ...

    assert body_of(app) is Order
    app.listener("orders")(with_settings)
    assert body_of(app) == dict[str, object]


def test_declared_classes_are_known_at_the_registration() -> None:
    app = Application(around=around, provides=[Settings])

    @app.listener("orders")
    def settings_first(settings: Settings, order: Order) -> None: ...

    assert body_of(app) is Order
    with pytest.raises(TypeError, match="parameter client: "):
        app.listener("orders")(with_client)
    with pytest.raises(TypeError, match="around=… provides Client, and provides=… of the application does not name it"):
        HandlerCall(app.listeners[0], TextMessage()).provide(Client, Client())


def test_a_session_of_the_application_s_own_can_be_provided_where_there_is_no_transaction() -> None:
    @Application(around=around).listener("orders", transacted=False)
    def handle(text: str, database: orm.Session) -> None: ...

    with pytest.raises(TypeError, match="asks for the database of its transaction"):
        Application(around=around, provides=[Client]).listener("orders", transacted=False)(handle)


def test_abstract_classes_and_protocols_are_classes() -> None:
    app = Application(around=around)
    app.listener("orders")(plain)
    call = HandlerCall(app.listeners[0], TextMessage())
    bank = Bank()
    call.provide(Gateway, bank)
    assert call.provided == {Gateway: bank}
    with pytest.raises(TypeError, match=r"Expected a class for provide\(\), got 'Gateway'"):
        call.provide("Gateway", bank)  # type: ignore[arg-type]


def test_a_plain_function_cannot_have_an_awaited_context_manager() -> None:
    for manager in (asynchronous, partial(asynchronous), Asynchronous):
        with pytest.raises(TypeError, match="plain is a plain function, and around=… of its application"):
            Application(around=manager).listener("orders")(plain)

        @Application(around=manager).listener("orders")
        async def awaited(text: str) -> None: ...


async def coroutine(_: HandlerCall) -> None: ...


def generator(_: HandlerCall) -> Iterator[None]:
    yield


async def asynchronous_generator(_: HandlerCall) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (generator, r"decorate generator with contextlib\.contextmanager"),
        (asynchronous_generator, r"with contextlib\.asynccontextmanager"),
        (coroutine, "coroutine is a coroutine function"),
        (5, "5 cannot be called"),
    ],
)
def test_another_object_than_a_context_manager_is_refused(wrong: Callable[..., Any], reason: str) -> None:
    with pytest.raises(TypeError, match=reason):
        Application(around=wrong)


def test_the_transaction_is_that_of_the_kind_of_handler() -> None:
    app = Application(around=around)

    @app.listener("orders")
    async def awaited(text: str) -> None: ...

    with pytest.raises(Exception, match=r"is a coroutine function: await call\.get_database\(\)"):
        HandlerCall(app.listeners[0], TextMessage()).database.execute(sqlalchemy.text("select 1"))
