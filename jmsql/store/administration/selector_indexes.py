"""Indexes on messages for consumers with selectors, and the plans that PostgreSQL makes with them or without."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Self, TypeVar

from jmsql.concurrency.threads import start_thread
from jmsql.exceptions import InvalidSelectorException, JMSException, ResourceAllocationException
from jmsql.selectors import Selector
from jmsql.store.destinations.lookup import existing_queue
from jmsql.store.identifier import in_schema, quote_identifier
from jmsql.store.receiving.receive import browse_statement
from jmsql.store.statement import Query, Result, SqlFile, Statement, Steps, column, first_value, nothing, records
from jmsql.store.wire._sync.runner import PsycopgRunner

T = TypeVar("T")

_PREFIX = "message_selector_"
_TABLES = {
    "delayed_message": ("delayed_", "inverse_priority, {}, sequence"),
    "batch_callback": ("callback_", "batch_id, {}, batch_id, batch_id, batch_id, batch_id"),
    "message": ("", "inverse_priority, {}, sequence"),
}
"""The tables with an index: the beginning of its name, and its columns behind the queue's number.

The first ones serve no consumer. They refuse, at the send and at the opening of a batch, the values that the last one
refuses: no message is accepted that could not be delivered when it is due, and would hold up all others. A callback has
no correlation id yet, and a short one then, for which its entry is as much longer.
"""

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


def _to_index(row: tuple[Any, ...]) -> SelectorIndex:
    name, comment, *rest = row
    return SelectorIndex(name, tuple(filter(None, comment.split("\n"))), *rest)


_sql = SqlFile("administration")
_selector_indexes = _sql.statement("selector_indexes", "looking at the indexes", records(_to_index))
_progress = _sql.statement("index_progress", "looking at the index", records(IndexProgress._make))


def selector_indexes() -> Query[list[SelectorIndex]]:
    """Return the indexes there are."""
    return _selector_indexes.bind(prefix=_PREFIX)


def serving(indexes: Sequence[SelectorIndex], expressions: Sequence[str]) -> SelectorIndex | None:
    """Return the index that serves most of a selector's comparisons; None: none does."""
    wanted = set(expressions)
    able = [index for index in indexes if index.valid and index.expressions and wanted.issuperset(index.expressions)]
    return max(able, key=lambda index: len(index.expressions), default=None)


def index_serving(selector: Selector) -> Steps[SelectorIndex | None]:
    """Return the index that serves a selector, if there is one."""
    return serving((yield from selector_indexes()), selector.indexable_expressions)


def explain(runner: PsycopgRunner, queue: str, selector: Selector) -> Explanation:
    """Return the plan by which a consumer finds a selector's messages in a queue. It looks, and takes nothing.

    Raises:
        InvalidDestinationException: There is no such queue.
    """
    statement = browse_statement(selector)
    parameters = {
        **statement.parameters,
        "queue_id": runner.run(existing_queue(queue)),
        "inverse_priority": -1,
        "sequence": 0,
        "limit": _EXPLAINED_AT_ONCE,
    }
    plan = runner.run(_explaining("explain (analyze, buffers, format json)", statement, first_value).bind(parameters))[
        0
    ]
    text = runner.run(_explaining("explain", statement, column).bind(parameters))
    nodes = [node for node in _nodes(plan["Plan"]) if node.get("Relation Name") == "message"]
    chosen = selector.to_sql()
    return Explanation(
        in_schema(chosen.condition, runner.schema),
        chosen.parameters,
        statement.encoded(runner.schema).decode(),
        selector.indexable_expressions,
        runner.run(index_serving(selector)),
        next((node["Index Name"] for node in nodes if "Index Name" in node), None),
        sum(map(_rows_read, nodes)),
        round(plan["Plan"]["Actual Rows"]),
        plan["Execution Time"],
        tuple(text),
    )


