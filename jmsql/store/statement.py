"""Statements as values: SQL with its parameters, and the decoding of its result. Nothing here does any I/O."""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from jmsql.store.identifier import in_schema, quote_identifier

# Leaves out messages of pending transactions (`store.sending.pending_transactions`): all that reads messages asks.
# The planner takes a row for sent. Of a plain comparison it would conclude, where one transaction has filled the table,
# that no row is.
_PENDING = "array(select transaction_id from jmsql_internal.pending_transaction)"
_IS_SENT = f"nullif(m.transaction_id = any({_PENDING}), true) is not null"

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_INDENTATION = re.compile(r"\s*\n\s*")


class Result(NamedTuple):
    """The result of a statement.

    `rows` is empty for a statement that returns none; `row_count` is the number of rows returned or changed.
    """

    rows: list[tuple[Any, ...]]
    row_count: int


@dataclass(frozen=True, slots=True, eq=False)
class Statement(Generic[T_co]):
    """A statement, for every schema and all values of its parameters.

    Args:
        name: Its name in the source.
        text: The SQL, for the schemas `jmsql` and `jmsql_internal`, with psycopg's placeholders. `{schema}` stands for
            the name of the schema, `{channel}` for the same as a literal, which notifications go by, and `{is_sent}`
            for the condition that a message `m` is not one of a pending transaction.
        doing: Its action, the first words of an error: "sending". It may contain parameters: "looking up {name!r}".
        decode: Converts the result for the caller.
        parameters: The values that belong to the text, such as the literals of a selector.
    """

    name: str
    text: str
    doing: str
    decode: Callable[[Result], T_co]
    parameters: Mapping[str, object] = field(default_factory=dict)
    _encoded: dict[str, bytes] = field(default_factory=dict, init=False, repr=False)

    def bind(self, parameters: Mapping[str, object] | None = None, /, **more: object) -> Query[T_co]:
        """Return the statement with values for its parameters."""
        return Query(self, {**self.parameters, **(parameters or {}), **more})

    def copying(self, data: bytes) -> Query[T_co]:
        """Return the statement, a COPY from the client, with its data."""
        return Query(self, {}, data)

    def encoded(self, schema: str) -> bytes:
        """Return the SQL for a schema. The same bytes each time, by which psycopg recognises a prepared statement.

        Without indentation: psycopg reads the placeholders of statements longer than 4,096 bytes again each time.
        """
        found = self._encoded.get(schema)
        if found is None:
            written = schema.replace("%", "%%")  # psycopg reads placeholders in it
            channel = "'" + written.replace("'", "''") + "'"
            text = _INDENTATION.sub("\n", self.text)
            text = fill(text, schema=quote_identifier(written), channel=channel, is_sent=_IS_SENT)
            found = self._encoded[schema] = in_schema(text, written).encode()
        return found


@dataclass(slots=True)
class Query(Generic[T_co]):
    """A statement with its parameters, which a runner runs. Decisions await its result with `yield from`.

    Args:
        statement: The statement.
        parameters: The values of its parameters.
        data: The data of a COPY from the client; None: it is another statement.
    """

    statement: Statement[T_co]
    parameters: dict[str, object]
    data: bytes | None = None

    @property
    def doing(self) -> str:
        """The statement's action, the first words of an error."""
        return self.statement.doing.format_map(self.parameters)

    def doing_as(self, role: str | None) -> str:
        """Return the action for an error of a role without the privilege: a send names its destinations."""
        text = self.doing
        for parameter, kind in _TARGETS.items() if text in _SENDING else ():
            value = self.parameters.get(parameter)
            if isinstance(value, str):
                # The literal of an array names a destination for each message.
                names = dict.fromkeys(_quoted(value)) if value.startswith("{") else [f'"{value}"']
                text += f" to the {kind} {', '.join(names)}"
                break
        return text if role is None else f'{text} as the role "{role}"'

    def __iter__(self) -> Generator[Query[Any], Any, T_co]:
        result: T_co = yield self
        return result


_SENDING = {"sending", "publishing"}
_TARGETS = {"topic": "topic", "destination": "queue", "queues": "queue"}
"""The parameters of sends that name their destinations."""
_quoted = re.compile(r'"(?:[^"\\]|\\.)*"').findall


class CannotCopyError(Exception):
    """A connection cannot run COPY now; it has done nothing, and takes other statements."""


Steps: TypeAlias = Generator[Query[Any], Any, T]
"""A decision that takes several statements: it yields each of them, gets its result, and returns the decision.

An error of a statement is raised where the decision has yielded it."""


@dataclass(frozen=True, slots=True)
class Item(Generic[T_co]):
    """One of the results that a decision hands out while it goes on."""

    value: T_co


Items: TypeAlias = Generator[Query[Any] | Item[T], Any, None]
"""A decision with many results, which a runner iterates over: between its statements it yields each as an `Item`.

No transaction of its own is open at an item: the next one need not be asked for."""


# Decoders of results


def rows(result: Result) -> list[tuple[Any, ...]]:
    """Return the rows as they are."""
    return result.rows


def column(result: Result) -> list[Any]:
    """Return the first column."""
    return [row[0] for row in result.rows]


