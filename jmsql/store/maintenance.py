"""The upkeep of the store, done by one control connection at a time."""

from __future__ import annotations

import dataclasses
import logging
import random
import time
from collections.abc import Sequence

from jmsql.duration import as_setting
from jmsql.store.driver import Driver
from jmsql.store.due_messages import DueMessages, purge_deleted
from jmsql.store.history_upkeep import HistoryUpkeep
from jmsql.store.leadership import LeadershipLostError, LeadingDriver, Lease
from jmsql.store.maintenance_task import MaintenanceTask, load_task
from jmsql.store.message_key import MessageKey
from jmsql.store.redelivery import LostClaim, Release, bury, lost_claims, release
from jmsql.store.runner import Runner
from jmsql.store.subscriptions import end_if_abandoned
from jmsql.store.upkeep_statements import upkeep_statements
from jmsql.timings import Timings

__all__ = ["Maintenance"]

logger = logging.getLogger("jmsql")

_REAP_LIMIT = 500
_PURGE_LIMIT = 5000
_RELEASE_LIMIT = 1000
_BODY_LIMIT = 1000

_GONE = "the client went away without acknowledging"
_EXPIRED = "the client held the message for longer than the time limit for claims"


class Maintenance:
    """Frees what dead clients held, and removes what has expired and what was in queues that are gone.

    Every client offers to do it; the one that gets the lease does it, for as long as it renews that. One instance
    serves one connection.

    Args:
        schema: The name of the schema.
        timings: How often it does what.
        pooled: Whether a pooler lends the connection.
    """

    def __init__(self, schema: str, timings: Timings, *, pooled: bool = False) -> None:
        self._schema = schema
        self._timings = timings
        self._statements = upkeep_statements(schema)
        self._due_messages = DueMessages(timings)
        history = HistoryUpkeep(schema, timings, pooled=pooled)
        self._tasks = (
            MaintenanceTask("expired messages", self._reap_expired),
            MaintenanceTask("abandoned subscriptions", self._end_abandoned),
            MaintenanceTask("temporary destinations", self._forget_temporary),
            MaintenanceTask("deleted queues", self._purge_deleted),
            MaintenanceTask("bodies", self._forget_bodies),
            MaintenanceTask("orphans", self._forget_orphans, timings.orphan_interval),
            MaintenanceTask("pages", self._restore_pages, timings.table_check_interval),
            MaintenanceTask("history", history.run, timings.history_maintenance_interval),
        )
        self._requested: dict[str, MaintenanceTask | None] = {}
        self._next_runs: dict[str, float] = {}
        self._lease: Lease | None = None
        self._next_run = 0.0
        self._last_body = 0
        self._moved: list[int] = []

    def seconds_to_next(self) -> float:
        """Return how many seconds there are until something is to be done."""
        seconds = max(0.0, self._next_run - time.monotonic())
        return min(seconds, self._due_messages.seconds_to_next()) if self._lease is not None else seconds

    def message_delayed(self) -> None:
        """Note that somebody has sent a message which is delivered later, perhaps before those that are known."""
        self._due_messages.look_soon()

    def postpone(self) -> None:
        """Do nothing for a while: something went wrong."""
        self._next_run = time.monotonic() + self._timings.maintenance_retry_delay
        self._due_messages.postpone(self._timings.maintenance_retry_delay)

    def move_due(self, driver: Driver) -> list[int]:
        """Move some of the delayed messages that are due now; return the numbers of all queues with moved messages.

        Args:
            driver: The control connection, in autocommit mode.
        """
        if self._lease is not None:
            try:
                self._moved += self._due_messages.run(Runner(LeadingDriver(driver, self._lease), self._schema))
            except LeadershipLostError:
                self._lease = None
        moved, self._moved = self._moved, []
        return moved

    def run(self, driver: Driver, connection_id: int) -> list[MessageKey]:
        """Do what is due if the client has the lease, and return the messages that dead clients held.

        Args:
            driver: The control connection, in autocommit mode.
            connection_id: Its number.
        """
        now = time.monotonic()
        if now < self._next_run:
            return []
        lease = Lease(self._schema, connection_id, self._timings)
        self._lease = lease if lease.renew(driver) else None
        if self._lease is None:
            jitter = random.uniform(0.8, 1.2)  # noqa: S311 - no secret
            self._next_run = now + self._timings.maintenance_interval * jitter
            return []
        self._next_run = now + self._timings.maintenance_interval
        released: list[MessageKey] = []
        try:
            if self.do_all(LeadingDriver(driver, self._lease), connection_id, released):
                self._next_run = now
        except LeadershipLostError:
            self._lease = None
            logger.info("Another client does the maintenance now.")
        return released

    def do_all(self, driver: Driver, connection_id: int, released: list[MessageKey]) -> bool:
        """Do what is due, in small steps, each of which is right also while another client does the same.

        Args:
            driver: Runs the statements, outside any transaction.
            connection_id: The number of a client that lives.
            released: Gets the messages that dead clients held.

        Returns:
            Whether there is more to do.
        """
        requested = driver.execute(self._statements.forget_dead_connections, {"connection_id": connection_id}).rows
        self._release_lost_claims(driver, released)
        self._moved += Runner(driver, self._schema).run(bury())
        tasks = [*self._tasks, *self._load([name for (name,) in requested])]
        has_more = [self._run_task(task, driver) for task in tasks]
        return any(has_more) or len(released) == _RELEASE_LIMIT

    def _load(self, names: Sequence[str]) -> list[MaintenanceTask]:
        """Return the tasks that somebody has requested for the schema."""
        for name in names:
            if name not in self._requested:
                self._requested[name] = load_task(name, self._schema)
        return [task for name in names if (task := self._requested[name]) is not None]

    def _run_task(self, task: MaintenanceTask, driver: Driver) -> bool:
        """Run a task if it is time to; return whether there is more to do at once."""
        if time.monotonic() < self._next_runs.get(task.name, 0.0):
            return False
        self._next_runs[task.name] = time.monotonic() + task.interval  # also if it fails
        has_more = task.run(driver)
        if has_more:
            self._next_runs[task.name] = 0.0
        return has_more

    def _release_lost_claims(self, driver: Driver, released: list[MessageKey]) -> None:
        """Free what dead clients have claimed, and what was claimed for too long: it counts as a failed delivery."""
        runner = Runner(driver, self._schema)
        lost = runner.run(lost_claims(_RELEASE_LIMIT))
        runner.run(release([_release(claim) for claim in lost]))
        released += [claim.key for claim in lost]

    def _reap_expired(self, driver: Driver) -> bool:
        reaped: int = driver.execute(self._statements.reap_expired, {"limit": _REAP_LIMIT}).rows[0][0]
        return reaped == _REAP_LIMIT

    def _forget_temporary(self, driver: Driver) -> bool:
        driver.execute(self._statements.forget_temporary)
        return False

    def _purge_deleted(self, driver: Driver) -> bool:
        purged = driver.execute(self._statements.purge_deleted, {"limit": _PURGE_LIMIT}).row_count
        delayed = Runner(driver, self._schema).run(purge_deleted(_PURGE_LIMIT))
        driver.execute(self._statements.forget_deleted)
        return _PURGE_LIMIT in (purged, delayed)

    def _forget_bodies(self, driver: Driver) -> bool:
        bodies = {"after": self._last_body, "limit": _BODY_LIMIT}
        self._last_body, forgotten = driver.execute(self._statements.forget_bodies, bodies).rows[0]
        return bool(forgotten == _BODY_LIMIT)

    def _forget_orphans(self, driver: Driver) -> bool:
        driver.execute(self._statements.forget_orphans)
        driver.execute(self._statements.find_lost)
        return False

    def _restore_pages(self, driver: Driver) -> bool:
        """Give tables back the pages with which every plan is to count, if somebody has taken them away."""
        tables = [name for (name,) in driver.execute(self._statements.restore_pages).rows]
        if tables:
            logger.info(
                "The tables %s had fewer pages than plans are to count with, as after VACUUM FULL, CLUSTER or a "
                "restored dump. They have them again.",
                ", ".join(tables),
            )
        return False

    def _end_abandoned(self, driver: Driver) -> bool:
        """End the subscriptions whose last consumers went without leaving them, each in a transaction of its own."""
        idleness = {"timeout": as_setting(self._timings.idle_in_transaction_timeout)}
        for (queue_id,) in driver.execute(self._statements.find_abandoned).rows:
            driver.execute("begin")
            driver.execute(self._statements.limit_idleness, idleness)
            Runner(driver, self._schema).run(end_if_abandoned(queue_id))
            driver.execute("commit")
        return False


def _release(claim: LostClaim) -> Release:
    error = _EXPIRED if claim.has_expired else _GONE
    rules = claim.policy.rules
    if rules is None:
        return Release(claim.key, claim.claim_id, 1, 0.0, error, is_death=True)
    failure = rules.after_failure(claim.key, claim.claim_id, claim.failures + 1, error)
    return dataclasses.replace(failure, is_death=True)
