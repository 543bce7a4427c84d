"""The process beside a driver of Spark that keeps the moments of its reads, one for each database.

Planning a read takes the first moment, if queries share it. Each query that is run on the read's DataFrame sees it
while it is kept, and later a new one. Of a read whose queries share none, each has one of its own. But a query never
sees two: one that has seen a moment which is gone gets no other.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from jmsql import JMSException
from jmsql.extension.statements import PsycopgRunner, SqlFile, first_value, nothing, rows, value
from jmsql.spark.connection import DatabaseReference
from jmsql.spark.database import allow_idleness
from jmsql.spark.reading.history import hold_history

_SHORTEST_INTERVAL, _LONGEST_INTERVAL = 0.02, 2.0
"""Seconds from a look for tasks that ask, and for the driver, to the next: at least and at most."""

_IDLENESS_PER_INTERVAL = 200
"""A task that asks after a pause waits for up to half a hundredth of it."""

_INTERVAL_AFTER_FAILURE = 1.0

_MOST_MOMENTS = 8
"""Beyond, those that no task uses are not kept any longer. Each takes a connection."""

_REQUEST_TIMEOUT = 5.0
_SCHEMA = "jmsql"

_sql = SqlFile("snapshot", "jmsql.spark")
_begin = _sql.statement("begin", "taking a snapshot", nothing)
_export = _sql.statement("export", "taking a snapshot", first_value)
_answer = _sql.statement("answer", "telling tasks their moment", value(bool))
_take_back = _sql.statement("take_back", "telling tasks their moment", nothing)
_asked = _sql.statement("asked", "looking for tasks", rows)


@dataclass(eq=False)
class _Moment:
    """A transaction of a read that tells tasks to see its snapshot."""

    read: int
    connection: psycopg.Connection[Any]
    runner: PsycopgRunner
    answered: set[int] = field(default_factory=set)
    """The queries that are told now."""
    queries: set[int] = field(default_factory=set)
    """The queries that see it."""
    last_use: float = field(default_factory=time.monotonic)

    @classmethod
    def take(cls, database: DatabaseReference, read: int, history_of: str | None, *, exports: bool = True) -> _Moment:
        """Begin the transaction, in which no day may be dropped of the history of a schema, if one is named.

        If its snapshot is not exported, the tasks that try to see it are told that it is gone.

        Raises:
            JMSException: The snapshot could not be taken.
        """
        connection = database.open("keeping a snapshot", autocommit=False)
        runner = PsycopgRunner(connection, history_of or _SCHEMA)
        try:
            runner.run(_begin.bind())
            if history_of is not None:
                runner.run(hold_history)
            runner.run(allow_idleness)
            if exports:
                runner.run(_export.bind())
        except BaseException:
            connection.close()
            raise
        return cls(read, connection, runner)

    def answer(self, queries: set[int]) -> None:
        """Tell some queries, and the others no more."""
        for query in self.answered - queries:
            self.runner.run(_take_back.bind(read=self.read, query=query))
        self.answered &= queries
        for query in queries - self.answered:
            if self.runner.run(_answer.bind(read=self.read, query=query)):
                self.answered.add(query)

    def end(self) -> None:
        # A pooler keeps the connection: locks of the session must not stay on it.
        with suppress(JMSException):
            self.answer(set())
        self.connection.close()


@dataclass(eq=False)
class _Read:
    """A read that was planned, whose DataFrame may be used for as long as the driver lives.

    Args:
        number: Its number.
        timeout: For how many seconds a moment is kept that no task uses.
        history_of: The schema of whose history no day may be dropped meanwhile, if any.
        shared: Whether a query sees the moment of those before it, while that is kept.
    """

    number: int
    timeout: float
    history_of: str | None
    shared: bool
    moments: list[_Moment] = field(default_factory=list)
    refusal: _Moment | None = None
    past: set[int] = field(default_factory=set)
    """The queries that saw a moment which is gone."""

    def answer(self, database: DatabaseReference, asking: set[int], answered: set[int]) -> bool:
        """Tell the tasks that ask; return whether one is of a query that is told newly."""
        now = time.monotonic()
        for moment in tuple(self.moments):
            if moment.queries & asking:
                moment.last_use = now
            # One that has not the answers any more that it gave has lost its connection.
            if not moment.answered <= answered or now >= moment.last_use + self.timeout:
                self.forget(moment)
        if self.refusal is not None and not (self.refusal.answered <= answered and asking & self.past):
            self.refusal.end()
            self.refusal = None
        new: set[int] = set()
        with suppress(JMSException):  # the next look answers, or tries to
            for query in asking.difference(self.past, *(moment.queries for moment in self.moments)):
                if not (self.shared and self.moments):
                    self.take(database)
                self.moments[-1].queries.add(query)
                new.add(query)
            if asking & self.past and self.refusal is None:
                self.refusal = _Moment.take(database, self.number, None, exports=False)
        self._answer(asking, new)
        if self.refusal is not None:
            with suppress(JMSException):
                self.refusal.answer(asking & self.past)
        return bool(new)

    def _answer(self, asking: set[int], new: set[int]) -> None:
        """Give the queries that ask their moments, and forget those whose connections are lost."""
        for moment in tuple(self.moments):
            try:
                moment.answer(asking & moment.queries)
            except JMSException:
                moment.queries -= new - moment.answered
                self.forget(moment)

    def take(self, database: DatabaseReference) -> None:
        """Take a moment.

        Raises:
            JMSException: It could not be taken.
        """
        self.moments.append(_Moment.take(database, self.number, self.history_of))

    def forget(self, moment: _Moment) -> None:
        """Keep a moment no longer."""
        self.moments.remove(moment)
        self.past |= moment.queries
        moment.end()


class _Keeper:
    """Keeps the moments of the reads of a database."""

    def __init__(self, database: DatabaseReference) -> None:
        self._database = database
        self._reads: dict[int, _Read] = {}
        self._connection: psycopg.Connection[Any] | None = None
        self._last_use = time.monotonic()
        self._has_failed = False

    @property
    def interval(self) -> float:
        """Seconds until the next look for tasks."""
        if self._has_failed:
            return _INTERVAL_AFTER_FAILURE
        idle = time.monotonic() - self._last_use
        return min(max(idle / _IDLENESS_PER_INTERVAL, _SHORTEST_INTERVAL), _LONGEST_INTERVAL)

    def plan(self, read: int, timeout: float, history_of: str | None, *, shared: bool) -> None:
        """Note a read, and take its first moment if queries share it.

        Raises:
            JMSException: The moment could not be taken.
        """
        planned = _Read(read, timeout, history_of, shared)
        if shared:
            planned.take(self._database)
        self._reads[read] = planned
        self._last_use = time.monotonic()

    def answer(self) -> None:
        """Answer the tasks that ask; end unused snapshots."""
        try:
            asked, answered = self._look()
        except JMSException:
            if self._connection is not None:
                self._connection.close()
            self._connection = None
            self._has_failed = True
            return
        self._has_failed = False
        for number, read in self._reads.items():
            if read.answer(self._database, asked.get(number, set()), answered.get(number, set())):
                self._last_use = time.monotonic()
        kept = [(read, moment) for read in self._reads.values() for moment in read.moments]
        unused = sorted((each for each in kept if not each[1].answered), key=lambda each: each[1].last_use)
        for read, moment in unused[: max(len(kept) - _MOST_MOMENTS, 0)]:
            read.forget(moment)

    def _look(self) -> tuple[dict[int, set[int]], dict[int, set[int]]]:
        asked: dict[int, set[int]] = {}
        answered: dict[int, set[int]] = {}
        if self._reads:
            if self._connection is None:
                self._connection = self._database.open("answering tasks", autocommit=True)
            for key, query in PsycopgRunner(self._connection, _SCHEMA).run(_asked.bind()):
                (answered if key % 2 else asked).setdefault(key - key % 2, set()).add(query)
        return asked, answered


def _serve(keeper: _Keeper, driver_process: int, path: Path, lock: int | None) -> None:
    """Answer, while there is a driver; planning waits for the lock until it finds the socket."""
    path.unlink(missing_ok=True)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
            server.listen()
            if lock is not None:
                os.close(lock)
            _go_on_alone()
            with selectors.DefaultSelector() as selector:
                selector.register(server, selectors.EVENT_READ)
                while _is_running(driver_process):
                    if selector.select(keeper.interval):
                        with suppress(OSError):
                            _plan(keeper, server)
                    keeper.answer()
    finally:
        path.unlink(missing_ok=True)
        path.with_suffix(".lock").unlink(missing_ok=True)


def _go_on_alone() -> None:
    """Let the process end that was started, for the one that waits for it, and go on in another."""
    if os.fork():
        os._exit(0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    os.close(nowhere)


def _plan(keeper: _Keeper, server: socket.socket) -> None:
    planning, _ = server.accept()
    planning.settimeout(_REQUEST_TIMEOUT)
    with planning, planning.makefile("rw") as stream:
        request = json.loads(stream.readline() or "null")
        if request is not None:
            try:
                keeper.plan(**request)
                answer = "ok"
            except JMSException as error:
                answer = " ".join(str(error).split())
            print(answer, file=stream, flush=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _main(driver: str, path: str, connection: str, url: str, request: str = "", lock: str = "") -> None:
    keeper = _Keeper(DatabaseReference(connection or None, url or None))
    if request:
        keeper.plan(**json.loads(request))
    _serve(keeper, int(driver), Path(path), int(lock) if lock else None)


if __name__ == "__main__":
    _main(*sys.argv[1:])
