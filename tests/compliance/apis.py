"""The two APIs that each test of the compliance suite proves: that for threads, and that for asyncio in its shape.

Behind each object that a test gets of `jmsql.asyncio` is one that lives in an event loop. Its methods run there, and
the test waits for them. A listener of the test's is called in another thread, where it may call what blocks; what it
calls counts as called by the listener.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, Protocol, cast
from weakref import WeakValueDictionary

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection

import jmsql
import jmsql.asyncio
from jmsql import Connection, ConnectionFactory, JMSContext, Message, Session, TemporaryQueue, TemporaryTopic
from jmsql.asyncio.connection_consumers import TaskServerSessionPool
from jmsql.connection_consumers import ThreadServerSessionPool
from tests.event_loop_thread import EventLoopThread, next_or

THREADS_ALONE = pytest.mark.parametrize("api", ["threads"], indirect=True)
"""A test of what asyncio does not have, or does otherwise: `docs/asyncio.md` says what that is, and why."""

_END = object()


class Api(Protocol):
    """What tests make objects by that no other object makes."""

    def factory(self, factory: ConnectionFactory) -> ConnectionFactory:
        """Return a factory of the API's, for one for threads."""

    def context(self, session: Session, connection: Connection | None = None) -> JMSContext:
        """Make a context of a session, and of its connection if need be."""

    def send(self, target: Any, destination: Any, body: object, **options: Any) -> str:
        """Call the send of the API."""

    def server_session_pool(
        self, connection: Connection, size: int, create_listener: Callable[[Session], Any]
    ) -> ThreadServerSessionPool:
        """Make a pool of server sessions."""

    def require_no_tasks(self) -> None:
        """Wait a moment until no task of the API's is left."""


class ThreadsApi:
    """The API for threads, as it is."""

    def factory(self, factory: ConnectionFactory) -> ConnectionFactory:
        """Return the factory."""
        return factory

    def context(self, session: Session, connection: Connection | None = None) -> JMSContext:
        """Make a context of a session, and of its connection if need be."""
        return JMSContext(session, connection)

    def send(self, target: Any, destination: Any, body: object, **options: Any) -> str:
        """Send a message."""
        return jmsql.send(target, destination, body, **options)

    def server_session_pool(
        self, connection: Connection, size: int, create_listener: Callable[[Session], Any]
    ) -> ThreadServerSessionPool:
        """Make a pool of server sessions."""
        return ThreadServerSessionPool(connection, size, create_listener)

    def require_no_tasks(self) -> None:
        """Do nothing: there are none."""


