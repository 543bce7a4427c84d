"""Writes of Spark whose tasks insert their messages themselves, in transactions that they prepare.

The driver decides with one commit, and all of the transactions follow: who finds one finishes it as was decided.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache

import psycopg
from psycopg import sql

from jmsql.exceptions import JMSException, JMSSecurityException, ResourceAllocationException
from jmsql.postgresql_text import to_postgresql
from jmsql.spark.writing.ledger import WriteLedger
from jmsql.spark.writing.staging import Attempt, StagedMessages, total
from jmsql.store.driver import Driver
from jmsql.store.errors import jms_errors
from jmsql.store.identifier import Schema
from jmsql.store.runner import Runner
from jmsql.store.traffic import add_traffic

__all__ = ["PREPARED_PREFIX", "PreparedAttempts", "PreparedWrites", "prepared_statements"]

logger = logging.getLogger("jmsql")

PREPARED_PREFIX = "jmsql-spark-"
"""How the names of all these transactions begin, in whatever database and for whatever schema."""

_PAUSE = 0.01
"""Seconds to wait for another client that finishes the same transaction."""


class PreparedStatements:
    """The statements for one schema.

    Args:
        schema_name: The plain name of the schema.
    """

    def __init__(self, schema_name: str) -> None:
        schema = Schema(schema_name)
        # All databases of a server share the names of prepared transactions.
        prefix = f"""(select '{PREPARED_PREFIX}' || d.oid || '-' || %(schema)s || '-'
                     from pg_catalog.pg_database d where d.datname = current_database())"""
        self.name = f"select {prefix} || %(attempt_id)s::bigint"
        self.find = f"""
            select x.gid, substr(x.gid, length(p.prefix) + 1)::bigint as attempt_id, x.owner,
                   x.owner = r.rolname or r.rolsuper
            from pg_catalog.pg_prepared_xacts x
            join {prefix} p (prefix) on starts_with(x.gid, p.prefix)
            join pg_catalog.pg_roles r on r.rolname = current_user
            where x.database = current_database() and substr(x.gid, length(p.prefix) + 1) ~ '^[0-9]{{1,18}}$'
            order by attempt_id"""
        self.judge = f"""
            select f.attempt_id, exists (select from {schema.internal}.spark_prepared p
            where p.attempt_id = f.attempt_id),
                   exists (select from {schema.internal}.spark_attempt a where a.attempt_id = f.attempt_id)
            from unnest(%(attempts)s::bigint[]) f (attempt_id)"""
        # What this statement sees was decided before it looks at the transactions, and is over if it finds none.
        self.forget_finished = f"""
            delete from {schema.internal}.spark_prepared d
            where not exists (
                select from pg_catalog.pg_prepared_xacts x
                join {prefix} p (prefix) on x.gid = p.prefix || d.attempt_id)"""
        self.decide = f"""
            insert into {schema.internal}.spark_prepared (attempt_id, write_id, batch_id)
            select a.attempt_id, %(write_id)s, %(batch_id)s from unnest(%(attempts)s::bigint[]) a (attempt_id)"""
        # Also those of a driver that has died, and of tasks that others were faster than.
        self.forget_attempts = f"""
            delete from {schema.internal}.spark_attempt
            where attempt_id = any(%(attempts)s::bigint[]) or write_id = %(write_id)s
            returning attempt_id"""


@cache
def prepared_statements(schema_name: str) -> PreparedStatements:
    """Return the statements for a schema."""
    return PreparedStatements(schema_name)


class PreparedAttempts:
    """The transactions that Spark's tasks have prepared, and what is to become of each.

    Args:
        schema: The name of the schema.
    """

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._statements = prepared_statements(schema)
        self._told: set[str] = set()

    def finish(self, driver: Driver) -> bool:
        """Commit those whose write was decided, and roll back those whose attempt nobody counts on any more.

        Args:
            driver: A connection in autocommit mode.

        Returns:
            Whether another client is finishing some of them just now.
        """
        found = driver.execute(self._statements.find, {"schema": self._schema}).rows
        verdicts = self._judge(driver, [attempt_id for _, attempt_id, _, _ in found]) if found else {}
        busy = False
        for name, attempt_id, owner, may_finish in found:
            if attempt_id not in verdicts:
                continue
            if may_finish:
                busy |= not _finish(driver, verdicts[attempt_id], name)
            elif name not in self._told:
                self._told.add(name)
                logger.warning(
                    "A task of Spark has left the prepared transaction %r. The role %r or a superuser can end it: %s "
                    "PREPARED.",
                    name,
                    owner,
                    verdicts[attempt_id].upper(),
                )
        driver.execute(self._statements.forget_finished, {"schema": self._schema})
        return busy

    def judged(self, driver: Driver) -> dict[str, str | None]:
        """Return the names of the transactions, with what is to be done: commit, rollback, or None, nothing yet."""
        found = driver.execute(self._statements.find, {"schema": self._schema}).rows
        verdicts = self._judge(driver, [attempt_id for _, attempt_id, _, _ in found]) if found else {}
        return {name: verdicts.get(attempt_id) for name, attempt_id, _, _ in found}

    def _judge(self, driver: Driver, attempts: Sequence[int]) -> dict[int, str]:
        """Return what is to be done with the transactions of attempts; those that are not decided are left out.

        An attempt is known before it prepares, and this statement sees what was committed before the transactions were
        looked at. So none is rolled back that can be decided later.
        """
        rows = driver.execute(self._statements.judge, {"attempts": attempts}).rows
        return {
            attempt_id: "commit" if is_decided else "rollback"
            for attempt_id, is_decided, is_open in rows
            if is_decided or not is_open
        }


def _finish(driver: Driver, action: str, name: str) -> bool:
    """Finish a transaction; return whether it is over."""
    try:
        driver.execute(f"{action} prepared {_literal(name)}")
    except psycopg.errors.UndefinedObject:
        return True
    except psycopg.errors.ObjectNotInPrerequisiteState:
        return False
    return True


def _literal(name: str) -> str:
    return sql.Literal(name).as_string()


class PreparedWrites:
    """Writes of Spark in two phases, seen through one connection.

    Args:
        driver: Runs the statements.
        schema: The name of the schema.
    """

    def __init__(self, driver: Driver, schema: str) -> None:
        self._driver = driver
        self._schema = schema
        self._staged = StagedMessages(driver, schema)
        self._statements = prepared_statements(schema)

    def prepare(self, attempt: Attempt) -> None:
        """Send what the open transaction has staged, and prepare it.

        Args:
            attempt: The attempt, which other transactions see already, as they see its queues.

        Raises:
            ResourceAllocationException: No more transactions can be prepared.
        """
        with jms_errors("preparing a write"):
            self._staged.send([attempt], create=False)
            self._staged.remove([attempt])
            place = {"schema": self._schema, "attempt_id": attempt.attempt_id}
            name = self._driver.execute(self._statements.name, place).rows[0][0]
            try:
                self._driver.execute(f"prepare transaction {_literal(name)}")
            except psycopg.errors.OutOfMemory as error:
                raise ResourceAllocationException(
                    "The server can prepare no more transactions. Set max_prepared_transactions to as many tasks as "
                    "all writes have together, or write fewer partitions; pg_prepared_xacts shows which there are.",
                    error.sqlstate,
                ) from error

    def decide(self, attempts: Sequence[Attempt], write_id: str, batch_id: int, *, is_stream: bool) -> bool:
        """Decide, with the commit of the open transaction, that the write is done; return whether it was not before.

        Args:
            attempts: Those that succeeded, one for each task.
            write_id: What the write is known by.
            batch_id: Which batch of it this is.
            is_stream: Whether only the last batches can come again.

        Raises:
            JMSSecurityException: Another role has prepared them.
            JMSException: Something that was prepared is gone.
        """
        messages = total(attempts)
        prepared = [attempt for attempt in attempts if attempt.staged]
        with jms_errors("writing messages"):
            ledger = WriteLedger(self._driver, self._schema)
            is_new = ledger.enter(write_id, batch_id, messages.total(), is_stream=is_stream)
            known = self._forget(attempts, write_id)
            if is_new:
                self._require(prepared, known)
                decision = {
                    "attempts": [attempt.attempt_id for attempt in prepared],
                    "write_id": to_postgresql(write_id),
                    "batch_id": batch_id,
                }
                self._driver.execute(self._statements.decide, decision)
                sent = self._staged.traffic(messages)
                if sent:
                    Runner(self._driver, self._schema).run(
                        add_traffic(sent)
                    )  # last: its rows are shared by all who send
        return is_new

    def finish(self, attempts: Sequence[Attempt] = ()) -> None:
        """Do what was decided, and tell all clients of the attempts' messages; the connection is in autocommit mode."""
        with jms_errors("finishing writes"):
            prepared = PreparedAttempts(self._schema)
            while prepared.finish(self._driver):
                self._driver.sleep(_PAUSE)
            if attempts:
                self._staged.notify(total(attempts))

    def forget(self, attempts: Sequence[Attempt], write_id: str) -> None:
        """Give up attempts, and all others of the same write, if it was not decided."""
        with jms_errors("discarding prepared messages"):
            self._forget(attempts, write_id)

    def _forget(self, attempts: Sequence[Attempt], write_id: str) -> set[int]:
        """Have nobody count on the attempts of a write, and return which there were."""
        ids = [attempt.attempt_id for attempt in attempts]
        parameters = {"attempts": ids, "write_id": to_postgresql(write_id)}
        return {row[0] for row in self._driver.execute(self._statements.forget_attempts, parameters).rows}

    def _require(self, attempts: Sequence[Attempt], known: set[int]) -> None:
        """Make sure that attempts are prepared, for this role to commit."""
        owners = {
            row[1]: (row[2], row[3])
            for row in self._driver.execute(self._statements.find, {"schema": self._schema}).rows
        }
        missing = sum(each.messages for each in attempts if each.attempt_id not in known & owners.keys())
        if missing:
            raise JMSException(
                f"{missing} of {total(attempts).total()} messages that Spark's tasks have prepared are gone, as a day "
                "later, or if somebody has rolled them back. Nothing was written; run the write again."
            )
        for owner, may_finish in (owners[each.attempt_id] for each in attempts):
            if not may_finish:
                raise JMSSecurityException(
                    f"Spark's tasks have prepared messages as the role {owner!r}, and the driver has another, which "
                    "cannot commit them. Let it connect as the executors do.",
                    "42501",
                )
