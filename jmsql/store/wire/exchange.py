"""One exchange with PostgreSQL as a value, and the loop that reads its results from libpq."""

from __future__ import annotations

import re
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import psycopg
from psycopg import generators
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ConnStatus, ExecStatus, Format, PipelineStatus, TransactionStatus

from jmsql.store.connections.adaptation import Adaptation
from jmsql.store.statement import Result

if TYPE_CHECKING:
    from psycopg import abc
    from psycopg.pq.abc import PGconn, PGresult

# On its own connections, jmsql talks to PostgreSQL in exchanges. An `Exchange` has statements, the commands that begin
# and end their transaction, and optionally a question after its end. All of it is sent before anything is read, so it
# takes one round trip. On an application's connections, psycopg or asyncpg speaks the protocol.
#
# The goals:
#
# 1. One round trip for each operation, with as few statements as possible.
# 2. After every failure the client knows whether the transaction took effect, and the connection's state. If the
#    outcome is unknown, the session raises error 08007; if the state is unknown, the connection is closed.
#
# What libpq promises, and this module relies on:
#
# - In pipeline mode libpq sends commands without waiting for results. Each command brings one result and then None, for
#   which `get_result` never waits. A Sync message brings a PIPELINE_SYNC, without a None after it.
# - The server skips every command between one that failed and the next Sync. libpq still brings a result for each of
#   them: PIPELINE_ABORTED. So a result's place identifies its command after any failure, too.
# - Sync ends an implicit transaction: it commits if no command failed. A transaction that was begun with BEGIN goes on.
#   Flush makes the server send its results so far, and ends nothing.
# - Pipeline mode can be left once the last Sync is answered, and not before.
#
# psycopg's own pipeline keeps the same promises. It waits for the server up to four times where once is enough, and its
# cursors take more time for a short statement than the server.
#
# What follows from them:
#
# - The transaction has ended when the result of COMMIT has arrived, or of the Sync that commits. A later failure, of
#   the question or the connection, is not an error of the transaction.
# - An exchange that ends with Flush and fails stops reading at the failure: the server answers the rest only up to a
#   Sync that was not sent yet. The caller's rollback sends it.
# - A statement is prepared in the exchange that first runs it. If Parse fails, the name does not exist, and the client
#   forgets it.
#
# Poolers: PgBouncer releases a server after each answered Sync, unless a transaction is open there. It answers Parse
# itself for a statement that it knows, but not until the server sends something. So a Parse is never sent without its
# statement, and prepared statements count as lost where the pooler would lose them (`prepared` is None then). PgBouncer
# does not understand DEALLOCATE in SQL, which is sent only where libpq has no other way.
#
# Early ends: if the loop below ends early (the connection breaks, Ctrl-C, the end of the event loop), results may still
# be on their way, and the next exchange would read them as its own. The server's progress is unknown, too. So the
# caller of the loop closes the connection, which rolls back an uncommitted transaction.
#
# Only a commit's result may stay unread: an exchange can leave the answer to its Sync to the next exchange. The client
# then does not wait for the server's disk, and learns of a failure later (`unanswered`).

OUTDATED = (psycopg.errors.InvalidSqlStatementName, psycopg.errors.FeatureNotSupported)
"""PostgreSQL's errors for a prepared statement that was deallocated, or whose result columns have changed."""

BEGIN = b"begin"
BEGIN_READ_COMMITTED = b"begin isolation level read committed"

Unanswered: TypeAlias = Callable[[psycopg.Error | None], object]
"""Called with the error of an earlier commit whose answer was unread; None if it took effect."""


class End(Enum):
    """The command that ends an exchange."""

    FLUSH = auto()
    """Its results come, and the transaction that PostgreSQL has begun by itself stays open."""
    SYNC = auto()
    """A transaction that PostgreSQL has begun by itself commits. One begun with BEGIN stays open."""
    COMMIT = auto()
    ROLLBACK = auto()


class Bound(NamedTuple):
    """A statement with its parameters, as libpq takes them.

    Args:
        transformer: Reads the result.
        text: The SQL, with numbered parameters.
        values: The values of the parameters.
        types: Their types.
        formats: How they are written.
    """

    transformer: abc.Transformer
    text: bytes
    values: Sequence[Any]
    types: tuple[int, ...]
    formats: Sequence[Format] | None

    def read(self, result: PGresult) -> Result:
        """Return the statement's result."""
        if not result.nfields:
            return Result([], result.command_tuples or 0)
        self.transformer.set_pgresult(result)
        return Result(self.transformer.load_rows(0, result.ntuples, tuple), result.command_tuples or 0)


