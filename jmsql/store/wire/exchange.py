"""One exchange with PostgreSQL as a value, and the only loop of jmsql that reads libpq's results.

Whatever jmsql asks of PostgreSQL on a connection of its own is one `Exchange`: statements, what begins and ends their
transaction, and perhaps a question once it has ended. All of it is sent before anything is read, so that it takes one
round trip. Connections that belong to an application are psycopg's or asyncpg's to speak on.

What libpq promises, and this module relies on:

- In pipeline mode libpq sends what it is given and expects nothing back until it is asked. Each command brings one
  result and then None. A message Sync brings a PIPELINE_SYNC, without a None behind it.
- The server skips every command between one that failed and the next Sync. libpq still brings a result for each of
  them: PIPELINE_ABORTED. So the results can be told by their places, whatever went wrong.
- Sync ends the transaction that PostgreSQL has begun by itself: it commits if no command failed. A transaction that was
  begun with BEGIN goes on. Flush has the server send what it has so far, and ends nothing.
- Pipeline mode can be left once the last Sync is answered, and not before.

psycopg's own pipeline keeps the same promises. It waits for the server up to four times where once is enough, and its
cursors take longer for a short statement than the server does.

What poolers add. PgBouncer gives a server away with each Sync that it has answered, unless a transaction is open there;
and it answers Parse for a statement that it knows by itself, but not until the server sends something. So a Parse is
never sent without the statement that it is for, and what was prepared counts as lost where the pooler would lose it
(`prepared` is None then).

Why a connection is given up. If the loop below ends early (the connection breaks, Ctrl-C, a statement that waits is
cancelled twice), results may still be on their way, and what comes next would read them as its own. Nobody can tell how
far the server has got either. Whoever runs the loop then ends the connection, which rolls back what did not commit.

The one result that may stay unread is that of a commit: an exchange can leave its Sync to be answered with the next
exchange. The client then does not wait for the disk of the server, and hears of a failure later (`unanswered`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import psycopg
from psycopg import generators
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ConnStatus, ExecStatus, Format, PipelineStatus

from jmsql.store.statement import Result
from jmsql.store.wire.prepared_statements import PreparedStatements, numbered

if TYPE_CHECKING:
    from psycopg import abc
    from psycopg.pq.abc import PGconn, PGresult


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


def bind(context: abc.AdaptContext, statement: bytes, parameters: Mapping[str, Any]) -> Bound:
    """Write the parameters of a statement."""
    text, names = numbered(statement)
    transformer = Transformer(context)
    values = transformer.dump_sequence([parameters[name] for name in names], [PyFormat.AUTO] * len(names))
    return Bound(transformer, text, values, transformer.types or (), transformer.formats)


@dataclass(slots=True)
class Exchange:
    """What travels to PostgreSQL and back in one round trip.

    Args:
        statements: What it runs.
        begin: The statement that begins their transaction; None: none does.
        end: How it ends.
        afterwards: A question that changes nothing, once the transaction has ended. Its failure is no error.
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
    sent = _Sent(pgconn, exchange, prepared)
    yield from generators.send(pgconn)
    if unanswered is not None:
        yield from _read_commit(pgconn, unanswered, encoding)
    if not exchange.is_answered:
        return Outcome([])

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
        sent.discard_unprepared(results)
    if syncs < sent.syncs:
        pgconn.finish()  # it was lost after the end
    elif sent.syncs:
        pgconn.exit_pipeline_mode()
    if error is not None:
        raise error
    return sent.outcome(results)


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
                    raise error or psycopg.OperationalError("the connection is lost")
            elif result.status == ExecStatus.PIPELINE_SYNC:
                break
            elif result.status == ExecStatus.FATAL_ERROR:
                error = error or psycopg.errors.error_from_result(result, encoding=encoding)
    except BaseException as failure:  # GeneratorExit as well: the connection is given up, and nobody will know more
        unanswered(failure if isinstance(failure, psycopg.Error) else psycopg.OperationalError("interrupted"))
        raise
    unanswered(error)


