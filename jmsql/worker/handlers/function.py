"""A registered handler: the function, and the destination that sends to it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Coroutine, Iterable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, Unpack, overload

from jmsql.client.sending.options import SendOptions
from jmsql.client.sending.targets import is_awaited, is_target
from jmsql.exceptions import IllegalStateException
from jmsql.messages import Message
from jmsql.public_names import set_module
from jmsql.values.destinations import Queue, Topic
from jmsql.worker.handlers.chain_types import misfit
from jmsql.worker.handlers.listener import HandlerCall, Listener
from jmsql.worker.handlers.options import ListenerOptions

if TYPE_CHECKING:
    import psycopg
    import sqlalchemy
    from sqlalchemy import orm
    from sqlalchemy.ext import asyncio as sqlalchemy_asyncio

    import jmsql
    from jmsql import asyncio as jmsql_asyncio
    from jmsql.client.asynchronous_enlistment import Enlistable as AwaitedTransaction
    from jmsql.client.enlistment import Enlistable as BlockingTransaction

    BlockingTarget: TypeAlias = jmsql.Session | jmsql.JMSContext | jmsql.Connection | BlockingTransaction
    AwaitedTarget: TypeAlias = (
        jmsql_asyncio.Session | jmsql_asyncio.JMSContext | jmsql_asyncio.Connection | AwaitedTransaction
    )

    class _Given(  # type: ignore[misc]  # it never has an object: parameters of any of these classes would take one
        sqlalchemy.Connection,
        orm.Session,
        psycopg.Connection[Any],
        jmsql.Session,
        jmsql.JMSContext,
        sqlalchemy_asyncio.AsyncConnection,
        sqlalchemy_asyncio.AsyncSession,
        psycopg.AsyncConnection[Any],
        jmsql_asyncio.Session,
        jmsql_asyncio.JMSContext,
        HandlerCall,
    ):
        """The classes that a handler is given beside the body."""


P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
Body = TypeVar("Body")

# How type checkers find the body among a handler's parameters: the first one that is no connection, session, context or
# call, up to the third; or an element of the first, whose list may be a chunk. A handler of messages, or without a
# body, is sent anything. They see `self` as the function that it calls.
if TYPE_CHECKING:
    _AnyBody: TypeAlias = (
        Callable[[], object]
        | Callable[[_Given], object]
        | Callable[[_Given, _Given], object]
        | Callable[Concatenate[Message, ...], object]
        | Callable[Concatenate[list[Message], ...], object]
    )
    _ListOfBodies: TypeAlias = Callable[Concatenate[list[Body], ...], object]
    _ThirdBody: TypeAlias = Callable[Concatenate[_Given, _Given, Body, ...], object]
    _SecondBody: TypeAlias = Callable[Concatenate[_Given, Body, ...], object]
    _FirstBody: TypeAlias = Callable[Concatenate[Body, ...], object]


# The sender writes the message, and reads it again with the parameters of the handler (`checked_message`): nothing else
# could tell that the handler would refuse it, such as a pydantic validator. So a wrong body is an error of the sender,
# and no dead letter.
#
# A function may be in several applications, by its router. It sends only where all of them agree about destination and
# schema; in no application, its queue may still get a prefix, and a message to the plain name would wait for ever
# (decision 74).


_ATTRIBUTES_OF_CODE = ("__name__", "__code__", "__defaults__", "__kwdefaults__")
"""An object that has them counts as a function for `inspect`, and as a coroutine function if its code is one's. So
frameworks await its calls, such as Starlette in its background tasks. Python 3.11 has no `markcoroutinefunction`."""


class _Owner(Protocol):
    @property
    def schema(self) -> str:
        """The schema of jmsql's tables."""


