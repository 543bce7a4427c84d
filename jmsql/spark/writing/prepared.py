"""The transactions that Spark's tasks prepare, in which they insert their messages themselves.

The driver decides with one commit, and all of the transactions follow: who finds one finishes it as was decided.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import NamedTuple

from jmsql.exceptions import JMSException, ResourceAllocationException
from jmsql.spark.writing.staging import Attempt, notify_places, remove_staged, send_staged, total
from jmsql.store._sync.runner import Runner
from jmsql.store.statement import Query, SqlFile, Statement, Steps, column, first_value, nothing, records, rows

__all__ = [
    "PREPARED_PREFIX",
    "PreparedTransaction",
    "PreparedTransactions",
    "find_transactions",
    "finish_transactions",
    "judge_transactions",
    "living_drivers",
    "prepare",
]

logger = logging.getLogger("jmsql")

PREPARED_PREFIX = "jmsql-spark-"
"""How the names of all these transactions begin, in whatever database and for whatever schema."""

_PAUSE = 0.01
"""Seconds to wait for another client that finishes the same transaction."""

_DRIVER_GRACE = 10.0

_UNDEFINED_OBJECT = "42704"
_OBJECT_NOT_IN_PREREQUISITE_STATE = "55000"
_OUT_OF_MEMORY = "53200"


class PreparedTransaction(NamedTuple):
    """A transaction that a task has prepared."""

    name: str
    attempt_id: int
    owner: str
    may_finish: bool
    """Whether the role that has asked may."""


_sql = SqlFile("writing", "jmsql.spark")
_prefix = {"prefix": _sql["prefix"]}
_name = _sql.statement("name_transaction", "preparing a write", first_value, _prefix)
_find = _sql.statement(
    "find_transactions", "looking for prepared messages", records(PreparedTransaction._make), _prefix
)
_judge = _sql.statement("judge", "looking for prepared messages", rows)
_find_drivers: Statement[list[int]] = _sql.statement("find_drivers", "looking for prepared messages", column)
_living_drivers: Statement[list[int]] = _sql.statement("living_drivers", "looking for drivers of Spark", column)
_forget_drivers = _sql.statement("forget_drivers", "giving up what dead drivers of Spark have written", nothing)
_forget_finished = _sql.statement("forget_finished", "finishing writes", nothing, _prefix)


def prepare(attempt: Attempt) -> Steps[None]:
    """Send what the open transaction has staged, and prepare it.

    Args:
        attempt: The attempt, which other transactions see already, as they see its queues.

    Raises:
        ResourceAllocationException: No more transactions can be prepared.
    """
    yield from send_staged([attempt], create=False)
    yield from remove_staged([attempt])
    name = yield from _name.bind(attempt_id=attempt.attempt_id)
    try:
        yield from _statement_on("prepare transaction", name, "preparing a write").bind()
    except JMSException as error:
        if error.error_code != _OUT_OF_MEMORY:
            raise
        raise ResourceAllocationException(
            "The server can prepare no more transactions. Set max_prepared_transactions to as many tasks as "
            "all writes have together, or write fewer partitions; pg_prepared_xacts shows which there are.",
            error.error_code,
        ) from error


def living_drivers(drivers: Sequence[int]) -> Query[list[int]]:
    """Return those of drivers that live, by the numbers of their locks."""
    return _living_drivers.bind(drivers=list(drivers))


def find_transactions() -> Query[list[PreparedTransaction]]:
    """Return the transactions that tasks have prepared for the schema."""
    return _find.bind()


def judge_transactions(found: Sequence[PreparedTransaction]) -> Steps[dict[str, str]]:
    """Return what is to be done with transactions, commit or rollback, by their names.

    Those that are not decided are left out. An attempt is known before it prepares, and this sees what was committed
    before the transactions were looked at. So none is rolled back that can be decided later.

    Args:
        found: The transactions.
    """
    if not found:
        return {}
    names = {each.attempt_id: each.name for each in found}
    judged = yield from _judge.bind(attempts=list(names))
    return {
        names[attempt_id]: "commit" if is_decided else "rollback"
        for attempt_id, is_decided, is_open in judged
        if is_decided or not is_open
    }


class PreparedTransactions:
    """Finishes prepared transactions, and warns once of each that it may not finish.

    Args:
        driver_grace: Seconds for which the lock of a driver must have been free, so that its attempts are given up. The
            connection that holds it may have been lost.
    """

    def __init__(self, driver_grace: float = _DRIVER_GRACE) -> None:
        self._driver_grace = driver_grace
        self._missing_since: dict[int, float] = {}
        self._told: set[str] = set()

    def give_up(self) -> Steps[None]:
        """Have nobody count on the attempts of drivers that have ended. Their transactions are then rolled back."""
        drivers = yield from _find_drivers.bind()
        living = (yield from living_drivers(drivers)) if drivers else []
        now = time.monotonic()
        missing = {each: self._missing_since.get(each, now) for each in drivers if each not in living}
        dead = [each for each, since in missing.items() if now - since >= self._driver_grace]
        if dead:
            yield from _forget_drivers.bind(drivers=dead)
        self._missing_since = {each: since for each, since in missing.items() if each not in dead}

    def finish(self) -> Steps[bool]:
        """Commit those whose write was decided, and roll back those whose attempt nobody counts on any more.

        The connection is in autocommit mode.

        Returns:
            Whether another client is finishing some of them just now.
        """
        found = yield from find_transactions()
        verdicts = yield from judge_transactions(found)
        is_busy = False
        for each in found:
            if each.name not in verdicts:
                continue
            if each.may_finish:
                is_over = yield from _finish(verdicts[each.name], each.name)
                is_busy = is_busy or not is_over
            elif each.name not in self._told:
                self._told.add(each.name)
                logger.warning(
                    "A task of Spark has left the prepared transaction %r. The role %r or a superuser can end it: %s "
                    "PREPARED.",
                    each.name,
                    each.owner,
                    verdicts[each.name].upper(),
                )
        yield from _forget_finished.bind()
        return is_busy


def finish_transactions(runner: Runner, attempts: Sequence[Attempt] = ()) -> None:
    """Do what was decided, wait for other clients that do, and tell all clients of the attempts' messages.

    Args:
        runner: Runs statements on a connection in autocommit mode.
        attempts: Those of the write that was decided.
    """
    transactions = PreparedTransactions()
    while runner.run(transactions.finish()):
        runner.sleep(_PAUSE)
    if attempts:
        runner.run(notify_places(total(attempts)))


def _finish(action: str, name: str) -> Steps[bool]:
    """Finish a transaction; return whether it is over."""
    try:
        yield from _statement_on(f"{action} prepared", name, "finishing writes").bind()
    except JMSException as error:
        if error.error_code == _UNDEFINED_OBJECT:
            return True
        if error.error_code == _OBJECT_NOT_IN_PREREQUISITE_STATE:
            return False
        raise
    return True


def _statement_on(action: str, name: str, doing: str) -> Statement[None]:
    """Return a statement on a prepared transaction, which takes its name as a literal alone."""
    # Nothing in it is then a placeholder, or the name of a schema.
    escaped = "".join(each if each.isalnum() or each in "-_" else f"\\U{ord(each):08X}" for each in name)
    return Statement(action.replace(" ", "_"), f"{action} E'{escaped}'", doing, nothing)
