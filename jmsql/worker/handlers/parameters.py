"""A handler's parameters, read from its signature when it is registered."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

import psycopg
from psycopg.rows import TupleRow

from jmsql.concurrency.functions import is_coroutine_function, is_generator_function
from jmsql.exceptions import MessageFormatException
from jmsql.messages import Message
from jmsql.store.connections.greenlet import require_greenlet
from jmsql.values.outcomes import UNREADABLE, RejectBecause
from jmsql.worker.handlers.bodies import body_reader, is_optional, members_of

# A signature is read once, when the handler is registered, so that a mistake is an error at the import and not with the
# first message. Each parameter becomes a function of the call. The order in which an annotation is understood: a class
# that `around` provides; the message, the session or another object of the call; the connection of its transaction;
# else a body. A parameter with a default is left to it, except for the body of a handler that reads nothing else of the
# message: its default stands for a missing body. Without the exception, `def recompute(customer: int = 0)` would handle
# every message as customer 0.
#
# The classes of SQLAlchemy's ORM are compared only if the application has imported them: a process loads nothing that
# its handlers do not need.


class Source(Protocol):
    """A call of a handler, as the source of its parameters' values."""

    message: Message
    messages: Sequence[Message]

    @property
    def session(self) -> object:
        """The session that has received the message."""

    def context(self) -> object:
        """Return the session as a context."""

    def connection(self) -> object:
        """Return the connection of the message's transaction, or under asyncio an awaitable of it."""

    def driver_connection(self) -> object:
        """Return psycopg's connection in the message's transaction, or an awaitable of it."""

    def orm_session(self, kind: type[Any]) -> object:
        """Return an SQLAlchemy session in the message's transaction, or an awaitable of it."""


class Call:
    """The call of a handler, for a parameter that asks for it."""


class Parameter(NamedTuple):
    """A parameter of a handler, and where its value comes from."""

    name: str
    value: Callable[[Source], object]
    """Returns it, or under asyncio an awaitable of it."""
    shares_transaction: bool = False
    """True if the handler can do something in the session's transaction with it."""
    body: Any = None
    """The annotation that describes the message's body, if it is that."""
    reads_message: bool = False
    """True if its value comes from the message alone."""
    provided_as: type | None = None
    """The class by which an `around` function may provide it; None: it cannot."""
    is_entered: bool = False
    """True if its value is a context manager's, which ends with the call."""

    def check(self, message: Message) -> None:
        """Make sure that a message has a value for it.

        Raises:
            MessageFormatException: The handler would refuse the message.
        """
        call: Any = SimpleNamespace(message=message, messages=[message])
        try:
            self.value(call)
        except RejectBecause as refusal:
            raise refusal.error from None


class Kinds(NamedTuple):
    """The classes of a handler's further parameters."""

    database: type
    driver: type
    orm_session: type
    session: type
    context: type

    @property
    def of_transaction(self) -> tuple[type, ...]:
        """The classes of those that belong to a transaction."""
        return self.database, self.driver, self.orm_session

    @property
    def by_name(self) -> dict[str, type]:
        """The kinds of parameters without an annotation, by name."""
        return {
            "message": Message,
            "body": object,
            "database": self.database,
            "session": self.session,
            "context": self.context,
            "call": Call,
        }


def _kinds(*, is_async: bool) -> Kinds:
    # A process loads only what its handlers need. A handler with a parameter of sqlalchemy.orm has imported it.
    if is_async:
        require_greenlet()
        from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

        from jmsql.client._async.connection import context as asynchronous_context
        from jmsql.client._async.session import session as asynchronous_session

        return Kinds(
            AsyncConnection,
            psycopg.AsyncConnection,
            AsyncSession,
            asynchronous_session.Session,
            asynchronous_context.JMSContext,
        )
    import sqlalchemy

    orm: Any = sys.modules.get("sqlalchemy.orm", SimpleNamespace(Session=sqlalchemy.Connection))

    from jmsql.client._sync.connection.context import JMSContext
    from jmsql.client._sync.session.session import Session

    return Kinds(sqlalchemy.Connection, psycopg.Connection, orm.Session, Session, JMSContext)


_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_POSSIBLE = (
    "annotated with a message class, the type of a body (str, bytes, dict, a dataclass, pydantic model or msgspec "
    "struct, or a class given to jmsql.register_codec), {}, or a class that around=… of the application provides; "
    "without an annotation it is named message, body, database, session, context or call"
)
_IN_THREADS = (
    "sqlalchemy.Connection, sqlalchemy.orm.Session, psycopg.Connection, jmsql.Session, jmsql.JMSContext or "
    "jmsql.worker.HandlerCall"
)
_IN_EVENT_LOOP = (
    "AsyncConnection or AsyncSession of sqlalchemy.ext.asyncio, psycopg.AsyncConnection, jmsql.asyncio.Session, "
    "jmsql.asyncio.JMSContext or jmsql.worker.HandlerCall"
)