class Binding:
    """Converts the values of jmsql's statements on a connection by psycopg's default adapters, not the connection's.

    It keeps what it has found out about types from one statement to the next.

    Args:
        connection: The connection; None: values are written as for UTF-8.
    """

    __slots__ = ("_adaptation", "_made_for", "_parameter_status", "_transformer")

    def __init__(self, connection: psycopg.BaseConnection[Any] | None = None) -> None:
        # A cycle of references would keep a connection that the application drops from its end.
        self._adaptation = Adaptation(None if connection is None else weakref.proxy(connection))
        self._parameter_status = _no_status if connection is None else connection.pgconn.parameter_status
        self._made_for: tuple[bytes | None, bytes | None] | None = None
        self._transformer: abc.Transformer

    def bind(self, statement: bytes, parameters: Mapping[str, Any]) -> Bound:
        """Write a statement's parameters."""
        text, names = numbered(statement)
        # A transformer keeps the encoding and the time zone of its beginning, and the application may set others on a
        # connection that it shares. libpq hears of each change with the answer to the statement that has made it.
        status = self._parameter_status
        made_for = status(b"client_encoding"), status(b"TimeZone")
        if made_for != self._made_for:
            self._transformer, self._made_for = Transformer(self._adaptation), made_for
        transformer = self._transformer
        values = transformer.dump_sequence([*map(parameters.__getitem__, names)], [_AUTO] * len(names))
        return Bound(transformer, text, values, transformer.types or (), transformer.formats)


def _no_status(_: bytes) -> bytes | None:
    return None


# A message reads some forty members of enums. To look one up in its enum takes ten times as long as a global name.
IDLE, IN_ERROR = TransactionStatus.IDLE, TransactionStatus.INERROR
PIPELINE_OFF = PipelineStatus.OFF
COMMAND_OK, FATAL_ERROR, PIPELINE_SYNC = ExecStatus.COMMAND_OK, ExecStatus.FATAL_ERROR, ExecStatus.PIPELINE_SYNC
_AUTO, _BINARY = PyFormat.AUTO, Format.BINARY


@dataclass(slots=True)
class Exchange:
    """Statements that travel to PostgreSQL, and their results back, in one round trip.

    Args:
        statements: The statements to run.
        begin: The statement that begins their transaction; None: none does.
        end: How it ends.
        afterwards: A question that changes no rows, once the transaction has ended. Its failure is no error.
        is_answered: True if this exchange reads the answer to its end; False: the next one does.
        trusts_prepared: True to use statements that were prepared before, and may be deallocated by now.
    """

    statements: Sequence[Bound] = ()
    begin: bytes | None = None
    end: End = End.SYNC
    afterwards: Bound | None = None
    is_answered: bool = True
    trusts_prepared: bool = True


class Outcome(NamedTuple):
    """The results of an exchange.

    Args:
        results: The statements' results.
        answer: The answer to the question; None without a question or an answer.
        used_prepared: True if a statement ran that was prepared before.
    """

    results: list[Result]
    answer: Result | None = None
    used_prepared: bool = False


