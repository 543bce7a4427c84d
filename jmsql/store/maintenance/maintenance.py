"""Maintenance of the store, done by one control connection at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import psycopg

from jmsql.exceptions import JMSException
from jmsql.logs import contained_logger
from jmsql.store.destinations.subscriptions import end_if_abandoned
from jmsql.store.errors import is_connection_lost
from jmsql.store.history.keeping import RECORDED, history
from jmsql.store.maintenance.due_messages import DueMessages, purge_deleted_delayed
from jmsql.store.maintenance.history_maintenance import HistoryMaintenance
from jmsql.store.maintenance.leadership import HAS_MESSAGE, LeadershipLostError, Lease, Standing, while_leading
from jmsql.store.maintenance.maintenance_task import MaintenanceTask, load_task
from jmsql.store.receiving.candidates import LOOK_UPS
from jmsql.store.receiving.progress import forget_progress
from jmsql.store.receiving.redelivery import LostClaim, Release, bury, forget_outcomes, lost_claims, release
from jmsql.store.receiving.results import EXPIRED_PARTS, remove_results
from jmsql.store.receiving.throttling import forget_limits
from jmsql.store.rows.columns import SEND_COLUMNS
from jmsql.store.rows.message_rows import MessageKey
from jmsql.store.sending.batches import check_batches, remove_batches
from jmsql.store.sending.conditional import forget_ids, forget_keys
from jmsql.store.statement import (
    Query,
    SqlFile,
    Steps,
    column,
    in_transaction,
    nothing,
    record,
    rollback,
    row_count,
    rows,
    value,
)
from jmsql.store.wire._sync.runner import Runner
from jmsql.timings import InternalTimings
from jmsql.timings import jitter as spread
from jmsql.values.clock import monotonic
from jmsql.values.duration import as_setting

logger = contained_logger("jmsql")

_REAP_LIMIT = 500
_BATCH_LIMIT = 100
_BATCH_PAUSE = 0.02
"""Seconds before batches are looked at again, at first; doubles each time."""
_PURGE_LIMIT = 5000
_RELEASE_LIMIT = 1000
_BODY_LIMIT = 1000
_KEY_LIMIT = 5000
_LOOK_SHARE = 20.0

_GONE = "the client went away without acknowledging"
_EXPIRED = "the client held the message for longer than its visibility timeout"


_names = [name for name, _ in SEND_COLUMNS[1:]]
_sql = SqlFile("maintenance")
_moved = {"jms_expiration": "null", "properties": _sql["expired_properties"]}
_parts = {
    "columns": ", ".join(_names),
    "moved": ", ".join(_moved.get(name, f"e.{name}") for name in _names),
    "history": history(
        queues="array(select queue_id from free)",
        addresses="array(select address from free)",
        deliveries="array(select delivery_count from free)",
        outcome="expired",
    ),
    "recorded": RECORDED,
    **LOOK_UPS,  # last, since other parts contain them
}


class Work(NamedTuple):
    """The work that the maintenance has found.

    Args:
        requested: The tasks that were requested.
        found_dead: Whether clients have died, so that there may be everything to do.
        claims: Whether messages are claimed.
        dead_letters: Whether messages wait for their way to a dead-letter queue.
        expired: Whether messages have expired.
        abandoned: Whether subscriptions were left without a consumer.
        temporary: Whether there are temporary destinations.
        deleted: Whether there are deleted queues.
        bodies: Whether there are shared bodies.
        batches: Whether there are batches of which no transaction could tell that they have ended.
    """

    requested: Sequence[str]
    found_dead: bool
    claims: bool
    dead_letters: bool
    expired: bool
    abandoned: bool
    temporary: bool
    deleted: bool
    bodies: bool
    batches: bool


_parts["find_abandoned"] = _sql["find_abandoned"]
_forget_dead_connections = _sql.statement(
    "forget_dead_connections", "forgetting dead clients", record(Work._make), _parts
)
reap_expired = _sql.statement("reap_expired", "removing what has expired", value(int), EXPIRED_PARTS | _parts)
_find_abandoned = _sql.statement("find_abandoned", "looking for abandoned subscriptions", column)
_limit_idleness = _sql.statement("limit_idleness", "ending an abandoned subscription", nothing)
_forget_temporary = _sql.statement("forget_temporary", "removing temporary destinations", nothing)
purge_deleted = _sql.statement("purge_deleted", "removing what was in deleted queues", row_count, _parts)
forget_deleted = _sql.statement("forget_deleted", "removing deleted queues", nothing)
_forget_bodies = _sql.statement("forget_bodies", "removing shared bodies", rows)
_forget_orphans = _sql.statement("forget_orphans", "removing orphaned deliveries", nothing)
_find_lost = _sql.statement("find_lost", "looking for lost messages", nothing)
_missed_messages = SqlFile("control").statement(
    "missed_messages", "looking for messages", column, {"has_message": HAS_MESSAGE}
)
_old_activity = _sql.statement("forget_activity", "removing old lines of the activity", value(int))
_note_rates = _sql.statement("note_rates", "noting the rates of destinations", value(int)).bind()
_restore_pages = _sql.statement("restore_pages", "restoring pages", column)


def _up_to(limit: int, *work: Query[int]) -> Callable[[Runner], bool]:
    """Return a step of statements that do so much at most: where one has done that, there is more to do."""
    return lambda runner: max([runner.run(each) for each in work]) >= limit


_reap_expired = _up_to(_REAP_LIMIT, reap_expired.bind(limit=_REAP_LIMIT))
_remove_results = _up_to(_PURGE_LIMIT, remove_results(_PURGE_LIMIT))
_remove_batches = _up_to(_PURGE_LIMIT, remove_batches(_PURGE_LIMIT))
_forget_activity = _up_to(_PURGE_LIMIT, _old_activity.bind(limit=_PURGE_LIMIT))
_forget_keys = _up_to(_KEY_LIMIT, forget_ids.bind(limit=_KEY_LIMIT), forget_keys.bind(limit=_KEY_LIMIT))


@dataclasses.dataclass
class _Untold:
    """News of which no consumer has heard yet.

    Args:
        moved: The queues to which messages have come.
        released: The messages that are free again.
    """

    moved: list[int]
    released: list[MessageKey]


@dataclasses.dataclass
class _BatchLooks:
    """The times of looks at batches of which no transaction could tell that they have ended.

    Args:
        pause: Seconds before the next look while some stay undecided; doubles each time.
        earliest: When a notification may have the next look come, on the monotonic clock.
    """

    pause: float = _BATCH_PAUSE
    earliest: float = 0.0


class Maintenance:
    """The work that one client does for all: `do_all` in steps and by tasks, and `move_due`.

    Every client whose role administers offers to do it; the one that gets the lease does it, for as long as it renews
    that. One instance serves one connection.
    """

    def __init__(self, timings: InternalTimings, *, pooled: bool = False) -> None:
        self._timings = timings
        self._pooled = pooled
        self._due_messages = DueMessages(timings)
        history = HistoryMaintenance(timings, pooled=pooled)
        self._tasks = (
            MaintenanceTask("orphans", self._forget_orphans, timings.orphan_interval),
            MaintenanceTask("results", _remove_results, timings.result_removal_interval),
            MaintenanceTask("batches", _remove_batches, timings.result_removal_interval),
            MaintenanceTask("keys", _forget_keys, timings.orphan_interval),
            MaintenanceTask("activity", _forget_activity, timings.orphan_interval),
            MaintenanceTask("rates", self._note_rates, timings.rate_interval),
            MaintenanceTask("pages", self._restore_pages, timings.table_check_interval),
            MaintenanceTask("history", history.run, timings.history_maintenance_interval),
        )
        self._requested: dict[str, MaintenanceTask | None] = {}
        self._next_runs: dict[str, float] = {}
        self._lease: Lease | None = None
        self._standing: Standing | None = None
        self._next_run = 0.0
        self._next_look = 0.0
        self._next_shared_look = 0.0
        self._last_body = 0
        self._batches = _BatchLooks()
        self._untold = _Untold([], [])

    def seconds_to_next(self) -> float:
        """Return how many seconds there are until something is to be done."""
        seconds = max(0.0, self._next_run - monotonic())
        return min(seconds, self._due_messages.seconds_to_next()) if self._lease is not None else seconds

    @property
    def leads(self) -> bool:
        """True if the client has the lease, as far as it knows."""
        return self._lease is not None

    def message_delayed(self) -> None:
        """Note that a message was sent which is delivered later, perhaps before those that are known."""
        self._due_messages.check_soon()

    def batch_may_have_ended(self) -> None:
        """Note that a transaction could not tell whether it has ended a batch; every role may say so, and often."""
        if self._lease is not None:
            self._next_run = min(self._next_run, self._batches.earliest)

    def postpone(self) -> None:
        """Do nothing for a while: something went wrong. Another client may take the lease meanwhile."""
        self._next_run = self._batches.earliest = monotonic() + self._timings.maintenance_retry_delay
        self._due_messages.postpone(self._timings.maintenance_retry_delay)

    def move_due(self, runner: Runner) -> list[int]:
        """Move some of the delayed messages that are due now; return the numbers of all queues with moved messages."""
        if self._lease is not None:
            try:
                self._untold.moved += self._due_messages.run(while_leading(runner, self._lease))
            except LeadershipLostError:
                self._lease = None
        moved, self._untold.moved = self._untold.moved, []
        return moved

    @property
    def has_to_ask(self) -> bool:
        """True if `run` asks the server something now."""
        return monotonic() >= self._next_run

    def take_standing(self) -> Standing | None:
        """Return the answer to the client's last request for the lease; None: it has not asked since."""
        standing, self._standing = self._standing, None
        return standing

    def run(self, runner: Runner, connection_id: int, queue_ids: Sequence[int] = ()) -> None:
        """Do due work if the client has the lease. `take_released` returns the messages that dead clients held.

        Raises:
            Exception: A step has failed, and the others are done.
        """
        now = monotonic()
        if now < self._next_run:
            return
        lease = Lease(connection_id, self._timings)
        self._lease = lease if lease.renew(runner, queue_ids if now >= self._next_shared_look else ()) else None
        self._standing = standing = lease.standing
        assert standing is not None
        if queue_ids and now >= self._next_shared_look:
            pause = self._timings.maximum_poll_interval
            if standing.leads or standing.seconds is not None:  # the leader looks more often, for all
                pause = self._timings.shared_poll_interval
            self._next_shared_look = now + max(pause, _LOOK_SHARE * (monotonic() - now))
        if self._lease is None:
            self._next_run = now + self._until_next_question(standing)
            return
        self._next_run = now + self._timings.maintenance_interval
        try:
            if self.do_all(while_leading(runner, self._lease), connection_id, self._untold.released):
                self._next_run = now
        except LeadershipLostError:
            self._lease = None
            logger.info("Another client does the maintenance now.")
        self._batches.earliest = monotonic() + _BATCH_PAUSE

    def take_released(self) -> list[MessageKey]:
        """Return the messages of dead clients that were released since the last call, also by a run that failed."""
        released, self._untold.released = self._untold.released, []
        return released

    def _until_next_question(self, standing: Standing) -> float:
        """Return after how many seconds to ask for the lease again.

        The next in line ask often. The others ask when the lease that they know of would be over, which it is if the
        leader and all of those are gone.
        """
        interval = self._timings.maintenance_interval * spread.uniform(0.8, 1.2)
        if standing.seconds is None or standing.is_next or self._pooled:
            return interval
        lease_end = min(standing.seconds, self._timings.lease_duration) + spread.uniform(0.0, 0.2) * interval
        return max(min(lease_end, self._timings.shared_poll_interval), interval)

    def do_all(self, runner: Runner, connection_id: int, released: list[MessageKey]) -> bool:
        """Do due work in small steps, each of which is safe while another client does the same.

        A step that fails keeps no other one from its work, except the first one, which finds the work.

        Returns:
            Whether there is more to do.

        Raises:
            Exception: The first failure of a step, once the others are done.
        """
        work = runner.run(_forget_dead_connections.bind(connection_id=connection_id))
        due: list[Callable[[Runner], bool]] = [self._look_for_missed]
        if work.claims:
            due.append(partial(self._release_lost_claims, released=released))
        due.append(partial(self._bury, released=released, are_known=work.dead_letters))
        steps = {
            _reap_expired: work.expired,
            self._end_abandoned: work.abandoned,
            self._forget_temporary: work.temporary,
            self._purge_deleted: work.deleted,
            self._forget_bodies: work.bodies,
            self._check_batches: work.batches,
        }
        due += [step for step, is_due in steps.items() if is_due or work.found_dead]
        tasks = [*self._tasks, *self._load(work.requested, runner.schema)]
        due += [partial(self._run_task, task) for task in tasks]
        has_more, failures = False, list[Exception]()
        for each in due:
            try:
                has_more |= each(runner)
            except LeadershipLostError:
                raise
            except Exception as error:
                if is_connection_lost(error):
                    raise
                failures.append(error)
        if failures:
            raise failures[0]
        return has_more

    def _load(self, names: Sequence[str], schema: str) -> list[MaintenanceTask]:
        """Return the tasks that were requested for the schema."""
        for name in names:
            if name not in self._requested:
                self._requested[name] = load_task(name, schema)
        return [task for name in names if (task := self._requested[name]) is not None]

    def _run_task(self, task: MaintenanceTask, runner: Runner) -> bool:
        """Run a task if it is time to; return whether there is more to do at once.

        A defect of the task is logged, and costs the client nothing: its connection, with its claims, lives on.
        """
        if monotonic() < self._next_runs.get(task.name, 0.0):
            return False
        self._next_runs[task.name] = monotonic() + task.interval  # also if it fails
        try:
            has_more = task.run(runner)
        except (psycopg.Error, JMSException, LeadershipLostError):
            raise
        except Exception:
            logger.exception("The maintenance task %r failed.", task.name)
            if not runner.is_idle:
                runner.run(rollback)  # else all that follows would be part of the task's transaction
            return False
        if has_more:
            self._next_runs[task.name] = 0.0
        return has_more

    def _look_for_missed(self, runner: Runner) -> bool:
        """Look for messages that were not notified, in all queues that have consumers."""
        started = monotonic()
        if started >= self._next_look:
            self._untold.moved += runner.run(_missed_messages.bind())
            duration = monotonic() - started
            self._next_look = started + max(0.9 * self._timings.missed_message_interval, _LOOK_SHARE * duration)
        return False

    def _release_lost_claims(self, runner: Runner, released: list[MessageKey]) -> bool:
        """Free messages that dead clients have claimed, or that were claimed for too long, as failed deliveries."""
        lost = runner.run(lost_claims(_RELEASE_LIMIT))
        runner.run(release([_release(claim) for claim in lost]))
        released += [claim.key for claim in lost]
        return len(lost) == _RELEASE_LIMIT

    def _bury(self, runner: Runner, released: list[MessageKey], *, are_known: bool) -> bool:
        """Move dead letters to their queues, if some are known, or released claims may have made some."""
        if are_known or released:
            self._untold.moved += runner.run(bury())
        return False

    def _check_batches(self, runner: Runner) -> bool:
        # A batch without an answer waits for another transaction's commit, or longer for a prepared transaction.
        is_unknown = runner.run(check_batches(_BATCH_LIMIT)) > 0
        batches = self._batches
        batches.pause = min(2 * batches.pause, self._timings.maintenance_interval) if is_unknown else _BATCH_PAUSE
        if is_unknown:
            self._next_run = min(self._next_run, monotonic() + batches.pause)
        return False

    def _forget_temporary(self, runner: Runner) -> bool:
        runner.run(_forget_temporary.bind())
        return False

    def _purge_deleted(self, runner: Runner) -> bool:
        purged = runner.run(purge_deleted.bind(limit=_PURGE_LIMIT))
        delayed = runner.run(purge_deleted_delayed.bind(limit=_PURGE_LIMIT))
        runner.run(forget_deleted.bind())
        return _PURGE_LIMIT in (purged, delayed)

    def _forget_bodies(self, runner: Runner) -> bool:
        [(self._last_body, forgotten)] = runner.run(_forget_bodies.bind(after=self._last_body, limit=_BODY_LIMIT))
        return bool(forgotten == _BODY_LIMIT)

    def _forget_orphans(self, runner: Runner) -> bool:
        runner.run(_forget_orphans.bind())
        runner.run(forget_outcomes)
        runner.run(forget_progress)
        runner.run(forget_limits)
        runner.run(_find_lost.bind())
        return False

    def _note_rates(self, runner: Runner) -> bool:
        runner.run(_note_rates)
        return False

    def _restore_pages(self, runner: Runner) -> bool:
        """Give tables back the pages with which every plan is to count, if they were taken away."""
        tables = runner.run(_restore_pages.bind())
        if tables:
            logger.info(
                "The tables %s had fewer pages than plans are to count with, as after VACUUM FULL, CLUSTER or a "
                "restored dump, or when an index has grown. They were extended.",
                ", ".join(tables),
            )
        return False

    def _end_abandoned(self, runner: Runner) -> bool:
        """End the subscriptions whose last consumers went without leaving them, each in a transaction of its own."""
        idleness = as_setting(self._timings.idle_in_transaction_timeout)
        for queue_id in runner.run(_find_abandoned.bind()):
            runner.run(in_transaction(_end_if_abandoned(queue_id, idleness)))
        return False


def _end_if_abandoned(queue_id: int, idleness: str) -> Steps[None]:
    yield from _limit_idleness.bind(timeout=idleness)
    yield from end_if_abandoned(queue_id)


def _release(claim: LostClaim) -> Release:
    error = _EXPIRED if claim.has_expired else _GONE
    rules = claim.policy.rules
    if rules is None:
        return Release(claim.key, claim.claim_id, 1, 0.0, error, is_death=True)
    failure = rules.after_failure(claim.key, claim.claim_id, claim.failures + 1, error)
    return dataclasses.replace(failure, is_death=True)
