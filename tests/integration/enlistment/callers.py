"""Applications with a transaction of their own, by what they reach the database with. All of them are awaited."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from typing import Any

import asyncpg
import psycopg
import sqlalchemy
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

import jmsql
import jmsql.asyncio
from jmsql.testing import FAST_TIMINGS

ORDERS = jmsql.Queue("orders")

NAME = "the-application"
"""The application name of the connection."""


class Base(orm.MappedAsDataclass, orm.DeclarativeBase):
    """The application's tables."""


class Order(Base):
    """An order of the application's."""

    __tablename__ = "orders"

    number: orm.Mapped[int] = orm.mapped_column(primary_key=True)


async def resolved(returned: Any) -> Any:
    """What a call returns, or what comes of it if that is awaited."""
    return await returned if inspect.isawaitable(returned) else returned


class _TakenBack(Exception):
    """Ends a savepoint that is taken back."""


class Caller:
    """An application with a transaction, and the context that takes part in it.

    Args:
        transaction: What `enlist` is given.
        enlist: That of its world.
    """

    def __init__(self, transaction: Any, enlist: Any) -> None:
        self.transaction = transaction
        self.context = enlist(transaction, timings=FAST_TIMINGS)

    async def begin(self) -> None:
        """Begin a transaction, where none begins by itself."""

    async def commit(self) -> None:
        await resolved(self.transaction.commit())

    async def rollback(self) -> None:
        await resolved(self.transaction.rollback())

    async def insert(self, number: int) -> None:
        """Store an order."""
        raise NotImplementedError

    def _nested(self) -> Any:
        raise NotImplementedError

    @asynccontextmanager
    async def savepoint(self, *, taken_back: bool = False) -> AsyncIterator[None]:
        """Set a savepoint, which is taken back or kept when the block ends."""
        nested = self._nested()
        with suppress(_TakenBack):
            async with nested if hasattr(nested, "__aenter__") else _awaited(nested):
                yield
                if taken_back:
                    raise _TakenBack

    async def place(self, number: int) -> None:
        """Store an order and announce it."""
        await self.insert(number)
        await self.send({"number": number})

    async def send(self, body: object, destination: jmsql.Destination = ORDERS, **options: Any) -> None:
        await resolved(self.context.create_producer(**options).send(destination, body))

    async def consumer(self, destination: jmsql.Destination = ORDERS, selector: str | None = None) -> Any:
        return await resolved(self.context.create_consumer(destination, selector))

    async def receive(self, seconds: float = 0.0) -> jmsql.Message | None:
        """Receive an order's message, or wait for it for so many seconds."""
        return await received(await self.consumer(), seconds)

    def start(self, call: Callable[[], Any]) -> asyncio.Task[Any]:
        """Begin to call what blocks, or to await what it returns."""

        async def run() -> Any:
            return await resolved(await asyncio.to_thread(call))

        return asyncio.create_task(run())


@asynccontextmanager
async def _awaited(manager: AbstractContextManager[object]) -> AsyncIterator[None]:
    with manager:
        yield


async def received(consumer: Any, seconds: float = 0.0) -> jmsql.Message | None:
    """Receive a message, or wait for it for so many seconds."""
    message: jmsql.Message | None = await resolved(consumer.receive(seconds))
    return message


class _Orm(Caller):
    async def insert(self, number: int) -> None:
        self.transaction.add(Order(number))
        await resolved(self.transaction.flush())

    def _nested(self) -> Any:
        return self.transaction.begin_nested()


class _Core(Caller):
    async def insert(self, number: int) -> None:
        await resolved(self.transaction.execute(sqlalchemy.insert(Order).values(number=number)))

    def _nested(self) -> Any:
        return self.transaction.begin_nested()


class _Psycopg(Caller):
    async def insert(self, number: int) -> None:
        await resolved(self.transaction.execute("insert into orders values (%s)", [number]))

    def _nested(self) -> Any:
        return self.transaction.transaction()


