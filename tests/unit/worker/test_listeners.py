"""Handlers are checked when they are registered."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, get_type_hints

import psycopg
import pytest
import sqlalchemy
from psycopg.rows import DictRow
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncSession

import jmsql
import jmsql.asyncio
from jmsql import (
    BytesMessage,
    InvalidDestinationException,
    InvalidSelectorException,
    JMSContext,
    MapMessage,
    Message,
    Queue,
    RedeliveryPolicy,
    Session,
    TextMessage,
    Topic,
)
from jmsql.client._sync.connection.simplified import message_of
from jmsql.worker import Application, Reject, Router
from jmsql.worker.handlers import options
from jmsql.worker.handlers._sync.call import HandlerCall


class Unregistered:
    """A class whose objects no message may hold."""


def named(message, database, session, context) -> None: ...  # type: ignore[no-untyped-def]


def annotated(
    text: TextMessage, db: sqlalchemy.Connection, rows: orm.Session, jms: Session, more: JMSContext
) -> None: ...


async def coroutine(body: dict[str, Any] | None) -> None: ...


class Callable_:  # noqa: N801
    async def __call__(self, message: Message) -> None: ...


@pytest.mark.parametrize("handler", [named, annotated, coroutine, Callable_(), functools.partial(named)])
def test_a_registered_handler_is_called_as_before(handler: Callable[..., object]) -> None:
    application = Application()
    registered = application.listener("orders")(handler)
    assert registered.function is handler
    assert registered.destination == Queue("orders")
    assert inspect.signature(registered) == inspect.signature(handler)
    (listener,) = application.listeners
    assert listener.handler is handler
    assert listener.destination == Queue("orders")


def test_coroutine_functions_are_known() -> None:
    application = Application()
    for handler in (named, coroutine, Callable_()):
        application.listener("orders")(handler)
    assert [listener.is_async for listener in application.listeners] == [False, True, True]


def test_parameters_with_a_default_keep_it() -> None:
    application = Application()

    @application.listener("orders")
    def handle(message: Message, limit: int = 5, *, color: str = "blue") -> None: ...

    assert [parameter.name for parameter in application.listeners[0].parameters] == ["message"]


def test_a_body_with_a_default_is_read_and_its_default_stands_for_a_missing_one() -> None:
    def number(customer: int = 5) -> None: ...
    def after_call(call: HandlerCall, customer: int | None = None) -> None: ...
    def by_name(limit: int = 5, body: str = "") -> None: ...

    assert arguments_for(number, TextMessage("17")) == {"customer": 17}
    assert arguments_for(number, Message()) == {"customer": 5}
    assert arguments_for(number, TextMessage()) == {"customer": 5}
    with pytest.raises(Reject, match="The body is not int"):
        arguments_for(number, TextMessage('"seventeen"'))
    assert arguments_for(after_call, TextMessage("17"))["customer"] == 17
    assert arguments_for(by_name, TextMessage("17")) == {"body": "17"}


def test_a_default_of_something_else_than_a_body_is_left_to_it() -> None:
    def unnamed(limit=5) -> None: ...  # type: ignore[no-untyped-def]
    def function(clock: Callable[[], float] = time.time) -> None: ...
    def beside_the_body(order: str, limit: int = 5, body: str = "") -> None: ...

    assert arguments_for(unnamed, TextMessage("17")) == {}
    assert arguments_for(function, TextMessage("17")) == {}
    assert arguments_for(beside_the_body, TextMessage("17")) == {"order": "17"}


def test_a_chunk_with_a_default_is_read() -> None:
    application = Application()

    @application.listener("orders", chunk=10)
    def handle(numbers: Sequence[int] = (), limit: int = 5) -> None: ...

    assert [parameter.name for parameter in application.listeners[0].parameters] == ["numbers"]


def test_the_error_of_a_body_that_cannot_be_read_begins_with_the_reason() -> None:
    def handle(order: str | int) -> None: ...

    refusal = r"parameter order: str \| int: text and bytes cannot have another type in JSON\. "
    with pytest.raises(TypeError, match=refusal):
        Application().listener("orders")(handle)


def test_periodic_hands_the_options_of_a_listener_on() -> None:
    application = Application()
    policy = RedeliveryPolicy(maximum_deliveries=3)

    @application.periodic("0 2 * * *", name="nightly", redelivery=policy, timeout=60, keep_result=timedelta(days=7))
    def back_up() -> str:
        return "all tables"

    [listener] = application.listeners
    assert listener.destination == Queue("nightly")
    assert listener.redelivery == policy
    assert listener.timeout == 60.0
    assert listener.keep_result is not None


def test_periodic_takes_the_options_of_a_queues_listener_with_their_types() -> None:
    hints = get_type_hints(Router.listener)
    for left_out in ("destination", "selector", "subscription", "durable", "return"):
        del hints[left_out]
    assert get_type_hints(options.PeriodicOptions) == hints


def test_periodic_refuses_the_options_of_a_handler_that_has_its_listener() -> None:
    application = Application()
    handler = application.listener("backups")(coroutine)
    refusal = r"coroutine has its listener already: give keep_result=…, timeout=… to @app.listener"
    with pytest.raises(TypeError, match=refusal):
        application.periodic("@daily", keep_result=60, timeout=5)(handler)


@pytest.mark.parametrize("option", ["selector", "subscription", "keep_results"])
def test_periodic_names_an_option_that_it_does_not_take(option: str) -> None:
    unknown: Any = {option: None}
    with pytest.raises(TypeError, match=f"takes no {option}=….*keep_result, .*put it above @app.listener"):
        Application().periodic("@daily", **unknown)


@pytest.mark.parametrize(
    ("option", "value", "refusal"),
    [
        ("redelivery", 5, r"Expected redelivery as a jmsql.RedeliveryPolicy, such as .*, got 5\."),
        ("keep_result", True, r"keep_result is a number of seconds or a timedelta, not True\."),
        ("timeout", True, r"timeout is a number of seconds or a timedelta, not True\."),
    ],
)
def test_an_option_of_another_type_is_refused(option: str, value: Any, refusal: str) -> None:
    options: Any = {option: value}
    with pytest.raises(TypeError, match=refusal):
        Application().listener("orders", **options)(named)


def test_a_decorator_without_a_destination_is_refused_with_the_form() -> None:
    bare: Any = Application().listener
    with pytest.raises(
        InvalidDestinationException, match=r"decorator of .*named names no .*: write @app.listener\('orders"
    ):
        bare(named)


def test_a_method_is_registered_with_its_object() -> None:
    class Mailer:
        def send(self, body: str) -> None: ...

    application = Application()
    with pytest.raises(
        TypeError, match=r"Mailer.send is a method without its object.*app.listener\('mail'\)\(Mailer\("
    ):
        application.listener("mail")(Mailer.send)
    application.listener("mail")(Mailer().send)
    assert [each.name for each in application.listeners[0].parameters] == ["body"]


def test_a_listeners_facts_are_in_its_description() -> None:
    application = Application()
    application.listener("orders", selector="weight > 1", transacted=False, concurrency=3)(named_message)
    application.listener(Topic("news"), subscription="desk", durable=False)(named_message)
    assert [listener.facts(2) for listener in application.listeners] == [
        {
            "listener": f"{__name__}.named_message",
            "destination": "queue://orders",
            "selector": "weight > 1",
            "subscription": None,
            "durable": None,
            "concurrency": 3,
            "transacted": False,
            "timeout": None,
            "chunk": None,
            "rate": None,
            "at_most": None,
        },
        {
            "listener": f"{__name__}.named_message",
            "destination": "topic://news",
            "selector": None,
            "subscription": "desk",
            "durable": False,
            "concurrency": 2,
            "transacted": True,
            "timeout": None,
            "chunk": None,
            "rate": None,
            "at_most": None,
        },
    ]


def named_message(message) -> None: ...  # type: ignore[no-untyped-def]


def unknown_name(order) -> None: ...  # type: ignore[no-untyped-def]
def unknown_class(order: Unregistered) -> None: ...
def asynchronous_session(database: AsyncSession) -> None: ...
def choice(body: str | bytes) -> None: ...
def everything(*messages: Message) -> None: ...
def anything(**facts: Any) -> None: ...
def by_place(message: Message, /) -> None: ...
def missing_name(message: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def generator(message: Message) -> Iterator[int]:
    yield 1


async def asynchronous_generator(message: Message) -> AsyncIterator[int]:
    yield 1


async def blocking_session(number: int, database: orm.Session) -> None: ...
async def blocking_driver(database: psycopg.Connection[Any]) -> None: ...
async def blocking_context(context: jmsql.JMSContext) -> None: ...
def awaited_context(context: jmsql.asyncio.JMSContext) -> None: ...


@pytest.mark.parametrize(
    ("handler", "advice"),
    [
        (asynchronous_session, "annotate it with sqlalchemy.orm.Session, or write async def in place of def."),
        (awaited_context, "annotate it with jmsql.JMSContext, or write async def in place of def."),
        (blocking_session, "annotate it with sqlalchemy.ext.asyncio.AsyncSession, or write def in place of async def."),
        (blocking_driver, "annotate it with psycopg.AsyncConnection, or write def in place of async def."),
        (blocking_context, "annotate it with jmsql.asyncio.JMSContext, or write def in place of async def."),
    ],
)
def test_a_class_of_the_other_kind_of_handlers_is_named_with_its_counterpart(
    handler: Callable[..., Any], advice: str
) -> None:
    with pytest.raises(TypeError) as refusal:
        Application().listener("orders")(handler)
    assert str(refusal.value).endswith(advice)
    assert "pydantic" not in str(refusal.value)


@pytest.mark.parametrize(
    "handler",
    [
        unknown_name,
        unknown_class,
        asynchronous_session,
        choice,
        everything,
        anything,
        by_place,
        missing_name,
        generator,
        asynchronous_generator,
        5,
    ],
)
def test_a_handler_with_an_unknown_parameter_is_refused_by_name(handler: Any) -> None:
    name = getattr(handler, "__name__", "int")
    application = Application()
    with pytest.raises(TypeError, match=rf"[Tt]he handler (\w+\.)*{name} "):
        application.listener("orders")(handler)
    assert application.listeners == []


def rows_as_dicts(connection: psycopg.Connection[DictRow]) -> None: ...
async def rows_as_dicts_too(connection: psycopg.AsyncConnection[DictRow]) -> None: ...


@pytest.mark.parametrize("handler", [rows_as_dicts, rows_as_dicts_too])
def test_a_connection_with_other_rows_than_tuples_is_refused(handler: Any) -> None:
    with pytest.raises(TypeError, match="Connection alone, and give its cursors their row_factory"):
        Application().listener("orders")(handler)


class OwnConnection(psycopg.Connection[Any]):
    """A class of the application's, of which a worker makes nothing."""


