"""Indexes on messages for consumers with selectors, and the plans that PostgreSQL makes with them or without."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

import psycopg
from psycopg import sql

from jmsql.exceptions import InvalidDestinationException, InvalidSelectorException
from jmsql.selectors import Selector
from jmsql.store.autocommit_connection import AutocommitConnection
from jmsql.store.errors import jms_errors
from jmsql.store.identifier import Schema, quote_identifier
from jmsql.store.migration import check_schema
from jmsql.store.receive import browse_statement

__all__ = ["Explanation", "IndexProgress", "SelectorIndex", "SelectorIndexes"]

_PREFIX = "message_selector_"
_LOOK = 0.2
_EXPLAINED_AT_ONCE = 10


class SelectorIndex(NamedTuple):
    """An index for selectors that compare certain properties. An invalid one is left from a making that broke off."""

    name: str
    expressions: tuple[str, ...]
    valid: bool
    bytes: int
    scans: int


class IndexProgress(NamedTuple):
    """How far PostgreSQL has come with an index: the phase, and the blocks that it has read of those there are."""

    phase: str
    done: int
    total: int


class Explanation(NamedTuple):
    """How a consumer with a selector finds its messages.

    `rows` are the messages that were looked at for the first ten that match, and `uses` is the index that was read.
    """

    condition: str
    parameters: dict[str, object]
    statement: str
    expressions: tuple[str, ...]
    served_by: SelectorIndex | None
    uses: str | None
    rows: int
    found: int
    milliseconds: float
    plan: tuple[str, ...]


class SelectorIndexes:
    """Looks at such indexes, makes them and drops them. A context manager.

    Args:
        url: Where the database is.
        schema: The name of the schema.

    Raises:
        JMSException: The database cannot be reached, or the schema is missing or of another version.
    """

    def __init__(self, url: str, schema: str) -> None:
        self._url = url
        self._schema_name = schema
        self._schema = Schema(schema)
        self._connection = AutocommitConnection(url)
        try:
            with jms_errors("looking at the schema"):
                check_schema(self._connection.sqlalchemy, schema)
        except BaseException:
            self._connection.close()
            raise

    def all(self) -> list[SelectorIndex]:
        """Return the indexes there are."""
        with jms_errors("looking at the indexes"):
            return selector_indexes(self._connection, self._schema)

    def serving(self, selector: Selector) -> SelectorIndex | None:
        """Return the index that serves a selector, if there is one."""
        return serving(self.all(), selector.indexable_expressions)

    def explain(self, queue: str, selector: Selector) -> Explanation:
        """Return how a consumer of a queue finds what a selector chooses. It looks, and takes nothing.

        Raises:
            InvalidDestinationException: There is no such queue.
        """
        queue_id = self._queue_id(queue)
        chosen = selector.to_sql(self._schema_name)
        statement = browse_statement(selector)
        parameters = {
            **statement.parameters,
            "queue_id": queue_id,
            "inverse_priority": -1,
            "sequence": 0,
            "limit": _EXPLAINED_AT_ONCE,
        }
        sql_text = statement.encoded(self._schema_name).decode()
        with jms_errors("explaining the selector"):
            plan = self._explain(sql_text, parameters)
            text = [line for (line,) in self._rows(f"explain {sql_text}", parameters)]
        nodes = [node for node in _nodes(plan["Plan"]) if node.get("Relation Name") == "message"]
        return Explanation(
            chosen.condition,
            chosen.parameters,
            sql_text,
            selector.indexable_expressions,
            self.serving(selector),
            next((node["Index Name"] for node in nodes if "Index Name" in node), None),
            sum(map(_rows_read, nodes)),
            round(plan["Plan"]["Actual Rows"]),
            plan["Execution Time"],
            tuple(text),
        )

    def create(
        self, queue: str, selector: Selector, tell: Callable[[IndexProgress], None]
    ) -> tuple[SelectorIndex, bool]:
        """Make the index that serves a selector, while messages come and go; if it breaks off, it leaves nothing.

        It serves consumers of all queues whose selectors compare the same properties. PostgreSQL waits for all
        transactions that are open meanwhile.

        Args:
            queue: A queue that the selector is for.
            selector: The selector.
            tell: Called now and then, from another thread, with how far it has come.

        Returns:
            The index, and whether it was made; it may have been there.

        Raises:
            InvalidDestinationException: There is no such queue.
            InvalidSelectorException: No index serves the selector.
        """
        self._queue_id(queue)
        expressions = selector.indexable_expressions
        if not expressions:
            raise InvalidSelectorException(
                f"No index serves the selector {selector.text!r}. One serves comparisons of a property, JMSType or "
                "JMSCorrelationID with a literal by =, alone or joined to others by AND: color = 'blue' AND weight > 5."
            )
        present = self._on(expressions)
        if present is not None:
            return present, False
        name = _PREFIX + hashlib.sha256("\0".join(sorted(expressions)).encode()).hexdigest()[:12]
        quoted = f"{self._schema.internal}.{quote_identifier(name)}"
        columns = ", ".join(["queue_id", "inverse_priority", *expressions, "sequence"])
        condition = " and ".join(f"{expression} is not null" for expression in expressions)
        with jms_errors("making the index"):
            self._drop(quoted)  # what is left from a making that broke off
            with _Watch(self._url, self._connection.psycopg.info.backend_pid, tell):
                try:
                    self._run(
                        f"create index concurrently {quote_identifier(name)} "
                        f"on {self._schema.internal}.message ({columns}) where {condition}"
                    )
                    comment = sql.Literal("\n".join(expressions)).as_string(self._connection.psycopg)
                    self._run(f"comment on index {quoted} is {comment}")
                except BaseException:
                    self._drop(quoted)
                    raise
        made = self._on(expressions)
        assert made is not None
        return made, True

    def _on(self, expressions: Sequence[str]) -> SelectorIndex | None:
        """Return the index on just these expressions."""
        found = (index for index in self.all() if index.valid and set(index.expressions) == set(expressions))
        return next(found, None)

    def drop(self, selector: Selector) -> SelectorIndex | None:
        """Drop the index that serves a selector, while messages come and go; return it, or None if there is none."""
        index = self.serving(selector)
        if index is not None:
            with jms_errors("dropping the index"):
                self._drop(f"{self._schema.internal}.{quote_identifier(index.name)}")
        return index

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _queue_id(self, queue: str) -> int:
        with jms_errors("looking for the queue"):
            rows = self._rows(
                f"select queue_id from {self._schema.internal}.queue where name = %(name)s", {"name": queue}
            )
        if not rows:
            raise InvalidDestinationException(f"There is no queue {queue!r}. `jmsql queues` lists those there are.")
        return int(rows[0][0])

    def _explain(self, statement: str, parameters: dict[str, object]) -> dict[str, Any]:
        [(documents,)] = self._rows(f"explain (analyze, buffers, format json) {statement}", parameters)
        document: dict[str, Any] = documents[0]
        return document

    def _rows(self, statement: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        return self._connection.rows(statement, **parameters)

    def _run(self, statement: str) -> None:
        self._connection.psycopg.execute(statement.encode())

    def _drop(self, quoted: str) -> None:
        self._run(f"drop index concurrently if exists {quoted}")


def selector_indexes(connection: AutocommitConnection, schema: Schema) -> list[SelectorIndex]:
    """Return the indexes there are, for a schema as it is quoted."""
    rows = connection.rows(
        f"""select c.relname::text, coalesce(obj_description(c.oid, 'pg_class'), ''), i.indisvalid,
                   pg_relation_size(c.oid), coalesce(s.idx_scan, 0)
            from pg_index i
            join pg_class c on c.oid = i.indexrelid
            left join pg_stat_all_indexes s on s.indexrelid = c.oid
            where i.indrelid = '{schema.internal.replace("'", "''")}.message'::regclass
                and starts_with(c.relname, %(prefix)s)
            order by c.relname""",
        prefix=_PREFIX,
    )
    return [SelectorIndex(name, tuple(filter(None, text.split("\n"))), *rest) for name, text, *rest in rows]


def serving(indexes: Sequence[SelectorIndex], expressions: Sequence[str]) -> SelectorIndex | None:
    """Return the one of some indexes that serves what a selector compares, or the most of it; None: none does."""
    wanted = set(expressions)
    able = [index for index in indexes if index.valid and index.expressions and wanted.issuperset(index.expressions)]
    return max(able, key=lambda index: len(index.expressions), default=None)


class _Watch:
    """Tells how far an index has come, from a thread and a connection of its own.

    Args:
        url: Where the database is.
        process_id: The server's process that makes the index.
        tell: Called with how far it has come.
    """

    def __init__(self, url: str, process_id: int, tell: Callable[[IndexProgress], None]) -> None:
        self._connection = AutocommitConnection(url)
        self._process_id = process_id
        self._tell = tell
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="jmsql-index-progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while not self._ended.wait(_LOOK):
            try:
                rows = self._connection.rows(
                    "select phase, blocks_done, blocks_total from pg_stat_progress_create_index where pid = %(pid)s",
                    pid=self._process_id,
                )
            except psycopg.Error:
                return  # it is only the display
            for row in rows:
                self._tell(IndexProgress._make(row))


def _rows_read(node: dict[str, Any]) -> int:
    return int(node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)))


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all nodes of a plan."""
    return [plan, *(node for part in plan.get("Plans", []) for node in _nodes(part))]