def create_index(
    runner: PsycopgRunner, queue: str, selector: Selector, report: Callable[[IndexProgress], None]
) -> tuple[SelectorIndex, bool]:
    """Make the index that serves a selector, while messages come and go; if it breaks off, it leaves nothing.

    It serves consumers of all queues whose selectors compare the same properties. PostgreSQL waits for all
    transactions that are open meanwhile.

    Args:
        runner: Runs the statements.
        queue: A queue that the selector is for.
        selector: The selector.
        report: Called from another thread with the progress, now and then.

    Returns:
        The index, and whether it was made; it may have been there.

    Raises:
        InvalidDestinationException: There is no such queue.
        InvalidSelectorException: No index serves the selector.
    """
    from jmsql.selectors.sql import CORRELATION_ID

    runner.run(existing_queue(queue))
    expressions = selector.indexable_expressions
    if not expressions:
        raise InvalidSelectorException(
            f"No index serves the selector {selector.text!r}. One serves comparisons of a property, JMSType or "
            "JMSCorrelationID with a literal by =, alone or joined to others by AND: color = 'blue' AND weight > 5."
        )
    present = _on(runner.run(selector_indexes()), expressions)
    if present is not None:
        return present, False
    name = _PREFIX + hashlib.sha256("\0".join(sorted(expressions)).encode()).hexdigest()[:12]
    written = [expression.replace("')", "'::text)") for expression in expressions]  # as in a selector's condition
    comment = "'" + "\n".join(expressions).replace("'", "''") + "'"
    runner.run(_drop(name, "making the index"))  # the rest of an interrupted creation
    with _Watch(runner, report):
        try:
            for table, (beginning, columns) in _TABLES.items():
                of_table = [each for each in written if table != "batch_callback" or each != CORRELATION_ID]
                if not of_table:
                    continue
                parts = {
                    "table": table,
                    "name": quote_identifier(beginning + name),
                    "columns": "queue_id, " + columns.format(", ".join(of_table)),
                    "condition": " and ".join(f"{expression} is not null" for expression in of_table),
                }
                runner.run(_sql.statement("create_index", "making the index", nothing, parts).bind())
            named = {"name": quote_identifier(name), "comment": comment}
            runner.run(_sql.statement("comment_on_index", "making the index", nothing, named).bind())
        except BaseException:
            runner.run(_drop(name, "making the index"))
            raise
    made = _on(runner.run(selector_indexes()), expressions)
    assert made is not None
    return made, True


def drop_index(selector: Selector) -> Steps[SelectorIndex | None]:
    """Drop the index that serves a selector, while messages come and go; return it, or None if there is none."""
    index = yield from index_serving(selector)
    if index is not None:
        yield from _drop(index.name, "dropping the index")
    return index


def _drop(name: str, doing: str) -> Steps[None]:
    for beginning, _ in _TABLES.values():
        yield from _sql.statement("drop_index", doing, nothing, {"name": quote_identifier(beginning + name)}).bind()


def _on(indexes: Sequence[SelectorIndex], expressions: Sequence[str]) -> SelectorIndex | None:
    """Return the index on just these expressions."""
    found = (index for index in indexes if index.valid and set(index.expressions) == set(expressions))
    return next(found, None)


def _explaining(command: str, statement: Statement[Any], decode: Callable[[Result], T]) -> Statement[T]:
    return Statement("explain", f"{command} {statement.text}", "explaining the selector", decode)


class _Watch:
    """Tells how far an index has come, from a thread and a connection of its own."""

    def __init__(self, runner: PsycopgRunner, report: Callable[[IndexProgress], None]) -> None:
        self._maker = runner
        self._report = report
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="jmsql-index-progress", daemon=True)

    def __enter__(self) -> Self:
        with suppress(ResourceAllocationException):  # it is only the display
            start_thread(self._thread)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        look = _progress.bind(process_id=self._maker.connection.info.backend_pid)
        try:
            with self._maker.open_another() as watcher:
                while not self._ended.wait(_LOOK):
                    for progress in watcher.run(look):
                        self._report(progress)
        except JMSException:
            return  # it is only the display


def _rows_read(node: dict[str, Any]) -> int:
    return int(node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)))


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all nodes of a plan."""
    return [plan, *(node for part in plan.get("Plans", []) for node in _nodes(part))]