def own_connection(connection: OwnConnection) -> None: ...
def awaited_connection(connection: psycopg.AsyncConnection) -> None: ...
async def blocking_connection(connection: psycopg.Connection) -> None: ...


@pytest.mark.parametrize("handler", [own_connection, awaited_connection, blocking_connection])
def test_a_connection_of_psycopgs_that_there_is_not_is_refused_with_that_which_there_is(handler: Any) -> None:
    with pytest.raises(TypeError, match=r"psycopg\.(Async)?Connection, "):
        Application().listener("orders")(handler)


@pytest.mark.parametrize(
    "annotation", [sqlalchemy.Connection, orm.Session, psycopg.Connection, psycopg.Connection[Any]]
)
def test_without_a_transaction_there_is_no_database_to_ask_for(annotation: type) -> None:
    def handle(database: object) -> None: ...

    handle.__annotations__["database"] = annotation
    with pytest.raises(TypeError, match="handle asks for the database of its transaction"):
        Application().listener("orders", transacted=False)(handle)


@pytest.mark.parametrize(
    ("arguments", "error", "reason"),
    [
        ({"selector": "color ="}, InvalidSelectorException, "The selector of the handler .*named"),
        ({"concurrency": 0}, ValueError, "concurrency of at least 1 for the handler .*named"),
        ({"subscription": "desk"}, ValueError, "named listens to queue://orders, and only topics"),
        ({"destination": Topic("news")}, ValueError, "named listens to topic://news: name its subscription"),
        ({"destination": 5}, InvalidDestinationException, "Expected a destination"),
    ],
)
def test_a_listener_that_cannot_be_is_refused(arguments: dict[str, Any], error: type[Exception], reason: str) -> None:
    application = Application()
    with pytest.raises(error, match=reason):
        application.listener(**{"destination": "orders"} | arguments)(named)
    assert application.listeners == []


