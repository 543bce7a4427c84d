"""One exchange with PostgreSQL as a value, and the only loop of jmsql that reads libpq's results."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import psycopg
from psycopg import generators
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ConnStatus, ExecStatus, Format, PipelineStatus

from jmsql.store.connections.adaptation import Adaptation
from jmsql.store.statement import Result

if TYPE_CHECKING:
    from psycopg import abc
    from psycopg.pq.abc import PGconn, PGresult

# Whatever jmsql asks of PostgreSQL on a connection of its own is one `Exchange`: statements, what begins and ends their
# transaction, and perhaps a question once it has ended. All of it is sent before anything is read, so that it takes one
# round trip. Connections that belong to an application are psycopg's or asyncpg's to speak on.
#
# The goals:
#
# 1. One round trip for each operation, and no statement more than it needs.
# 2. Whatever goes wrong, it is known whether the transaction took effect, and where the connection is. If one of the
#    two cannot be known, the caller is told (08007), or the connection is ended.
#
# What libpq promises, and this module relies on:
#
# - In pipeline mode libpq sends what it is given and expects nothing back until it is asked. Each command brings one
#   result and then None. A message Sync brings a PIPELINE_SYNC, without a None behind it.
# - The server skips every command between one that failed and the next Sync. libpq still brings a result for each of
#   them: PIPELINE_ABORTED. So the results can be told by their places, whatever went wrong.
# - Sync ends the transaction that PostgreSQL has begun by itself: it commits if no command failed. A transaction that
#   was begun with BEGIN goes on. Flush has the server send what it has so far, and ends nothing.
# - Pipeline mode can be left once the last Sync is answered, and not before.
#
# psycopg's own pipeline keeps the same promises. It waits for the server up to four times where once is enough, and its
# cursors take longer for a short statement than the server does.
#
# What follows from them:
#
# - The transaction has ended as soon as the result of COMMIT is there, or the Sync that commits. Whatever fails later,
#   the question, or the connection itself, is no error of the transaction's.
# - An exchange that ends with Flush and fails stops reading at the failure: the rest is answered up to a Sync that is
#   still to be sent. Its caller rolls back, which sends that.
# - A statement is prepared in the exchange that first runs it. If Parse fails, the name does not exist, and is
#   forgotten.
#
# What poolers add. PgBouncer gives a server away with each Sync that it has answered, unless a transaction is open
# there; and it answers Parse for a statement that it knows by itself, but not until the server sends something. So a
# Parse is never sent without the statement that it is for, and what was prepared counts as lost where the pooler would
# lose it (`prepared` is None then). DEALLOCATE in SQL, which it does not understand, is sent only where libpq knows no
# other way.
#
# Why a connection is given up. If the loop below ends early (the connection breaks, Ctrl-C, the end of the event loop),
# results may still be on their way, and what comes next would read them as its own. Nobody can tell how far the server
# has got either. The caller of the loop then ends the connection, which rolls back what did not commit.
#
# The one result that may stay unread is that of a commit: an exchange can leave its Sync to be answered with the next
# exchange. The client then does not wait for the disk of the server, and hears of a failure later (`unanswered`).

OUTDATED = (psycopg.errors.InvalidSqlStatementName, psycopg.errors.FeatureNotSupported)
"""What PostgreSQL says of a prepared statement that was deallocated, or whose result has other columns by now."""

BEGIN = b"begin"
BEGIN_READ_COMMITTED = b"begin isolation level read committed"

Unanswered: TypeAlias = Callable[[psycopg.Error | None], object]
"""Called with what became of a commit that was sent before and not answered; None: it took effect."""


class End(Enum):
    """How an exchange ends."""

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
        """Return what the statement has brought."""
        if not result.nfields:
            return Result([], result.command_tuples or 0)
        self.transformer.set_pgresult(result)
        return Result(self.transformer.load_rows(0, result.ntuples, tuple), result.command_tuples or 0)


def bind(connection: psycopg.BaseConnection[Any] | None, statement: bytes, parameters: Mapping[str, Any]) -> Bound:
    """Write the parameters of a statement by psycopg's default adapters, whatever the connection's are."""
    text, names = numbered(statement)
    transformer = Transformer(Adaptation(connection))
    values = transformer.dump_sequence([*map(parameters.__getitem__, names)], [PyFormat.AUTO] * len(names))
    return Bound(transformer, text, values, transformer.types or (), transformer.formats)


@dataclass(slots=True)
class Exchange:
    """What travels to PostgreSQL and back in one round trip.

    Args:
        statements: What it runs.
        begin: The statement that begins their transaction; None: none does.
        end: How it ends.
        afterwards: A question that changes no rows, once the transaction has ended. Its failure is no error.
        is_answered: Whether what ends it is answered in this exchange; False: with the next one.
        trusts_prepared: Whether what was prepared before is used, which somebody may have deallocated meanwhile.
    """

    statements: Sequence[Bound] = ()
    begin: bytes | None = None
    end: End = End.SYNC
    afterwards: Bound | None = None
    is_answered: bool = True
    trusts_prepared: bool = True


class Outcome(NamedTuple):
    """What an exchange brought.

    Args:
        results: Those of its statements.
        answer: The answer to what was asked afterwards; None: nothing was asked or answered.
        used_prepared: Whether a statement ran that was prepared before.
    """

    results: list[Result]
    answer: Result | None = None
    used_prepared: bool = False


def converse(
    pgconn: PGconn,
    exchange: Exchange,
    prepared: PreparedStatements | None,
    unanswered: Unanswered | None = None,
    encoding: str = "utf-8",
) -> abc.PQGen[Outcome]:
    """Carry an exchange out.

    Args:
        pgconn: The connection.
        exchange: What is said.
        prepared: What the connection has prepared; None: nothing is prepared, and nothing asked afterwards.
        unanswered: Told what became of a commit that an earlier exchange has left unanswered; None: none has.
        encoding: That of the server's messages.

    Raises:
        psycopg.Error: A statement failed, or what ends the transaction, or the connection is lost. Once the transaction
            has ended nothing is an error.
    """
    if pgconn.pipeline_status == PipelineStatus.OFF:
        pgconn.enter_pipeline_mode()
    sent = _send(pgconn, exchange, prepared)
    yield from generators.send(pgconn)
    if unanswered is not None:
        yield from _read_commit(pgconn, unanswered, encoding)
    if not exchange.is_answered:
        return Outcome([])

    # From here on everything that was sent is read, whatever fails: the results in `results`, each at the place of its
    # command, and the answers to Sync in `syncs`. The first error is kept and raised at the end.
    results: list[PGresult] = []
    error: psycopg.Error | None = None
    has_ended = False
    syncs = 0
    try:
        while len(results) < sent.count or syncs < sent.syncs:
            try:
                result: PGresult | None = yield from generators.fetch(pgconn)
            except psycopg.OperationalError:
                if not has_ended:
                    raise
                break
            if result is None:
                # Either the end of one command's results, or there is nobody left to send any.
                if pgconn.status == ConnStatus.BAD:
                    if not has_ended:
                        raise error or psycopg.OperationalError("the connection is lost")
                    break
            elif result.status == ExecStatus.PIPELINE_SYNC:
                syncs += 1
                has_ended = True
            else:
                if result.status == ExecStatus.FATAL_ERROR and not has_ended:
                    error = error or psycopg.errors.error_from_result(result, encoding=encoding)
                    if exchange.end is End.FLUSH:
                        break  # what was skipped is answered up to the Sync that somebody has to send now
                elif len(results) == sent.end_place:
                    has_ended = True  # though the server may not live to say that it is ready
                results.append(result)
    finally:
        # A name counts as prepared from when it is sent, so that the rest of the exchange can use it. One whose Parse
        # did not succeed, or was not answered, must not be used again.
        if prepared is not None:
            for place, statement in sent.preparations:
                if len(results) <= place or results[place].status != ExecStatus.COMMAND_OK:
                    prepared.discard(statement.text, statement.types)
    # Both ways the connection is known: it is gone, or nothing is left on it to be read.
    if syncs < sent.syncs:
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
    """What was sent, by the places of the results: each command brings one."""

    count: int = 0
    places: list[int] = field(default_factory=list)
    """Those of the statements."""
    preparations: list[tuple[int, Bound]] = field(default_factory=list)
    end_place: int | None = None
    """That of COMMIT or ROLLBACK."""
    question_place: int | None = None
    syncs: int = 0
    """How many messages Sync are answered beside that."""
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
            pgconn.send_query_params(
                statement.text, statement.values, statement.types, statement.formats, Format.BINARY
            )
        else:
            if name is None:
                name = _send_preparation(pgconn, prepared, statement, sent)
            else:
                sent.used_prepared = True
            pgconn.send_query_prepared(name, statement.values, statement.formats, Format.BINARY)
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


def read_commit(pgconn: PGconn, unanswered: Unanswered, encoding: str = "utf-8") -> abc.PQGen[None]:
    """Read the answer to a commit that was left unanswered, after which nothing was sent.

    Raises:
        psycopg.Error: The connection is lost.
    """
    yield from _read_commit(pgconn, unanswered, encoding)
    pgconn.exit_pipeline_mode()


def _read_commit(pgconn: PGconn, unanswered: Unanswered, encoding: str) -> abc.PQGen[None]:
    error: psycopg.Error | None = None
    try:
        while True:
            result = yield from generators.fetch(pgconn)
            if result is None:
                if pgconn.status == ConnStatus.BAD:
                    raise error or psycopg.OperationalError("the connection is lost")  # noqa: TRY301 - told below
            elif result.status == ExecStatus.PIPELINE_SYNC:
                break
            elif result.status == ExecStatus.FATAL_ERROR:
                error = error or psycopg.errors.error_from_result(result, encoding=encoding)
    except BaseException as failure:  # GeneratorExit as well: the connection is given up, and nobody will know more
        unanswered(failure if isinstance(failure, psycopg.Error) else psycopg.OperationalError("interrupted"))
        raise
    unanswered(error)


# What is prepared

# A statement that is prepared saves the server its parsing and, after five runs, its planning, which takes longer than
# many a statement itself. PostgreSQL keeps what is prepared for each connection, without a limit, in its memory; so the
# statement that was used least recently is closed here where there are too many.
#
# The types of the parameters are a part of what is prepared, and of the key: the same text with an int and with None
# for a parameter are two statements to PostgreSQL.

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
    """What a connection has prepared, and by which names.

    psycopg keeps its own to itself. When it ends all prepared statements of a connection, as after a rollback,
    it ends these too: the server then does not know the name.
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