def read_parameters(
    handler: Callable[..., object],
    name: str,
    *,
    transacted: bool,
    provides: Collection[type] | None = (),
    in_chunks: bool = False,
) -> tuple[Parameter, ...]:
    """Read a handler's parameters.

    Args:
        handler: The handler.
        name: Its name, for errors.
        transacted: Whether it is called in a transaction.
        provides: The classes that `around` functions provide; None: they are known when it does so.
        in_chunks: Whether it is called with lists of messages, or of bodies.

    Raises:
        TypeError: It is no function that can be called with a message, or asks for something that there is not.
    """
    signature = _signature(handler, name)
    is_async = is_coroutine_function(handler)
    parameters = []
    with_default = []
    for parameter in signature.parameters.values():
        if parameter.kind not in _NAMED:
            raise TypeError(
                f"The handler {name} has the parameter {parameter}; all are to be named, so that each says what it is."
            )
        if parameter.default is not inspect.Parameter.empty:
            with_default.append(parameter)
        else:
            in_list = _list_parameter(parameter, name) if in_chunks else None
            if in_list is None:
                found = _read(parameter, name, transacted=transacted, is_async=is_async, provides=provides)
                if in_chunks and found.reads_message:
                    raise TypeError(
                        f"The handler {name} has the parameter {parameter}, and is called with lists: annotate it with "
                        "list[…], such as list[dict] or list[jmsql.Message], or leave out chunk=…"
                    )
                parameters.append(found)
            else:
                parameters.append(in_list)
    if not any(each.reads_message for each in parameters):
        read = functools.partial(_read, handler=name, transacted=transacted, is_async=is_async, provides=provides)
        if (body := _body_with_default(with_default, read, name, in_chunks=in_chunks)) is not None:
            parameters.append(body)
    return tuple(_with_one_body(parameters, signature, name))


def _signature(handler: Callable[..., object], name: str) -> inspect.Signature:
    if not callable(handler) or is_generator_function(handler):
        raise TypeError(f"The handler {name} must be a function or coroutine function, not a generator.")
    try:
        return inspect.signature(handler, eval_str=True)
    except (NameError, AttributeError) as error:
        raise TypeError(f"An annotation of the handler {name} means nothing when the program runs: {error}.") from error
    except ValueError as error:
        raise TypeError(f"The handler {name} does not say what its parameters are: {error}.") from error


_IN_NO_JSON = (Callable, type)
"""Annotations that pydantic knows, and no message has a value for."""


def _body_with_default(
    parameters: Iterable[inspect.Parameter],
    read: Callable[[inspect.Parameter], Parameter],
    handler: str,
    *,
    in_chunks: bool,
) -> Parameter | None:
    """Return the body among the parameters with a default: the one of this name, else the first; None: there is none.

    A missing body leaves the default.
    """
    for parameter in sorted(parameters, key=lambda each: each.name != "body"):
        if (typing.get_origin(parameter.annotation) or parameter.annotation) in _IN_NO_JSON:
            continue
        try:
            found = _list_parameter(parameter, handler) if in_chunks else read(parameter)
        except TypeError:  # it describes no body, and keeps its default
            continue
        if found is not None and found.body is not None:
            return found if in_chunks else found._replace(value=_or_default(found.body, parameter.default))
    return None


def _or_default(annotation: Any, default: object) -> Callable[[Source], object]:
    """Return a source that reads the body, or takes the default where the message has none."""
    read = body_reader(annotation, may_be_missing=True)

    def read_or_default(message: Message) -> object:
        body = read(message)
        return default if body is None else body

    return _reading(read_or_default)


def _with_one_body(parameters: list[Parameter], signature: inspect.Signature, handler: str) -> Iterator[Parameter]:
    """Return the parameters with one body: the one of this name, else the first; others may be provided."""
    bodies = sorted((each for each in parameters if each.body is not None), key=lambda each: each.name != "body")
    for each in parameters:
        if each.body is None or each is bodies[0]:
            yield each
        elif each.provided_as is not None:
            yield _provided(signature.parameters[each.name], each.provided_as, handler)
        else:
            raise TypeError(
                f"The handler {handler} has the parameter {signature.parameters[each.name]}, for which a message has "
                f"no value: its body is given to the parameter {signature.parameters[bodies[0].name]}. Leave it out, "
                "give it a default, or have around=… of the application provide it."
            )