class AsyncioApi:
    """The API for asyncio, in the shape of that for threads.

    Args:
        event_loop: Where its objects live.
    """

    def __init__(self, event_loop: EventLoopThread) -> None:
        self._event_loop = event_loop
        self._blocking: WeakValueDictionary[int, _Blocking] = WeakValueDictionary()

    def factory(self, factory: ConnectionFactory) -> ConnectionFactory:
        """Return a factory of `jmsql.asyncio`, for one for threads."""
        return _AsyncioConnectionFactory(
            **{each.name: getattr(factory, each.name) for each in dataclasses.fields(ConnectionFactory)}, api=self
        )

    def context(self, session: Session, connection: Connection | None = None) -> JMSContext:
        """Make a context of a session, and of its connection if need be."""
        return cast("JMSContext", self.call(jmsql.asyncio.JMSContext, session, connection))

    def send(self, target: Any, destination: Any, body: object, **options: Any) -> str:
        """Await the send of a message."""
        return cast("str", self.call(jmsql.asyncio.send, target, destination, body, **options))

    def server_session_pool(
        self, connection: Connection, size: int, create_listener: Callable[[Session], Any]
    ) -> ThreadServerSessionPool:
        """Make a pool of server sessions."""

        def create(session: jmsql.asyncio.Session) -> Any:
            return self.listener(create_listener(self.blocking(session)))

        return cast("ThreadServerSessionPool", self.call(TaskServerSessionPool, connection, size, create))

    def require_no_tasks(self) -> None:
        """Wait a moment until no task is left: a test leaves none that has closed what it opened."""
        self._event_loop.require_no_tasks()

    def call(self, function: Callable[..., Any], *arguments: object, **options: object) -> Any:
        """Call a function in the loop; return what it returns, or what becomes of that when it is awaited."""
        given = [self._given(each) for each in arguments]
        named = {name: self._given(each) for name, each in options.items()}
        return self.blocking(self._event_loop.call(function, *given, **named))

    def _given(self, value: object) -> object:
        """Return what a test gives to the API, as it is in the loop."""
        if isinstance(value, _Blocking):
            return value.original
        return _Pool(self, value) if hasattr(value, "get_server_session") else value

    def blocking(self, value: Any) -> Any:
        """Return what the API gives, as a test in another thread uses it."""
        if isinstance(value, _Listener | _Pool):
            return value.given
        if isinstance(value, AsyncIterator):
            return self._iterate(value)
        if isinstance(value, TemporaryQueue | TemporaryTopic):
            return dataclasses.replace(value, _delete=self._blocking_function(value._delete))
        if isinstance(value, Message):
            value._acknowledger = self._blocking_function(value._acknowledger)
            return value
        if not type(value).__module__.startswith(("jmsql.asyncio", "jmsql.client._async", "sqlalchemy.ext.asyncio")):
            return value
        blocking = self._blocking.get(id(value))
        if blocking is None:
            self._blocking[id(value)] = blocking = _Blocking(self, value)
        return blocking

    def _iterate(self, iterator: AsyncIterator[Any]) -> Iterator[Any]:
        while (value := self.call(next_or, iterator, _END)) is not _END:
            yield value

    def _blocking_function(self, function: Callable[[], Any] | None) -> Callable[[], Any] | None:
        return (lambda: self.call(function)) if inspect.iscoroutinefunction(function) else function

    def listener(self, given: Any) -> Any:
        """Return a listener that the loop may call, for one that may block; what is no listener stays as it is."""
        if given is None or isinstance(given, _Listener):
            return given
        return (_CallableListener if callable(given) else _Listener)(self, given)

    async def call_in_thread(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Call a function of the test's in another thread."""
        return self._given(await self._event_loop.call_in_thread(function, *map(self.blocking, arguments)))


@dataclass(frozen=True, slots=True)
class _AsyncioConnectionFactory(ConnectionFactory):
    """A factory of `jmsql.asyncio`."""

    api: AsyncioApi = field(kw_only=True, repr=False, compare=False)

    def create_connection(self, *arguments: Any, **options: Any) -> Connection:
        return cast("Connection", self.api.call(self._original().create_connection, *arguments, **options))

    def create_context(self, *arguments: Any, **options: Any) -> JMSContext:
        return cast("JMSContext", self.api.call(self._original().create_context, *arguments, **options))

    def _original(self) -> jmsql.asyncio.ConnectionFactory:
        names = [each.name for each in dataclasses.fields(ConnectionFactory)]
        return jmsql.asyncio.ConnectionFactory(**{name: getattr(self, name) for name in names})


class _Blocking:
    """Stands for an object in the event loop; `isinstance` finds it of the class that it has for threads."""

    original: Any

    def __init__(self, api: AsyncioApi, original: object) -> None:
        self.__dict__.update(_api=api, original=original)

    @property  # type: ignore[misc] # what isinstance() looks at
    def __class__(self) -> type:
        return _class_for_threads(type(self.original))

    def __getattr__(self, name: str) -> Any:
        call: Callable[..., Any] = self.__dict__["_api"].call
        if name == "database":  # that for asyncio has the method alone, which is awaited
            return call(self.original.get_database)
        if not isinstance(inspect.getattr_static(type(self.original), name, None), FunctionType):
            return call(getattr, self.original, name)
        method = getattr(self.original, name)
        listens = name in {"set_async", "set_exception_listener", "set_message_listener"}
        listener: Callable[[object], Any] = self.__dict__["_api"].listener

        def call_method(*arguments: object, **options: object) -> Any:
            given = map(listener, arguments) if listens else arguments
            named = {key: listener(each) if key.endswith("_listener") else each for key, each in options.items()}
            return call(method, *given, **named)

        return call_method

    def __setattr__(self, name: str, value: object) -> None:
        if hasattr(type(self.original), f"set_{name}"):
            getattr(self, f"set_{name}")(value)
        else:
            self.__dict__["_api"].call(setattr, self.original, name, value)

    def __iter__(self) -> Iterator[Any]:
        iterator: Iterator[Any] = self.__dict__["_api"].call(aiter, self.original)
        return iterator

    def __enter__(self) -> Any:
        return self.__dict__["_api"].call(self.original.__aenter__)

    def __exit__(self, *error: object) -> None:
        self.__dict__["_api"].call(self.original.__aexit__, *error)

    def __bool__(self) -> bool:
        return bool(self.original)

    def __repr__(self) -> str:
        return repr(self.original)


class _Listener:
    """A listener with methods, each of which is awaited."""

    def __init__(self, api: AsyncioApi, given: Any) -> None:
        self._api = api
        self.given = given

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.given, name)
        return (lambda *arguments: self._api.call_in_thread(method, *arguments)) if callable(method) else method

    def __repr__(self) -> str:
        return repr(self.given)


class _CallableListener(_Listener):
    """A listener that is called, and awaited."""

    async def __call__(self, *arguments: object) -> Any:
        return await self._api.call_in_thread(self.given, *arguments)


class _Pool:
    """A pool of server sessions of the test's own."""

    def __init__(self, api: AsyncioApi, given: Any) -> None:
        self._api = api
        self.given = given

    async def get_server_session(self) -> Any:
        return await self._api.call_in_thread(self.given.get_server_session)


def _class_for_threads(kind: type) -> type:
    if issubclass(kind, AsyncConnection):
        return sqlalchemy.Connection
    module = importlib.import_module(kind.__module__.replace("jmsql.asyncio", "jmsql").replace("._async.", "._sync."))
    found: type = getattr(module, kind.__name__.replace("TaskServer", "ThreadServer"))
    return found