def arguments_for(handler: Callable[..., object], message: Message) -> dict[str, object]:
    """What the handler would be called with, in a session that it does not ask for."""
    application = Application()
    application.listener("orders")(handler)
    return HandlerCall(application.listeners[0], message, session=None).arguments()  # type: ignore[arg-type]


def test_messages_and_bodies_are_those_of_the_delivery() -> None:
    def handle(whole: TextMessage, message, body) -> None: ...  # type: ignore[no-untyped-def]
    def handle_text(text: str) -> None: ...

    message = TextMessage("hello")
    assert arguments_for(handle, message) == {"whole": message, "message": message, "body": "hello"}
    assert arguments_for(handle_text, message) == {"text": "hello"}


def test_json_in_a_text_message_is_read_for_a_dict_or_a_list() -> None:
    def of_dict(body: dict[str, Any]) -> None: ...
    def of_list(body: list[int] | None) -> None: ...
    def of_text(body: str) -> None: ...

    message = TextMessage('{"lines": [1, {"price": 2.5}], "name": "é"}')
    assert arguments_for(of_dict, message) == {"body": {"lines": [1, {"price": 2.5}], "name": "é"}}
    assert arguments_for(of_list, TextMessage("[1, 2]")) == {"body": [1, 2]}
    assert arguments_for(of_list, TextMessage()) == {"body": None}
    assert arguments_for(of_text, TextMessage("[1]")) == {"body": "[1]"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a text", r"is no JSON \(Expecting value: line 1 column 1 .*, and the handler takes dict"),
        ("", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[1]", "is JSON, but no object, and the handler takes dict"),
        ("null", "is JSON, but no object"),
    ],
    ids=["text", "empty", "nested", "array", "null"],
)
def test_a_text_that_is_no_json_object_is_no_dict(text: str, reason: str) -> None:
    def handle(body: dict[str, Any]) -> None: ...

    with pytest.raises(Reject, match=f"The body of this TextMessage {reason}"):
        arguments_for(handle, TextMessage(text))


def body_and_more(body: dict[str, Any], x: int) -> None: ...
def more_and_body(x: int, body: dict[str, Any]) -> None: ...
def two_fields(order: str, x: int) -> None: ...


@pytest.mark.parametrize("handler", [body_and_more, more_and_body, two_fields])
def test_a_parameter_beside_the_body_is_refused_by_name(handler: Callable[..., object]) -> None:
    application = Application()
    with pytest.raises(TypeError, match=rf"{handler.__name__} has the parameter x: int, for which a message has no"):
        application.listener("orders")(handler)
    assert application.listeners == []


def test_a_message_of_another_class_is_refused() -> None:
    def handle(text: TextMessage) -> None: ...

    with pytest.raises(Reject, match="takes messages of the type TextMessage, and got Message"):
        arguments_for(handle, Message())


def test_only_an_optional_body_may_be_missing() -> None:
    def optional(text: str | None) -> None: ...
    def required(text: str) -> None: ...

    assert arguments_for(optional, TextMessage()) == {"text": None}
    with pytest.raises(Reject, match="takes str, and the message has no body"):
        arguments_for(required, TextMessage())


@pytest.mark.parametrize(
    "message", [message_of({"number": 1}), message_of({"number": 1, "lines": [Decimal("9.50")]})], ids=repr
)
def test_a_dict_is_the_body_of_a_map_and_of_an_object(message: Message) -> None:
    def handle(order: dict) -> None: ...  # type: ignore[type-arg]

    assert arguments_for(handle, message)["order"] == message.get_body(dict)


@pytest.mark.parametrize(("message", "empty"), [(BytesMessage(), b""), (MapMessage(), {})], ids=["bytes", "map"])
def test_an_empty_body_is_a_body(message: Message, empty: bytes | dict[str, object]) -> None:
    """Unlike to JMS's `getBody`: what was sent as `b""` or `{}` reaches the handler as that."""

    def of_bytes(content: bytes) -> None: ...
    def of_map(content: dict) -> None: ...  # type: ignore[type-arg]
    def of_any(body) -> None: ...  # type: ignore[no-untyped-def]
    def of_text(text: str) -> None: ...

    handler = of_bytes if isinstance(message, BytesMessage) else of_map
    assert arguments_for(handler, message) == {"content": empty}
    assert arguments_for(of_any, message) == {"body": empty}
    with pytest.raises(Reject, match="takes str, and the message has no body"):
        arguments_for(of_text, message)


def of_a_list(events: list[dict[str, Any]]) -> None: ...


def of_a_message(message: Message) -> None: ...


@pytest.mark.parametrize(
    ("handler", "options", "refusal"),
    [
        (of_a_message, {"chunk": 10}, r"message: .*Message.*is called with lists: annotate it with list\[…\]"),
        (coroutine, {"chunk": 10}, "is called with lists"),
        (of_a_list, {"chunk": 0}, "of 1 to 1,000 messages for the handler .*, got 0"),
        (of_a_list, {"chunk": 1001}, "of 1 to 1,000 messages for the handler .*, got 1001"),
        (of_a_list, {"chunk": True}, "Expected chunk as an int, got True"),
        (of_a_list, {"chunk": 10, "transacted": False}, "takes chunks, and is not transacted"),
        (of_a_list, {"chunk": 10, "chunk_wait": -1}, "chunk_wait"),
        (of_a_list, {"chunk": 10, "keep_result": 60}, "takes chunks, of which no results are kept"),
        (lambda event: None, {"chunk": 10}, "event"),
    ],
)
def test_a_handler_of_chunks_takes_lists(handler: Callable[..., object], options: Any, refusal: str) -> None:
    with pytest.raises((TypeError, ValueError), match=refusal):
        Application().listener("events", **options)(handler)


def test_the_elements_of_chunks_are_bodies_or_messages() -> None:
    application = Application()

    @application.listener("events", chunk=10)
    def handle(bodies, messages, texts: list[TextMessage], session: Session) -> None: ...  # type: ignore[no-untyped-def]

    @application.listener("events", chunk=10)
    def of_union(numbers: Sequence[int | None]) -> None: ...

    first, second = application.listeners
    assert (first.body, second.body) == (object, int | None)
    assert first.shares_transaction


def test_a_rejected_message_is_named_by_a_number() -> None:
    assert Reject("no", index=3).index == 3
    with pytest.raises(TypeError, match="index is an int, not '3'"):
        Reject("no", index="3")  # type: ignore[arg-type]