def _provided(parameter: inspect.Parameter, kind: type, handler: str) -> Parameter:
    """Return a parameter that has a value only if an `around` function provides one."""
    optional = is_optional(parameter.annotation)

    def value(call: Source) -> None:  # noqa: ARG001 - it is asked where nothing was provided
        if not optional:
            raise TypeError(
                f"The handler {handler} has the parameter {parameter}, and around=… of the application has provided no "
                f"{kind.__name__} for this call: have it say call.provide({kind.__name__}, …) before its yield."
            )

    return Parameter(parameter.name, value, provided_as=kind)


def _read(
    parameter: inspect.Parameter,
    handler: str,
    *,
    transacted: bool,
    is_async: bool,
    provides: Collection[type] | None,
) -> Parameter:
    name, kinds = parameter.name, _kinds(is_async=is_async)
    annotation = parameter.annotation
    if annotation is inspect.Parameter.empty or annotation is Any:
        annotation = kinds.by_name.get(name)
    possible = _POSSIBLE.format(_IN_EVENT_LOOP if is_async else _IN_THREADS)
    if annotation is None:
        raise _refusal(parameter, handler, possible)
    kind = _class_of(annotation)
    may_be_provided = kind if provides is None or kind in provides else None
    if may_be_provided is not None and provides is not None:
        return _provided(parameter, may_be_provided, handler)
    if kind is kinds.driver:
        _check_rows(parameter, handler)
    given = None if kind is None else _of_session(name, kind, kinds, transacted=transacted)
    if given is None and kind is not None and not transacted and issubclass(kind, kinds.of_transaction):
        if may_be_provided is not None:
            return _provided(parameter, may_be_provided, handler)
        raise TypeError(
            f"The handler {handler} asks for the database of its transaction; with transacted=False it has none."
        )
    if given is None:
        try:
            read = body_reader(annotation)
        except TypeError as error:
            if may_be_provided is not None:
                return _provided(parameter, may_be_provided, handler)
            raise _unreadable(parameter, handler, possible, error, is_async=is_async) from error
        given = Parameter(name, _reading(read), body=annotation, reads_message=True)
    return given._replace(provided_as=may_be_provided)


_AWAITED = {
    "sqlalchemy.engine.base.Connection": "sqlalchemy.ext.asyncio.AsyncConnection",
    "sqlalchemy.orm.session.Session": "sqlalchemy.ext.asyncio.AsyncSession",
    "psycopg.Connection": "psycopg.AsyncConnection",
    "jmsql.Session": "jmsql.asyncio.Session",
    "jmsql.JMSContext": "jmsql.asyncio.JMSContext",
}
"""The classes of coroutine functions' parameters, by the names of their counterparts in other handlers."""
_BLOCKING = {
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": "sqlalchemy.Connection",
    "sqlalchemy.ext.asyncio.session.AsyncSession": "sqlalchemy.orm.Session",
    "psycopg.AsyncConnection": "psycopg.Connection",
    "jmsql.asyncio.Session": "jmsql.Session",
    "jmsql.asyncio.JMSContext": "jmsql.JMSContext",
}
"""The other way round."""


def _unreadable(
    parameter: inspect.Parameter, handler: str, possible: str, error: TypeError, *, is_async: bool
) -> TypeError:
    """Return the error of a parameter whose annotation describes no body."""
    # pydantic's own words about such a class advise arbitrary_types_allowed, which would lead away from the mistake:
    # `async def` in the place of `def`, or the other way round.
    kind = _class_of(parameter.annotation)
    names = () if kind is None else (f"{each.__module__}.{each.__qualname__}" for each in kind.__mro__)
    counterparts = _AWAITED if is_async else _BLOCKING
    counterpart = next((counterparts[name] for name in names if name in counterparts), None)
    if counterpart is None:
        return TypeError(
            f"The handler {handler} cannot read a body for its parameter {parameter}: {str(error).rstrip('.')}. "
            f"If it is to be no body: a parameter is {possible}."
        )
    if is_async:
        return TypeError(
            f"The handler {handler} is a coroutine function, and its parameter {parameter} would block the event "
            f"loop: annotate it with {counterpart}, or write def in place of async def."
        )
    return TypeError(
        f"The handler {handler} is no coroutine function, and cannot await its parameter {parameter}: annotate it with "
        f"{counterpart}, or write async def in place of def."
    )


def _refusal(parameter: inspect.Parameter, handler: str, possible: str) -> TypeError:
    """Return the error of a parameter without an annotation whose name says nothing."""
    if parameter.name == "self":
        return TypeError(
            f"The handler {handler} is a method without its object. Register the method of an object: "
            "app.listener('mail')(Mailer().send)."
        )
    return TypeError(
        f"The handler {handler} has the parameter {parameter}, of which nothing says the value. A parameter is "
        f"{possible}."
    )


