"""A handler: which messages it is called with, and what it asks for, read from its signature when it is registered."""

from __future__ import annotations

import inspect
import logging
import typing
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Protocol

from jmsql.exceptions import MessageFormatException
from jmsql.messages import Message
from jmsql.store.destinations.subscriptions import ChangeRefusedException
from jmsql.values.destinations import Queue, Topic
from jmsql.values.outcomes import UNREADABLE, Reject, RejectBecause, RetryAfter
from jmsql.values.policies import RedeliveryPolicy
from jmsql.worker.handlers.bodies import body_reader, members_of
from jmsql.worker.handlers.deadline import Deadline


class HandlerCall(Protocol):
    """A message on its way to a handler, in a thread or under asyncio, where what returns something can be awaited."""

    message: Message
    after_commit: list[Callable[[], None]]
    """What is called once the message is settled, if nothing has failed."""

    @property
    def listener(self) -> Listener:
        """Whose handler it is."""

    @property
    def session(self) -> object:
        """The session that has received it."""

    def context(self) -> object:
        """Return the session as a context."""

    def database(self) -> object:
        """Return the connection of the message's transaction."""

    def orm_session(self, kind: type[Any]) -> object:
        """Return a session of SQLAlchemy's in the message's transaction."""


Surrounding = Callable[[HandlerCall], AbstractContextManager[None]]
"""What surrounds a call of a handler, inside the message's transaction: it may raise, and so fail the message."""


class Parameter(NamedTuple):
    """A parameter of a handler, and where its value comes from."""

    name: str
    value: Callable[[HandlerCall], object]
    """Returns it, or under asyncio what is awaited for it."""
    shares_transaction: bool = False
    """Whether the handler can do something in the session's transaction with it."""
    body: Any = None
    """The annotation that describes the message's body, if it is that."""


class Kinds(NamedTuple):
    """The classes of what a handler can ask for beside the message."""

    database: type
    orm_session: type
    session: type
    context: type

    @property
    def by_name(self) -> dict[str, type]:
        """What a parameter without an annotation is."""
        return {
            "message": Message,
            "body": object,
            "database": self.database,
            "session": self.session,
            "context": self.context,
        }


@cache
def _kinds(*, is_async: bool) -> Kinds:
    # Imported here: a process loads only what its handlers need.
    if is_async:
        from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

        from jmsql.client._async.connection import context as asynchronous_context
        from jmsql.client._async.session import session as asynchronous_session

        return Kinds(AsyncConnection, AsyncSession, asynchronous_session.Session, asynchronous_context.JMSContext)
    import sqlalchemy
    from sqlalchemy import orm

    from jmsql.client._sync.connection.context import JMSContext
    from jmsql.client._sync.session.session import Session

    return Kinds(sqlalchemy.Connection, orm.Session, Session, JMSContext)


_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_POSSIBLE = (
    "a message class, what describes a body (str, bytes, dict, a dataclass, pydantic model or msgspec struct, or a "
    "class given to jmsql.register_codec), {}; "
    "without an annotation it is named message, body, database, session or context"
)
_IN_THREADS = "sqlalchemy.Connection, sqlalchemy.orm.Session, jmsql.Session or jmsql.JMSContext"
_IN_EVENT_LOOP = (
    "AsyncConnection or AsyncSession of sqlalchemy.ext.asyncio, jmsql.asyncio.Session or jmsql.asyncio.JMSContext"
)


def is_coroutine_function(handler: Callable[..., object]) -> bool:
    """Return whether a handler is a coroutine function, or an object whose call is one."""
    call = getattr(handler, "__call__", None)  # noqa: B004 - of an object whose call is one
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)


def read_parameters(handler: Callable[..., object], name: str, *, transacted: bool) -> tuple[Parameter, ...]:
    """Read what a handler asks for.

    Args:
        handler: The handler.
        name: Its name, for errors.
        transacted: Whether it is called in a transaction.

    Raises:
        TypeError: It is no function that can be called with a message, or asks for something that there is not.
    """
    if not callable(handler) or inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise TypeError(f"The handler {name} is no function that is called once for each message.")
    try:
        signature = inspect.signature(handler, eval_str=True)
    except (NameError, AttributeError) as error:
        raise TypeError(f"An annotation of the handler {name} means nothing when the program runs: {error}.") from error
    except ValueError as error:
        raise TypeError(f"The handler {name} does not say what its parameters are: {error}.") from error
    is_async = is_coroutine_function(handler)
    parameters = []
    for parameter in signature.parameters.values():
        if parameter.kind not in _NAMED:
            raise TypeError(
                f"The handler {name} has the parameter {parameter}; all are to be named, so that each says what it is."
            )
        if parameter.default is inspect.Parameter.empty:  # the others are the handler's own business
            parameters.append(_read(parameter, name, transacted=transacted, is_async=is_async))
    _check_that_one_is_the_body(parameters, signature, name)
    return tuple(parameters)


def _check_that_one_is_the_body(parameters: list[Parameter], signature: inspect.Signature, handler: str) -> None:
    bodies = sorted((each for each in parameters if each.body is not None), key=lambda each: each.name != "body")
    if len(bodies) > 1:
        body, other = (signature.parameters[each.name] for each in bodies[:2])
        raise TypeError(
            f"The handler {handler} has the parameter {other}, for which a message has no value: its body is given to "
            f"the parameter {body}. Leave it out, or give it a default."
        )