class _Sent:
    """The commands of an exchange as libpq has taken them, and the places of their results.

    Args:
        pgconn: The connection, in pipeline mode.
        exchange: What is sent.
        prepared: What the connection has prepared.
    """

    __slots__ = ("_asked", "_pgconn", "_preparations", "_prepared", "_statements", "_used", "count", "end_place", "syncs")

    def __init__(self, pgconn: PGconn, exchange: Exchange, prepared: PreparedStatements | None) -> None:
        self._pgconn = pgconn
        self._prepared = prepared
        self._statements: list[tuple[int, Bound]] = []
        self._preparations: list[tuple[int, Bound]] = []
        self._asked: tuple[int, Bound] | None = None
        self._used = False
        self.count = 0
        """How many results come."""
        self.syncs = 0
        """How many messages Sync are answered."""
        self.end_place: int | None = None
        """Where the result of COMMIT or ROLLBACK comes."""
        if exchange.begin is not None:
            self._send_text(exchange.begin)
        for statement in exchange.statements:
            self._statements.append(self._send(statement, trusts_prepared=exchange.trusts_prepared))
        if exchange.end is End.FLUSH:
            pgconn.send_flush_request()
            return
        if exchange.end is not End.SYNC:
            self.end_place = self.count
            self._send_text(b"commit" if exchange.end is End.COMMIT else b"rollback")
        self._sync()
        if exchange.afterwards is not None and prepared is not None:
            self._asked = self._send(exchange.afterwards, trusts_prepared=True)
            self._sync()

    def _sync(self) -> None:
        self._pgconn.pipeline_sync()
        self.syncs += 1

    def _send_text(self, text: bytes) -> None:
        self._pgconn.send_query_params(text, None)
        self.count += 1

    def _send(self, statement: Bound, *, trusts_prepared: bool) -> tuple[int, Bound]:
        prepared = self._prepared
        name = None if prepared is None else prepared.name(statement.text, statement.types)
        if prepared is None or (name is not None and not trusts_prepared):
            self._pgconn.send_query_params(
                statement.text, statement.values, statement.types, statement.formats, Format.BINARY
            )
        else:
            if name is None:
                name = self._send_preparation(prepared, statement)
            else:
                self._used = True
            self._pgconn.send_query_prepared(name, statement.values, statement.formats, Format.BINARY)
        place = self.count
        self.count += 1
        return place, statement

    def _send_preparation(self, prepared: PreparedStatements, statement: Bound) -> bytes:
        """Prepare a statement, close another one if there are too many, and return its name."""
        name = prepared.new_name()
        self._pgconn.send_prepare(name, statement.text, statement.types)
        self._preparations.append((self.count, statement))
        self.count += 1
        outdated = prepared.add(statement.text, statement.types, name)
        if outdated is not None:
            if psycopg.capabilities.has_send_close_prepared():  # which a pooler understands, too
                self._pgconn.send_close_prepared(outdated)
                self.count += 1
            else:
                self._send_text(b"deallocate " + outdated)
        return name

    def discard_unprepared(self, results: Sequence[PGresult]) -> None:
        """Forget the statements of which the server has not said that they are prepared."""
        if self._prepared is not None:
            for place, statement in self._preparations:
                if len(results) <= place or results[place].status != ExecStatus.COMMAND_OK:
                    self._prepared.discard(statement.text, statement.types)

    def outcome(self, results: Sequence[PGresult]) -> Outcome:
        """Return what the results mean."""
        read = [statement.read(results[place]) for place, statement in self._statements]
        answer: Result | None = None
        if self._asked is not None:
            place, question = self._asked
            if len(results) > place and results[place].status == ExecStatus.TUPLES_OK:
                answer = question.read(results[place])
            elif self._prepared is not None:
                self._prepared.forget()  # perhaps it was that
        return Outcome(read, answer, self._used)