class _Asyncpg(Caller):
    def __init__(self, transaction: Any, enlist: Any, *, autocommit: bool) -> None:
        super().__init__(transaction, enlist)
        self._autocommit = autocommit
        self._begun: Any = None

    async def begin(self) -> None:
        if not self._autocommit:
            self._begun = self.transaction.transaction()
            await self._begun.start()

    async def commit(self) -> None:
        await self._begun.commit()

    async def rollback(self) -> None:
        if self._begun is not None:
            await self._begun.rollback()

    async def insert(self, number: int) -> None:
        await self.transaction.execute("insert into orders values ($1)", number)

    def _nested(self) -> Any:
        return self.transaction.transaction()


Kind = Callable[..., AbstractAsyncContextManager[Caller]]
"""Called with a URL, and `autocommit=True` for an application in which each statement commits by itself."""


def _isolation(autocommit: bool) -> dict[str, Any]:
    return {"isolation_level": "AUTOCOMMIT"} if autocommit else {}


@contextmanager
def _engine(url: str, autocommit: bool) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:", 1), **_isolation(autocommit))
    yield engine
    engine.dispose()


@asynccontextmanager
async def session(url: str, *, autocommit: bool = False) -> AsyncIterator[Caller]:
    with _engine(url, autocommit) as engine, orm.Session(engine) as database:
        yield _Orm(database, jmsql.enlist)


@asynccontextmanager
async def connection(url: str, *, autocommit: bool = False) -> AsyncIterator[Caller]:
    with _engine(url, autocommit) as engine, engine.connect() as database:
        yield _Core(database, jmsql.enlist)


@asynccontextmanager
async def psycopg_connection(url: str, *, autocommit: bool = False) -> AsyncIterator[Caller]:
    with psycopg.connect(url, autocommit=autocommit) as database:
        yield _Psycopg(database, jmsql.enlist)


def _async_engine(url: str, driver: str, autocommit: bool) -> AsyncEngine:
    found = sqlalchemy.make_url(url).set(drivername=f"postgresql+{driver}")
    options: dict[str, Any] = _isolation(autocommit)
    if driver == "asyncpg":  # it knows the server's settings apart
        settings = {"application_name": found.query["application_name"]}
        found = found.difference_update_query(settings)
        options["connect_args"] = {"server_settings": settings}
    return create_async_engine(found, **options)


async def _connect(engine: AsyncEngine) -> None:
    """Open the connection that the engine's pool then has, so that no test cancels the driver where it connects."""
    async with engine.connect():
        pass


def _async_session(driver: str) -> Kind:
    @asynccontextmanager
    async def async_session(url: str, *, autocommit: bool = False) -> AsyncIterator[Caller]:
        engine = _async_engine(url, driver, autocommit)
        await _connect(engine)
        async with AsyncSession(engine) as database:
            yield _Orm(database, jmsql.asyncio.enlist)
        await engine.dispose()

    return async_session


def _async_connection(driver: str) -> Kind:
    @asynccontextmanager
    async def async_connection(url: str, *, autocommit: bool = False) -> AsyncIterator[Caller]:
        engine = _async_engine(url, driver, autocommit)
        async with engine.connect() as database:
            yield _Core(database, jmsql.asyncio.enlist)
        await engine.dispose()

    return async_connection


@asynccontextmanager
async def psycopg_async_connection(url: str, *, autocommit: bool = False) -> AsyncIterator[Caller]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=autocommit) as database:
        yield _Psycopg(database, jmsql.asyncio.enlist)


@asynccontextmanager
async def asyncpg_connection(url: str, *, autocommit: bool = False) -> AsyncIterator[Caller]:
    database = await asyncpg.connect(url)
    try:
        yield _Asyncpg(database, jmsql.asyncio.enlist, autocommit=autocommit)
    finally:
        await database.close()


ASYNCHRONOUS: dict[str, Kind] = {
    "AsyncSession of psycopg": _async_session("psycopg"),
    "AsyncConnection of psycopg": _async_connection("psycopg"),
    "psycopg.AsyncConnection": psycopg_async_connection,
    "AsyncSession of asyncpg": _async_session("asyncpg"),
    "AsyncConnection of asyncpg": _async_connection("asyncpg"),
    "asyncpg.Connection": asyncpg_connection,
}

KINDS: dict[str, Kind] = {
    "Session": session,
    "Connection": connection,
    "psycopg.Connection": psycopg_connection,
    **ASYNCHRONOUS,
}