@set_module("jmsql.worker")
class ListenerFunction(Generic[P, R_co]):
    """A handler that is registered: a call of it calls the function; `send` sends a message to it.

    Made by the decorator of [`Application.listener`][jmsql.worker.Application.listener].

    Attributes:
        function: The function as it was written.
        name: Its name, as in the log.
        options: The options with which it is registered.
    """

    function: Callable[P, R_co]

    def __init__(self, function: Callable[P, R_co], destination: Queue | Topic, options: ListenerOptions) -> None:
        functools.update_wrapper(self, _called(function), _ATTRIBUTES_OF_CODE, updated=())
        functools.update_wrapper(self, function, updated=())  # a callable object's attributes are not its own
        self.function = function
        self.name = name_of(function)
        self.options = options
        self._declared = destination
        # The applications that have it. Written by `place`, as they register it or include its router.
        self._places: list[tuple[_Owner, Listener]] = []
        # Steps of chains that can follow this one. Any thread adds to it; to check twice does no harm.
        self._checked_steps: set[ListenerFunction[..., Any]] = set()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function, without a message or a transaction of jmsql."""
        return self.function(*args, **kwargs)

    @property
    def declared_destination(self) -> Queue | Topic:
        """The destination as the decorator has it, without the prefixes of the applications that include it."""
        return self._declared

    @property
    def destination(self) -> Queue | Topic:
        """The destination of its messages.

        Raises:
            IllegalStateException: Its router is included in no application yet, or under several prefixes.
        """
        return self.listener.destination

    @property
    def listener(self) -> Listener:
        """The listener that it is in its application.

        Raises:
            IllegalStateException: As for `destination`.
        """
        return self._place()[1]

    @overload
    def send(self: _AnyBody, target: BlockingTarget, body: object, **options: Unpack[SendOptions]) -> str: ...

    @overload
    def send(  # type: ignore[misc]
        self: _ThirdBody[Body], target: BlockingTarget, body: Body, **options: Unpack[SendOptions]
    ) -> str: ...

    @overload
    def send(  # type: ignore[misc]
        self: _SecondBody[Body], target: BlockingTarget, body: Body, **options: Unpack[SendOptions]
    ) -> str: ...

    @overload
    def send(self: _FirstBody[Body], target: BlockingTarget, body: Body, **options: Unpack[SendOptions]) -> str: ...

    @overload
    def send(  # type: ignore[misc]
        self: _ListOfBodies[Body], target: BlockingTarget, body: Body, **options: Unpack[SendOptions]
    ) -> str: ...

    @overload
    def send(
        self: _AnyBody, target: AwaitedTarget, body: object, **options: Unpack[SendOptions]
    ) -> Coroutine[Any, Any, str]: ...

    @overload
    def send(  # type: ignore[misc]
        self: _ThirdBody[Body], target: AwaitedTarget, body: Body, **options: Unpack[SendOptions]
    ) -> Coroutine[Any, Any, str]: ...

    @overload
    def send(  # type: ignore[misc]
        self: _SecondBody[Body], target: AwaitedTarget, body: Body, **options: Unpack[SendOptions]
    ) -> Coroutine[Any, Any, str]: ...

    @overload
    def send(
        self: _FirstBody[Body], target: AwaitedTarget, body: Body, **options: Unpack[SendOptions]
    ) -> Coroutine[Any, Any, str]: ...

    @overload
    def send(  # type: ignore[misc]
        self: _ListOfBodies[Body], target: AwaitedTarget, body: Body, **options: Unpack[SendOptions]
    ) -> Coroutine[Any, Any, str]: ...

    def send(self, target: Any, body: Any, **options: Unpack[SendOptions]) -> str | Coroutine[Any, Any, str]:
        """Send a message to the handler's destination, and return its identifier.

        The body is checked as the handler will read it. Type checkers take the handler's first parameter for the body,
        or its second or third after connections, sessions, contexts or the call.

        Args:
            target: A session, context or connection of jmsql, or a transaction of yours, as for
                [`jmsql.send`][jmsql.send]; or one of asyncio, as for [`jmsql.asyncio.send`][jmsql.asyncio.send]: then
                the call is awaited.
            body: The body, or a message.
            options: `priority`, `delivery_delay`, `time_to_live`, `group`, `properties`, `reply_to`, `correlation_id`,
                `deduplication_id`, `coalesce`, `coalesce_body` and `then`, as for [`jmsql.send`][jmsql.send].

        Returns:
            JMSMessageID; under asyncio an awaitable of it.

        Raises:
            MessageFormatException: The handler would refuse the body, or it cannot be encoded; the message shows where.
            IllegalStateException: The target is closed; or the listener's router is included in no application.
            TypeError: The target is none of these; there is no such option; or the first step of `then` can read
                nothing that this returns.
            JMSException: It was not sent; the message says why.
        """
        owner, listener = self._place()
        self._check_call(body, options)
        message = listener.checked_message(body)
        send: Callable[..., str | Coroutine[Any, Any, str]] = _sending(target).send
        return send(target, listener.destination, message, schema=owner.schema, **options)

    @overload
    def send_many(
        self: _AnyBody, target: BlockingTarget, bodies: Iterable[object], **options: Unpack[SendOptions]
    ) -> list[str]: ...

    @overload
    def send_many(  # type: ignore[misc]
        self: _ThirdBody[Body], target: BlockingTarget, bodies: Iterable[Body], **options: Unpack[SendOptions]
    ) -> list[str]: ...

    @overload
    def send_many(  # type: ignore[misc]
        self: _SecondBody[Body], target: BlockingTarget, bodies: Iterable[Body], **options: Unpack[SendOptions]
    ) -> list[str]: ...

    @overload
    def send_many(
        self: _FirstBody[Body], target: BlockingTarget, bodies: Iterable[Body], **options: Unpack[SendOptions]
    ) -> list[str]: ...

    @overload
    def send_many(  # type: ignore[misc]
        self: _ListOfBodies[Body], target: BlockingTarget, bodies: Iterable[Body], **options: Unpack[SendOptions]
    ) -> list[str]: ...

    @overload
    def send_many(
        self: _AnyBody, target: AwaitedTarget, bodies: Iterable[object], **options: Unpack[SendOptions]
    ) -> Coroutine[Any, Any, list[str]]: ...

    @overload
    def send_many(  # type: ignore[misc]
        self: _ThirdBody[Body], target: AwaitedTarget, bodies: Iterable[Body], **options: Unpack[SendOptions]
    ) -> Coroutine[Any, Any, list[str]]: ...

    @overload
    def send_many(  # type: ignore[misc]
        self: _SecondBody[Body], target: AwaitedTarget, bodies: Iterable[Body], **options: Unpack[SendOptions]
    ) -> Coroutine[Any, Any, list[str]]: ...

    @overload
    def send_many(
        self: _FirstBody[Body], target: AwaitedTarget, bodies: Iterable[Body], **options: Unpack[SendOptions]
    ) -> Coroutine[Any, Any, list[str]]: ...

    @overload
    def send_many(  # type: ignore[misc]
        self: _ListOfBodies[Body], target: AwaitedTarget, bodies: Iterable[Body], **options: Unpack[SendOptions]
    ) -> Coroutine[Any, Any, list[str]]: ...

    def send_many(
        self, target: Any, bodies: Iterable[Any], **options: Unpack[SendOptions]
    ) -> list[str] | Coroutine[Any, Any, list[str]]:
        """Send many messages to the handler's destination, a hundred in one exchange with PostgreSQL.

        All bodies are checked before the first is sent. In a transaction the messages are there with the commit, and
        over a connection together. In a session without transactions each hundred is there by itself.

        Args:
            target: As for `send`.
            bodies: The bodies, or messages.
            options: As for `send`; all the messages have them.

        Returns:
            Each JMSMessageID, in the order of the bodies; under asyncio an awaitable of them.

        Raises:
            MessageFormatException: The handler would refuse a body, or it cannot be encoded; nothing is sent.
            IllegalStateException: As for `send`, like the others.
            TypeError: The target is none of these.
            JMSException: They were not sent; the message says why.
        """
        owner, listener = self._place()
        self._check_call(bodies, options)
        messages = [listener.checked_message(body) for body in bodies]
        send_many: Callable[..., list[str] | Coroutine[Any, Any, list[str]]] = _sending(target).send_many
        return send_many(target, listener.destination, messages, schema=owner.schema, **options)

    def checked_message(self, body: object) -> Message:
        """Return the message that carries a body, as the handler will read it: for a batch, which sends it.

        Raises:
            MessageFormatException: The handler would refuse the body, or it cannot be encoded.
            IllegalStateException: As for `send`.
        """
        return self.listener.checked_message(body)

    def check_next_step(self, step: object) -> None:
        """Make sure that another handler may be able to read what this one returns.

        Raises:
            TypeError: Their annotations leave no way.
        """
        if not isinstance(step, ListenerFunction) or step in self._checked_steps:
            return
        reason = misfit(self.listener, step.listener)
        if reason is not None:
            raise TypeError(
                f"The step {step.name} can read no message that {self.name} sends it by its return value: {reason}. "
                "A step gets the value that the step before returns, or if that is None, the body of its message."
            )
        self._checked_steps.add(step)

    def _check_call(self, body: object, options: SendOptions) -> None:
        """Check a send's arguments, and the first of the next steps; those after it are checked as they are sent.

        Raises:
            TypeError: The target stands in the body's place; there is no such option; or the step does not fit.
        """
        if is_target(body):
            raise TypeError(f"The target comes before the body: write {self.name}.send(target, body).")
        if unknown := options.keys() - SendOptions.__annotations__.keys():
            raise TypeError(
                f"send() takes no {' and no '.join(f'{each}=…' for each in sorted(unknown))}; it takes "
                f"{', '.join(SendOptions.__annotations__)}."
            )
        steps: object = options.get("then")
        if isinstance(steps, list | tuple) and steps:
            self.check_next_step(steps[0])

    def place(self, owner: _Owner, listener: Listener) -> None:
        """Note that an application has the listener."""
        self._places.append((owner, listener))

    def has(self, listener: Listener) -> bool:
        """Return True if a listener of an application is this one."""
        return any(each is listener for _, each in self._places)

    def _place(self) -> tuple[_Owner, Listener]:
        """Return the application that has it, and the listener there."""
        if len(self._places) == 1:
            return self._places[0]
        if not self._places:
            raise IllegalStateException(
                f"{self.name} belongs to a Router that no application includes here, and its queue may get a "
                "prefix: import the module that calls include(…), or call it."
            )
        different = {(listener.destination, owner.schema) for owner, listener in self._places}
        if len(different) > 1:
            found = ", ".join(sorted(f"{destination} ({schema})" for destination, schema in different))
            raise IllegalStateException(
                f"{self.name} is in several places: {found}. Name one of these destinations instead of the handler, as "
                "in jmsql.send(…)."
            )
        return self._places[-1]

    def __reduce__(self) -> str:
        return getattr(self, "__qualname__", self.name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} on {self._declared}>"


def _called(function: Any) -> Any:
    """Return the function or method that a call of a function, or of an object, runs."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if hasattr(function, "__code__") else getattr(function, "__call__", function)  # noqa: B004


def name_of(handler: object) -> str:
    """Return the name of a handler."""
    owner = handler if hasattr(handler, "__qualname__") else type(handler)
    return f"{owner.__module__}.{getattr(owner, '__qualname__', '?')}"


def imported_name_of(handler: object) -> str:
    """Return the name of a handler with its module as other programs import it, also in the program that is run.

    A schedule is named by it: ``python shop.py`` and ``jmsql worker shop:app`` make the same one.
    """
    name, program = name_of(handler), sys.modules.get("__main__")
    if not name.startswith("__main__."):
        return name
    spec, file = getattr(program, "__spec__", None), getattr(program, "__file__", None)
    if spec is not None:
        module = spec.name
    elif file is not None:
        module = Path(file).stem
    else:  # a notebook, or Python's prompt
        module = "__main__"
    return f"{module}{name.removeprefix('__main__')}"


def _sending(target: object) -> ModuleType:
    """Return the module that sends to a target."""
    world = "_async" if is_awaited(target) else "_sync"
    return import_module(f"jmsql.client.sending.{world}.send")
