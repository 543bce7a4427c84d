"""The console's connections: few, opened on demand, and closed when no visitor uses the console."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from jmsql import ConnectionFactory, JMSContext, enlist
from jmsql.admin import Administration
from jmsql.client._sync.administration.lent_administration import LentAdministration
from jmsql.client._sync.link.opening import default_url, open_runner
from jmsql.concurrency.threads import start_thread
from jmsql.exceptions import IllegalStateException, JMSException, ResourceAllocationException
from jmsql.logs import contained_logger
from jmsql.store.administration import looks
from jmsql.store.administration.diagnosis import clock_skew
from jmsql.store.errors import is_connection_lost, jms_errors
from jmsql.store.saying import Saying
from jmsql.store.statement import Query, Steps
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.values.clock import monotonic

logger = contained_logger("jmsql.console")

T = TypeVar("T")

_MOST_CONNECTIONS = 4
_LONGEST_WAIT = 10.0
"""Seconds for which a request waits for a connection."""
_LONGEST_STATEMENT = 30.0
"""Seconds for which a statement of an action runs; reads have a lower limit."""
_LONGEST_LOCK_WAIT = 5.0
"""Seconds for which an action waits for a lock. Four that wait without end would take all connections from pages."""


_CLOCK_PAUSE = 60.0
"""Seconds between two comparisons of the server's clock with the host's."""


class Database:
    """Runs looks and actions, each on a connection that is free. May be used from any thread.

    Args:
        factory: Where the messages are.
        patience: Seconds after the last use in which connections stay open.
    """

    def __init__(self, factory: ConnectionFactory, *, patience: float) -> None:
        self._factory = factory
        self._patience = patience
        self._free = threading.Semaphore(_MOST_CONNECTIONS)
        self._lock = threading.Condition()
        self._idle: list[PsycopgRunner] = []
        self._used_at = 0.0
        # Seconds by which the server's clock is ahead. Any thread writes both; the last one that has compared wins.
        self._clock_skew = 0.0
        self._clock_set_until = 0.0
        self._keeper: threading.Thread | None = None
        self._is_closed = False

    @property
    def factory(self) -> ConnectionFactory:
        """The factory of client connections to the database."""
        return self._factory

    def read(self, work: Query[T] | Steps[T]) -> T:
        """Read from the store, in a transaction that changes nothing.

        Raises:
            JMSException: The database cannot be reached, or PostgreSQL refuses.
        """
        with self.runner() as runner:
            return runner.run(looks.read_only(work))

    @contextmanager
    def administration(self, said: Saying) -> Iterator[Administration]:
        """Lend an administration, for changes.

        Args:
            said: The remarks for the activity.

        Raises:
            JMSException: The database cannot be reached.
        """
        with self.runner() as runner:
            yield LentAdministration(runner, said)

    @contextmanager
    def context(self) -> Iterator[JMSContext]:
        """Lend a context, whose sends are committed together at the end.

        Raises:
            JMSException: The database cannot be reached, or the commit has failed.
        """
        with (
            self.runner() as runner,
            jms_errors("committing"),
            runner.connection.transaction(),
            enlist(runner.connection, schema=self._factory.schema) as context,
        ):
            yield context

    @contextmanager
    def runner(self) -> Iterator[PsycopgRunner]:
        """Lend a connection that works.

        Raises:
            JMSException: The database cannot be reached.
        """
        if not self._free.acquire(timeout=_LONGEST_WAIT):
            raise ResourceAllocationException("All connections of the console are in use. Try again in a moment.")
        try:
            runner = self._take()
            try:
                self._set_clock(runner)
                yield runner
            except JMSException as error:
                if is_connection_lost(error):
                    self.close_idle()
                raise
            finally:
                self._release(runner)
        finally:
            self._free.release()

    def now(self) -> float:
        """Return the server's time, in seconds since the epoch: the host's clock may be off by any time."""
        return time.time() + self._clock_skew

    def _set_clock(self, runner: PsycopgRunner) -> None:
        """Compare the clocks, if they were not compared for a while."""
        if monotonic() >= self._clock_set_until:
            self._clock_skew = runner.run(clock_skew()).seconds
            self._clock_set_until = monotonic() + _CLOCK_PAUSE

    def _take(self) -> PsycopgRunner:
        with self._lock:
            if self._is_closed:
                raise IllegalStateException("The console is closed.")
            while self._idle:
                runner = self._idle.pop()
                if not runner.was_ended:  # as the server, or a pooler, ends idle ones
                    return runner
                runner.close()
        factory = self._factory
        url = default_url(factory.schema) if factory.url is None else factory.url
        return open_runner(
            url, factory.schema, factory.timings, statement_timeout=_LONGEST_STATEMENT, lock_timeout=_LONGEST_LOCK_WAIT
        )

    def _release(self, runner: PsycopgRunner) -> None:
        with self._lock:
            if runner.is_idle and not runner.connection.broken and not self._is_closed:
                self._used_at = monotonic()
                if self._has_keeper():
                    self._idle.append(runner)
                    return
        runner.close()

    def _has_keeper(self) -> bool:
        """Return True if a thread closes idle connections, or can be started; the caller holds the lock."""
        if self._keeper is None:
            keeper = threading.Thread(target=self._keep, name="jmsql console connections", daemon=True)
            try:
                start_thread(keeper)
            except ResourceAllocationException as error:
                logger.info("The console keeps no idle connection: %s", error)
                return False
            self._keeper = keeper
        return True

    def _keep(self) -> None:
        """Close idle connections some seconds after the last use: no page may follow on the one that opened them."""
        with self._lock:
            while self._idle and not self._is_closed:
                rest = self._used_at + self._patience - monotonic()
                if rest <= 0:
                    break
                self._lock.wait(rest)
            idle, self._idle = self._idle, []
            self._keeper = None
        for runner in idle:
            runner.close()

    def close_idle(self) -> None:
        """Close the connections that nothing is done with."""
        with self._lock:
            idle, self._idle = self._idle, []
        for runner in idle:
            runner.close()

    def close(self) -> None:
        """Close the connections for good."""
        with self._lock:
            self._is_closed = True
            keeper = self._keeper
            self._lock.notify_all()
        self.close_idle()
        if keeper is not None:
            keeper.join()