def converse(  # noqa: C901 - the one loop over libpq
    pgconn: PGconn,
    exchange: Exchange,
    prepared: PreparedStatements | None,
    unanswered: Unanswered | None = None,
    encoding: Callable[[], str] = lambda: "utf-8",
) -> abc.PQGen[Outcome]:
    """Carry out an exchange.

    Args:
        pgconn: The connection.
        exchange: The statements, and the transaction's commands.
        prepared: The connection's prepared statements; None: prepare nothing, and ask nothing afterwards.
        unanswered: Receives the outcome of an earlier exchange's unanswered commit; None without one.
        encoding: Returns the encoding of the server's messages.

    Raises:
        psycopg.Error: A statement or the end of the transaction failed, or the connection is lost. Failures after the
            end of the transaction are not raised.
    """
    if pgconn.pipeline_status == PIPELINE_OFF:
        pgconn.enter_pipeline_mode()
    sent = _send(pgconn, exchange, prepared)
    yield from generators.send(pgconn)
    if unanswered is not None:
        yield from read_to_sync(pgconn, unanswered, encoding)
    if not exchange.is_answered:
        return Outcome([])

    # From here on the loop reads an answer to every command, also after a failure: results go to `results`, each at the
    # place of its command, and answers to Sync to `syncs`. The first error is kept and raised at the end.
    results: list[PGresult] = []
    error: psycopg.Error | None = None
    has_ended = False
    syncs = 0
    count, end_place, expected_syncs = sent.count, sent.end_place, sent.syncs
    try:
        while len(results) < count or syncs < expected_syncs:
            try:
                result: PGresult | None = yield from generators.fetch(pgconn)
            except psycopg.OperationalError:
                if not has_ended:
                    raise
                break
            if result is None:
                if pgconn.status == ConnStatus.BAD:
                    if not has_ended:
                        raise error or psycopg.OperationalError("the connection is lost")
                    break
            elif (status := result.status) == PIPELINE_SYNC:
                syncs += 1
                has_ended = True
            else:
                if status == FATAL_ERROR and not has_ended:
                    error = error or psycopg.errors.error_from_result(result, encoding=encoding())
                    if exchange.end is End.FLUSH:
                        break  # the rest is answered only up to a Sync, which the caller's rollback sends
                elif len(results) == end_place:
                    has_ended = True  # though the server may not live to say that it is ready
                results.append(result)
                pgconn.get_result()  # None
    finally:
        # A name counts as prepared from when it is sent, so that the rest of the exchange can use it. One whose Parse
        # did not succeed, or was not answered, must not be used again.
        if prepared is not None:
            for place, statement in sent.preparations:
                if len(results) <= place or results[place].status != COMMAND_OK:
                    prepared.discard(statement.text, statement.types)
    # Both ways the connection is known: it is gone, or nothing is left on it to be read.
    if syncs < expected_syncs:
        pgconn.finish()  # it was lost after the end
    elif syncs:
        pgconn.exit_pipeline_mode()
    if error is not None:
        raise error

    answer: Result | None = None
    if sent.question_place is not None and exchange.afterwards is not None and prepared is not None:
        # One result more would say that its own commit has failed.
        if len(results) == sent.count and results[sent.question_place].status == ExecStatus.TUPLES_OK:
            answer = exchange.afterwards.read(results[sent.question_place])
        else:
            prepared.forget()  # perhaps it was that
    read: list[Result] = []
    for statement, place in zip(exchange.statements, sent.places, strict=True):
        read.append(statement.read(results[place]))
    return Outcome(read, answer, sent.used_prepared)


@dataclass(slots=True)
class _Sent:
    """The places of the results of the sent commands: each command brings one."""

    count: int = 0
    places: list[int] = field(default_factory=list)
    """The statements' places."""
    preparations: list[tuple[int, Bound]] = field(default_factory=list)
    end_place: int | None = None
    """The place of COMMIT or ROLLBACK."""
    question_place: int | None = None
    syncs: int = 0
    """The number of Sync messages that are answered beside the results."""
    used_prepared: bool = False


def _send(pgconn: PGconn, exchange: Exchange, prepared: PreparedStatements | None) -> _Sent:
    """Hand all of an exchange to libpq."""
    sent = _Sent()
    if exchange.begin is not None:
        pgconn.send_query_params(exchange.begin, None)
        sent.count += 1
    question = None if prepared is None else exchange.afterwards
    for statement in exchange.statements if question is None else (*exchange.statements, question):
        if statement is question:
            _send_end(pgconn, exchange.end, sent)
        name = None if prepared is None else prepared.name(statement.text, statement.types)
        if prepared is None or (name is not None and not exchange.trusts_prepared):
            pgconn.send_query_params(statement.text, statement.values, statement.types, statement.formats, _BINARY)
        else:
            if name is None:
                name = _send_preparation(pgconn, prepared, statement, sent)
            else:
                sent.used_prepared = True
            pgconn.send_query_prepared(name, statement.values, statement.formats, _BINARY)
        if statement is question:
            sent.question_place = sent.count
        else:
            sent.places.append(sent.count)
        sent.count += 1
    if question is None:
        _send_end(pgconn, exchange.end, sent)
    else:
        pgconn.pipeline_sync()
        sent.syncs += 1
    return sent


def _send_end(pgconn: PGconn, end: End, sent: _Sent) -> None:
    if end is End.FLUSH:
        pgconn.send_flush_request()
        return
    if end is not End.SYNC:
        sent.end_place = sent.count
        pgconn.send_query_params(b"commit" if end is End.COMMIT else b"rollback", None)
        sent.count += 1
    pgconn.pipeline_sync()
    sent.syncs += 1


