"""Running statements on a connection of asyncpg, which applications bring along; jmsql's own are psycopg's."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import asyncpg

from jmsql.concurrency.tasks import interruptible
from jmsql.exceptions import IllegalStateException
from jmsql.store.statement import Result, array_literal
from jmsql.store.wire._async.runner import Runner

# asyncpg differs from psycopg in three ways, which this module bridges.
#
# - Parameters have numbers, and the server decides their types; asyncpg then takes no str for an int. Most parameters
#   of the store's statements are cast where they stand, so they can go as text, and PostgreSQL reads them.
# - Results come as Python's types, but the application may have set codecs of its own for them. That is checked by the
#   first row of each result, and refused.
# - It keeps prepared statements in a cache by their text, which a pooler in transaction mode breaks. The application
#   has chosen the cache's size for that. Only the query for a statement's columns is prepared here, without a name.

_PLACEHOLDER = re.compile(r"%(?:%|\((?P<name>\w+)\)s(?P<cast>::(?P<bytes>bytea\b(?!\[))?)?)")


class _Translation:
    """A statement as asyncpg takes it.

    The server tells asyncpg the types of the parameters, and asyncpg is strict about the values. A parameter that is
    cast wherever it stands goes as text, as psycopg sends it, so that every type but bytes can be written as text. A
    parameter without a cast has the type that the server expects.
    """

    __slots__ = ("_parameters", "attributes", "text")

    def __init__(self, statement: str) -> None:
        found = [match for match in _PLACEHOLDER.finditer(statement) if match["name"]]
        as_they_are = {match["name"] for match in found if not match["cast"] or match["bytes"]}
        numbers = {name: number for number, name in enumerate(dict.fromkeys(match["name"] for match in found), start=1)}
        self._parameters: list[tuple[str, Callable[[Any], Any]]] = [
            (name, _as_it_is if name in as_they_are else _as_text) for name in numbers
        ]

        def placeholder(match: re.Match[str]) -> str:
            name = match["name"]
            if not name:
                return "%"
            cast = match["cast"] or ""
            return f"${numbers[name]}{cast}" if name in as_they_are else f"${numbers[name]}::text{cast}"

        self.text = _PLACEHOLDER.sub(placeholder, statement)
        self.attributes: Sequence[asyncpg.Attribute] | None = None
        """The columns of the rows that it returns; None until the server was asked."""

    def values(self, parameters: Mapping[str, Any]) -> list[Any]:
        """Return the values of the parameters, in their order."""
        return [convert(parameters[name]) for name, convert in self._parameters]


def _as_it_is(value: Any) -> Any:
    return value


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return array_literal(value) if isinstance(value, list | tuple) else str(value)


_PYTHON_TYPES = {"int2": int, "int4": int, "int8": int, "bool": bool, "text": str, "bytea": bytes, "float8": float}


def _check_types(attributes: Sequence[asyncpg.Attribute], records: Sequence[asyncpg.Record]) -> None:
    """Make sure that values come as asyncpg reads them by itself, since the caller may have set codecs.

    Raises:
        IllegalStateException: They do not.
    """
    for record in records[:1]:
        for attribute, value in zip(attributes, record, strict=True):
            name = attribute.type.name
            if value is not None and not isinstance(value, _PYTHON_TYPES.get(name, object)):
                raise IllegalStateException(
                    f"A codec of the connection returns {name} as {type(value).__name__}; jmsql needs asyncpg's own. "
                    f"Call reset_type_codec({name!r}, schema='pg_catalog'), or enlist another connection."
                )


@lru_cache(maxsize=1024)
def _translated(statement: bytes) -> _Translation:
    return _Translation(statement.decode())


_FAIL = (
    "do $$ begin raise query_canceled using message = 'a statement was cancelled, and its transaction is lost'; end $$"
)


class _Interruption:
    """Interrupts the statement that a task runs in a transaction: asyncpg asks the server if it is cancelled.

    asyncpg does not report whether the server had finished the statement before. So a statement that commits by itself
    is not interrupted, and a transaction is made to fail.
    """

    __slots__ = ("_connection", "_is_asked", "task")

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self.task: asyncio.Task[Any] | None = None
        """The task."""
        self._is_asked = False

    @property
    def can_be_interrupted(self) -> bool:
        return not self._is_asked and self._connection.is_in_transaction()

    async def interrupt(self) -> None:
        assert self.task is not None
        self._is_asked = self.task.cancel()

    def was_interrupted(self, error: BaseException) -> bool:
        return isinstance(error, asyncio.CancelledError)

    def end_connection(self) -> None:
        self._connection.terminate()


class AsyncpgRunner(Runner):
    """Runs statements on a connection of asyncpg.

    The connection's codecs, cache of statements and time limit are the caller's.
    """

    __slots__ = ("_connection",)

    def __init__(self, connection: asyncpg.Connection, schema: str) -> None:
        super().__init__(schema)
        self._connection = connection

    @property
    def is_idle(self) -> bool:
        return not self._connection.is_in_transaction()

    async def execute(self, statement: bytes, parameters: Mapping[str, Any]) -> Result:
        interruption = _Interruption(self._connection)
        work = self._execute_or_fail(statement, parameters, interruption)
        return await interruptible(work, interruption, needs_own_task=True)

    async def _execute_or_fail(
        self, statement: bytes, parameters: Mapping[str, Any], interruption: _Interruption
    ) -> Result:
        interruption.task = asyncio.current_task()
        try:
            return await self._execute(statement, parameters)
        except asyncio.CancelledError:
            with contextlib.suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                await self._connection.execute(_FAIL)  # first asyncpg waits until the server has heeded its request
            raise

    async def _execute(self, statement: bytes, parameters: Mapping[str, Any]) -> Result:
        translated = _translated(statement)
        values = translated.values(parameters)
        if translated.attributes is None:
            # Without a name, since a pooler may lend this connection to others next.
            prepared = await self._connection.prepare(translated.text, name="", record_class=asyncpg.Record)
            translated.attributes = prepared.get_attributes()
        if translated.attributes:
            records = await self._connection.fetch(translated.text, *values, record_class=asyncpg.Record)
            _check_types(translated.attributes, records)
            return Result([tuple(record) for record in records], len(records))
        status: str = await self._connection.execute(translated.text, *values)
        count = status.rpartition(" ")[2]
        return Result([], int(count) if count.isdigit() else -1)