def _read(parameter: inspect.Parameter, handler: str, *, transacted: bool, is_async: bool) -> Parameter:
    name, kinds = parameter.name, _kinds(is_async=is_async)
    annotation = parameter.annotation
    if annotation is inspect.Parameter.empty or annotation is Any:
        annotation = kinds.by_name.get(name)
    possible = _POSSIBLE.format(_IN_EVENT_LOOP if is_async else _IN_THREADS)
    refusal = f"The handler {handler} has the parameter {parameter}, and a parameter is {possible}."
    if annotation is None:
        raise TypeError(refusal)
    members = members_of(annotation)
    kind = members[0] if len(members) == 1 else None
    if isinstance(kind, type) and typing.get_origin(kind) is None:
        if issubclass(kind, Message):
            return Parameter(name, _message(kind))
        if issubclass(kind, kinds.session):
            return Parameter(name, lambda call: call.session, shares_transaction=transacted)
        if issubclass(kind, kinds.context):
            return Parameter(name, lambda call: call.context(), shares_transaction=transacted)
        if issubclass(kind, kinds.database | kinds.orm_session):
            if not transacted:
                raise TypeError(
                    f"The handler {handler} asks for the database of its transaction; with transacted=False it has "
                    "none."
                )
            return Parameter(name, _database if kind is kinds.database else _orm(kind), shares_transaction=True)
    try:
        read = body_reader(annotation)
    except TypeError as error:
        raise TypeError(f"{refusal} As a body: {error}.") from error
    return Parameter(name, _reading(read), body=annotation)


def _reading(read: Callable[[Message], object]) -> Callable[[HandlerCall], object]:
    """Return what gives the handler what is read from its message, and rejects a message that cannot be read so."""

    def value(call: HandlerCall) -> object:
        try:
            return read(call.message)
        except MemoryError:
            raise  # it is not the message's fault
        except Exception as error:
            raise RejectBecause(error, UNREADABLE) from error

    return value


def _message(kind: type[Message]) -> Callable[[HandlerCall], object]:
    def value(call: HandlerCall) -> object:
        if not isinstance(call.message, kind):
            error = MessageFormatException(
                f"The handler takes messages of the type {kind.__name__}, and got {type(call.message).__name__}."
            )
            raise RejectBecause(error, UNREADABLE)
        return call.message

    return value


def _database(call: HandlerCall) -> object:
    return call.database()


def _orm(kind: type[Any]) -> Callable[[HandlerCall], object]:
    return lambda call: call.orm_session(kind)


logger = logging.getLogger("jmsql.worker")

_lose_replies: set[str] = set()
"""Handlers that were named in the log since what they return goes nowhere."""

DEFAULT_REDELIVERY = RedeliveryPolicy(
    maximum_deliveries=20, delay=1.0, multiplier=2.0, maximum_delay=4 * 3600.0, jitter=0.1
)
"""What holds for messages of which neither the listener nor the destination says anything: about a day in all."""


@dataclass(frozen=True)
class Listener:
    """A handler, and which messages it is called with."""

    name: str
    handler: Callable[..., object]
    parameters: tuple[Parameter, ...]
    destination: Queue | Topic
    selector: str | None
    transacted: bool
    concurrency: int | None
    subscription: str | None
    durable: bool
    redelivery: RedeliveryPolicy | None
    visibility_timeout: float | None
    never_retry: tuple[type[Exception], ...]
    timeout: float | None
    reply_to: Queue | Topic | None
    surrounding: Surrounding | None
    reaches_transaction: bool
    """Whether the handler can do something in its message's transaction without asking for it by a parameter."""

    def verdict(self, error: BaseException) -> BaseException:
        """Return what the session is told of an error with which a message has failed."""
        is_rejected = isinstance(error, self.never_retry) and not isinstance(error, Reject | RetryAfter)
        return RejectBecause(error) if is_rejected else error

    def warn_of_lost_reply(self) -> None:
        """Warn, once, that what the handler returns goes nowhere."""
        if self.name not in _lose_replies:
            _lose_replies.add(self.name)
            logger.warning(
                "%s has returned something, and its message has no JMSReplyTo: it is dropped. Register the handler "
                "with reply_to=…, or return None.",
                self,
            )

    @property
    def is_async(self) -> bool:
        """Whether the handler is a coroutine function."""
        return is_coroutine_function(self.handler)

    @property
    def shares_transaction(self) -> bool:
        """Whether the handler can do something in the transaction in which its message is received."""
        return self.reaches_transaction or any(parameter.shares_transaction for parameter in self.parameters)

    def facts(self, concurrency: int) -> dict[str, object]:
        """Return what the log tells of it when a worker starts.

        Args:
            concurrency: How many messages it handles at a time, unless it says so itself.
        """
        return {
            "listener": self.name,
            "destination": str(self.destination),
            "selector": self.selector or None,
            "subscription": self.subscription,
            "durable": None if self.subscription is None else self.durable,
            "concurrency": self.concurrency or concurrency,
            "transacted": self.transacted,
            "timeout": self.timeout,
        }

    def __str__(self) -> str:
        return f"{self.name} on {self.destination}"


class Handling(Protocol):
    """A call of a handler that has not ended yet."""

    message_id: str | None
    started: float
    """When, on the monotonic clock."""
    deadline: Deadline | None


def way_out(error: ChangeRefusedException, listener: Listener) -> str:
    """Return what a new release can do whose listener wants a durable subscription with another selector."""
    if error.is_active:
        return (
            "That may be a worker of another release: end it before this one starts (what is published in between is "
            "collected), or let this release have a subscription of another name."
        )
    keep = (
        "--changed-subscriptions keep has the new selector decide from now on, and delivers what waits, whatever it "
        "is; "
        if error.same_topic
        else ""
    )
    return (
        f"Nothing was changed. {keep}--changed-subscriptions drop deletes what waits; or give the subscription another "
        f"name, and end this one with `jmsql unsubscribe {listener.subscription}`."
    )