def _send_preparation(pgconn: PGconn, prepared: PreparedStatements, statement: Bound, sent: _Sent) -> bytes:
    """Prepare a statement, close another one if there are too many, and return its name."""
    name = prepared.new_name()
    pgconn.send_prepare(name, statement.text, statement.types)
    sent.preparations.append((sent.count, statement))
    sent.count += 1
    outdated = prepared.add(statement.text, statement.types, name)
    if outdated is not None:
        if psycopg.capabilities.has_send_close_prepared():  # which a pooler understands, too
            pgconn.send_close_prepared(outdated)
        else:
            pgconn.send_query_params(b"deallocate " + outdated, None)
        sent.count += 1
    return name


def read_commit(
    pgconn: PGconn, unanswered: Unanswered, encoding: Callable[[], str] = lambda: "utf-8"
) -> abc.PQGen[None]:
    """Read the answer to a commit that was left unanswered, after which nothing was sent.

    Raises:
        psycopg.Error: The connection is lost.
    """
    yield from read_to_sync(pgconn, unanswered, encoding)
    pgconn.exit_pipeline_mode()


def read_to_sync(pgconn: PGconn, unanswered: Unanswered, encoding: Callable[[], str]) -> abc.PQGen[list[PGresult]]:
    """Read the results up to the answer to a Sync, and report the first error or None.

    Raises:
        psycopg.Error: The connection is lost.
    """
    error: psycopg.Error | None = None
    results: list[PGresult] = []
    try:
        while True:
            result: PGresult | None = yield from generators.fetch(pgconn)
            if result is None:
                if pgconn.status == ConnStatus.BAD:
                    raise error or psycopg.OperationalError("the connection is lost")  # noqa: TRY301 - handled below
            elif result.status == PIPELINE_SYNC:
                break
            else:
                results.append(result)
                if result.status == FATAL_ERROR:
                    error = error or psycopg.errors.error_from_result(result, encoding=encoding())
    except BaseException as failure:  # GeneratorExit as well: the connection is closed, and the outcome stays unknown
        unanswered(failure if isinstance(failure, psycopg.Error) else psycopg.OperationalError("interrupted"))
        raise
    unanswered(error)
    return results


# Prepared statements
#
# A prepared statement saves the server its parsing and, after five runs, its planning, which takes longer than many a
# short statement. PostgreSQL keeps each connection's prepared statements in memory, without a limit. So the client
# closes the least recently used one where there are too many.
#
# The parameters' types are part of the statement and of the key: to PostgreSQL, the same text with an int and with None
# for a parameter is two statements.

_MOST_PREPARED = 100

_PLACEHOLDER = re.compile(rb"%(?:%|\((\w+)\)s)")


class NumberedStatement(NamedTuple):
    """SQL as PostgreSQL itself takes it, with `$1` for the first of its parameters."""

    text: bytes
    parameters: tuple[str, ...]


@lru_cache(maxsize=1024)
def numbered(statement: bytes) -> NumberedStatement:
    """Turn psycopg's named placeholders into PostgreSQL's numbered ones."""
    names: dict[bytes, int] = {}

    def number(match: re.Match[bytes]) -> bytes:
        name = match[1]
        return b"%" if name is None else b"$%d" % names.setdefault(name, len(names) + 1)

    text = _PLACEHOLDER.sub(number, statement)
    return NumberedStatement(text, tuple(name.decode() for name in names))


class PreparedStatements:
    """A connection's prepared statements, and their names.

    psycopg keeps a separate list. When it deallocates all prepared statements of a connection, as after a rollback, it
    deallocates these, too: the server then does not know the name.
    """

    def __init__(self) -> None:
        self._names: OrderedDict[tuple[bytes, tuple[int, ...]], bytes] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return len(self._names)

    def name(self, text: bytes, types: tuple[int, ...]) -> bytes | None:
        """Return the name of a statement for these types of parameters; None: it is not prepared."""
        found = self._names.get((text, types))
        if found is not None and len(self._names) > 1:
            self._names.move_to_end((text, types))
        return found

    def new_name(self) -> bytes:
        """Return a name that no statement of the connection has had."""
        self._count += 1
        return b"jmsql_%d" % self._count

    def add(self, text: bytes, types: tuple[int, ...], name: bytes) -> bytes | None:
        """Note that a statement is prepared; return the name of one that is to be closed, since there are too many."""
        self._names[text, types] = name
        return self._names.popitem(last=False)[1] if len(self._names) > _MOST_PREPARED else None

    def discard(self, text: bytes, types: tuple[int, ...]) -> None:
        """Note that a statement is not prepared."""
        self._names.pop((text, types), None)

    def forget(self) -> None:
        """Note that the server may know none of them any more."""
        self._names.clear()