def row_count(result: Result) -> int:
    """Return how many rows there are, or were changed."""
    return result.row_count


def nothing(_: Result) -> None:
    """Return nothing: all that matters is that there was no error."""


def value(kind: Callable[[Any], T]) -> Callable[[Result], T]:
    """Decode the only value of the only row."""
    return lambda result: kind(result.rows[0][0])


def first_value(result: Result) -> Any:
    """Return the only value of the only row."""
    return result.rows[0][0]


def optional_value(kind: Callable[[Any], T]) -> Callable[[Result], T | None]:
    """Decode the only value of the only row, or None if there is no row."""
    return lambda result: kind(result.rows[0][0]) if result.rows else None


def record(make: Callable[[tuple[Any, ...]], T]) -> Callable[[Result], T]:
    """Decode the only row."""
    return lambda result: make(result.rows[0])


def mapping(result: Result) -> dict[Any, Any]:
    """Return rows of two columns as a mapping, from the first to the second."""
    return dict(result.rows)


def records(make: Callable[[tuple[Any, ...]], T]) -> Callable[[Result], list[T]]:
    """Decode each row."""
    return lambda result: list(map(make, result.rows))


# Parameters that are arrays, as PostgreSQL reads them

_to_quote = re.compile(r'[\\"]').search


def _text_element(value: str) -> str:
    if _to_quote(value) is not None:
        value = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{value}"'


def _element(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return _text_element(value)
    if isinstance(value, bytes):
        return f'"\\\\x{value.hex()}"'
    return str(value)


def array_literal(values: Iterable[str | int | float | bytes | None]) -> str:
    """Write a PostgreSQL array; measured at two fifths of the time that psycopg takes for a list."""
    return "{" + ",".join(map(_element, values)) + "}"


def integers_literal(values: Iterable[int]) -> str:
    """Write a PostgreSQL array of integers, none of which is null; measured at a third of the time."""
    return "{" + ",".join(map(str, values)) + "}"


# The beginnings and ends of transactions

_begin = Statement("begin", "begin", "beginning a transaction", nothing)
_commit = Statement("commit", "commit", "committing", nothing)
_rollback = Statement("rollback", "rollback", "rolling back", nothing)
rollback = _rollback.bind()
"""Ends an open transaction, of which nothing stays."""


def in_transaction(work: Query[T] | Steps[T]) -> Steps[T]:
    """Run a statement, or a decision's statements, in one transaction, on a connection in autocommit mode."""
    yield from _begin.bind()
    try:
        result = yield from work
        yield from _commit.bind()
    except BaseException as error:
        from jmsql.store.errors import is_connection_lost  # loads the drivers, which a statement itself needs none of

        if not is_connection_lost(error):
            yield from rollback
        raise
    return result


def after_each_begin(first: Query[Any], work: Query[T] | Generator[Any, Any, T]) -> Generator[Any, Any, T]:
    """Run `work` on a connection in autocommit mode, with `first` at the beginning of each of its transactions.

    A statement that `work` runs outside of a transaction gets one. Works for a decision with many results, too.
    """
    if isinstance(work, Query):
        return (yield from in_transaction(_after(first, work)))
    is_open = False
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            step: Any = work.send(answer) if error is None else work.throw(error)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        answer = error = None
        try:
            if isinstance(step, Item):
                yield step
            elif step.statement is _begin:
                answer = yield step
                is_open = True
                yield first
            elif is_open:
                is_open = step.statement not in {_commit, _rollback}
                answer = yield step
            else:
                answer = yield from in_transaction(_after(first, step))
        except GeneratorExit:
            work.close()
            raise
        except BaseException as raised:  # noqa: BLE001 - raised where the decision has yielded
            error = raised


def _after(first: Query[Any], work: Query[T]) -> Steps[T]:
    yield from first
    return (yield from work)


# Where static SQL is written

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n?", re.MULTILINE)


class SqlFile:
    """A file of SQL in `jmsql/store/sql`: statements and parts of statements, each headed by ``-- name: some_name``."""

    def __init__(self, theme: str, package: str = "jmsql.store") -> None:
        text = importlib.resources.files(package).joinpath("sql", f"{theme}.sql").read_text("utf-8")
        _, *parts = _NAME.split(text)
        bodies = (_COMMENT.sub("", body).strip().removesuffix(";") for body in parts[1::2])
        self._texts = dict(zip(parts[::2], bodies, strict=True))

    def __getitem__(self, name: str) -> str:
        return self._texts[name]

    def statement(
        self, name: str, doing: str, decode: Callable[[Result], T], parts: Mapping[str, str] | None = None
    ) -> Statement[T]:
        """Return the statement of a name.

        Args:
            name: The name in the file.
            doing: Its action, for errors.
            decode: Converts its result for the caller.
            parts: Its composed parts, by their names in braces.
        """
        return Statement(name, fill(self[name], **(parts or {})), doing, decode)


def fill(text: str, **parts: str) -> str:
    """Put parts into SQL, where their names stand in braces."""
    for name, part in parts.items():
        text = text.replace("{" + name + "}", part)
    return text
