"""A cursor that sends BEGIN with the first statement of a transaction, in one round trip."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import generators
from psycopg.adapt import Transformer

from jmsql.store.wire.exchange import BEGIN_READ_COMMITTED, COMMAND_OK, IDLE, PIPELINE_OFF, read_to_sync

if TYPE_CHECKING:
    from psycopg import abc

# psycopg waits for the answer to BEGIN before it sends the statement. That costs a fifth of the client's processor time
# for a message whose handler runs one statement. Here both travel in libpq's pipeline mode, which is left again before
# the cursor has its result. So the application finds the connection as psycopg would leave it.
#
# Only a prepared statement travels so. PostgreSQL refuses the simple query protocol in pipeline mode, and psycopg uses
# it for a statement without parameters, which may be several in one text. psycopg also begins a transaction of another
# isolation level, or one that is read-only or deferrable.
#
# psycopg does not hear of such a use of a statement. It deallocates the one that it has heard of least recently where a
# connection has more than a hundred of them, and may take one that begins each transaction. Five uses later it
# prepares that again.
#
# All of that is internal to psycopg, and may change or move with its next release. With a release that is not known
# here, nothing of it is imported, and BEGIN takes a round trip of its own again.
#
# Early ends: an unfinished conversation closes the connection, as in `exchange.py`. A cancellation or Ctrl-C does not
# end it early: psycopg asks the server to interrupt the statement, and reads the rest.


_READ_COMMITTED = psycopg.IsolationLevel.READ_COMMITTED

KNOWN_RELEASE = "3.3."
"""The release of psycopg that this module was written for: its versions begin so."""


def _ignore(_: psycopg.Error | None) -> None:
    """Leave an error to psycopg, which reads it from the result."""


if TYPE_CHECKING or psycopg.__version__.startswith(KNOWN_RELEASE):
    from psycopg._cursor_base import BaseCursor
    from psycopg._preparing import Prepare

    class BeginningCursor(BaseCursor[Any, Any]):
        """Sends BEGIN and a prepared statement together. Inherit it before psycopg's class of a cursor."""

        def _execute_gen(
            self,
            query: abc.Query,
            params: abc.Params | None = None,
            *,
            prepare: bool | None = None,
            binary: bool | None = None,
        ) -> abc.PQGen[None]:
            connection = self._conn
            if (
                connection.pgconn.transaction_status != IDLE  # or an unanswered commit comes first
                or connection.autocommit
                or connection.isolation_level is not _READ_COMMITTED
                or connection.read_only is not None
                or connection.deferrable is not None
                or connection.pgconn.pipeline_status != PIPELINE_OFF
                or connection.prepare_threshold is None
                or prepare is False
                or self.closed
            ):
                return super()._execute_gen(query, params, prepare=prepare, binary=binary)
            return self._begin_and_execute(query, params, prepare, binary)

        def _begin_and_execute(
            self, query: abc.Query, params: abc.Params | None, prepare: bool | None, binary: bool | None
        ) -> abc.PQGen[None]:
            self._reset()
            if not self._last_query or self._last_query is not query:
                self._last_query = None
                self._tx = Transformer(self)
            found = self._find_prepared(query, params, prepare)
            if found is None:
                yield from super()._execute_gen(query, params, prepare=prepare, binary=binary)
            else:
                yield from self._begin_and_execute_prepared(*found, binary)
                self._last_query = query

        def _find_prepared(
            self, query: abc.Query, params: abc.Params | None, prepare: bool | None
        ) -> tuple[Any, bytes] | None:
            """Return the statement as libpq takes it, with its name at the server; None: it is not prepared."""
            try:
                converted = self._convert_query(query, params)
            except Exception:  # noqa: BLE001 - psycopg raises it again, once it has begun the transaction
                return None
            prepared, name = self._get_prepared(converted, prepare)
            return (converted, name) if prepared is Prepare.YES else None

        def _begin_and_execute_prepared(self, query: Any, name: bytes, binary: bool | None) -> abc.PQGen[None]:
            pgconn = self._conn.pgconn
            try:
                pgconn.enter_pipeline_mode()
                pgconn.send_query_params(BEGIN_READ_COMMITTED, None)
                self._send_query_prepared(name, query, binary=binary)
                pgconn.pipeline_sync()
                yield from generators.send(pgconn)
                begun, *answers = yield from read_to_sync(pgconn, _ignore, lambda: self._encoding)
            except BaseException:
                pgconn.finish()
                raise
            pgconn.exit_pipeline_mode()
            if begun.status != COMMAND_OK:
                answers = [begun]
            self._check_results(answers)
            self._set_results(answers)

else:

    class BeginningCursor:
        """Leaves BEGIN to psycopg."""