def _class_of(annotation: Any) -> type[Any] | None:
    """Return the class that an annotation is, perhaps with None; None: it is something else, or any object."""
    members = members_of(annotation)
    kind = members[0] if len(members) == 1 else None
    origin = typing.get_origin(kind)
    if isinstance(origin, type) and issubclass(origin, psycopg.BaseConnection):
        return origin
    return kind if isinstance(kind, type) and origin is None and kind is not object else None


def _check_rows(parameter: inspect.Parameter, handler: str) -> None:
    """Refuse a connection of psycopg's whose rows are to be something else than tuples."""
    (annotation,) = members_of(parameter.annotation)
    if any(row not in {Any, tuple, TupleRow} for row in typing.get_args(annotation)):
        raise TypeError(
            f"The handler {handler} has the parameter {parameter}, and the rows of that connection are tuples: "
            f"annotate it with {typing.get_origin(annotation).__name__} alone, and give its cursors their row_factory."
        )


def _of_session(name: str, kind: type[Any], kinds: Kinds, *, transacted: bool) -> Parameter | None:
    """Return a parameter for the message or an object of its session; None: it is something else."""
    if issubclass(kind, Message):
        return Parameter(name, _message(kind), reads_message=True)
    if issubclass(kind, Call):
        return Parameter(name, lambda call: call, shares_transaction=transacted)
    if issubclass(kind, kinds.session):
        return Parameter(name, lambda call: call.session, shares_transaction=transacted)
    if issubclass(kind, kinds.context):
        return Parameter(name, lambda call: call.context(), shares_transaction=transacted)
    if transacted and kind is kinds.driver:
        return Parameter(name, lambda call: call.driver_connection(), shares_transaction=True)
    if transacted and issubclass(kind, kinds.database | kinds.orm_session):
        is_session = kind is not kinds.database
        value = _orm(kind) if is_session else _database
        return Parameter(name, value, shares_transaction=True, is_entered=is_session)
    return None


_LISTS = {list, Sequence}
_LISTS_BY_NAME = {"messages": Message, "bodies": object}
"""The elements of lists by the names of their parameters, if these have no annotation."""


def _list_parameter(parameter: inspect.Parameter, handler: str) -> Parameter | None:
    """Return a parameter for the messages of a chunk, or for their bodies; None: it is something else."""
    name, annotation = parameter.name, parameter.annotation
    origin = typing.get_origin(annotation) or annotation
    if annotation is inspect.Parameter.empty and name in _LISTS_BY_NAME:
        element: Any = _LISTS_BY_NAME[name]
    elif origin in _LISTS:
        (element,) = typing.get_args(annotation) or (object,)
        element = object if element is Any else element
    else:
        return None
    kind = _class_of(element)
    if kind is not None and issubclass(kind, Message):
        return Parameter(name, _in_list(_checked(kind)), reads_message=True)
    try:
        return Parameter(name, _in_list(body_reader(element)), body=element, reads_message=True)
    except TypeError as error:
        raise TypeError(
            f"The handler {handler} has the parameter {parameter}, and the elements of a chunk are messages or bodies: "
            f"{error}."
        ) from error


def _in_list(read: Callable[[Message], object]) -> Callable[[Source], object]:
    """Return a source that reads each message of a chunk into a list, and rejects an unreadable one."""

    def value(call: Source) -> object:
        values: list[object] = []
        try:
            values.extend(map(read, call.messages))
        except MemoryError:
            raise  # it is not the message's fault
        except Exception as error:
            raise RejectBecause(error, UNREADABLE, index=len(values)) from error
        return values

    return value


def _reading(read: Callable[[Message], object]) -> Callable[[Source], object]:
    """Return a source that reads the message, and rejects an unreadable one."""

    def value(call: Source) -> object:
        try:
            return read(call.message)
        except MemoryError:
            raise  # it is not the message's fault
        except Exception as error:
            raise RejectBecause(error, UNREADABLE) from error

    return value


def _checked(kind: type[Message]) -> Callable[[Message], Message]:
    """Return a reader that accepts messages of a class alone."""

    def check(message: Message) -> Message:
        if not isinstance(message, kind):
            raise MessageFormatException(
                f"The handler takes messages of the type {kind.__name__}, and got {type(message).__name__}."
            )
        return message

    return check


def _message(kind: type[Message]) -> Callable[[Source], object]:
    check = _checked(kind)

    def value(call: Source) -> object:
        if isinstance(call.message, kind):
            return call.message
        try:
            return check(call.message)
        except MessageFormatException as error:
            raise RejectBecause(error, UNREADABLE) from error

    return value


def _database(call: Source) -> object:
    return call.connection()


def _orm(kind: type[Any]) -> Callable[[Source], object]:
    return lambda call: call.orm_session(kind)
