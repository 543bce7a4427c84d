"""The lock of the process that writes an archive, so that nobody else writes to the same target at the same time."""

from __future__ import annotations

from jmsql.spark.database import allow_idleness
from jmsql.store.runners._sync.runner import Runner
from jmsql.store.statement import SqlFile, nothing, value

__all__ = ["ArchiveLock"]

_sql = SqlFile("archive", "jmsql.spark")
_DOING = "making sure that nobody else writes to the archive"
_begin = _sql.statement("begin", _DOING, nothing)
_lock = _sql.statement("lock", _DOING, value(bool))
_check = _sql.statement("check", _DOING, nothing)


class ArchiveLock:
    """An advisory lock of a transaction, which also a pooler in transaction mode leaves on its connection.

    The transaction reads nothing meanwhile, so that it holds up neither vacuum nor those who follow the history.

    Args:
        runner: Runs statements in a transaction of the archive's own.
        target: Where the archive is.
    """

    def __init__(self, runner: Runner, target: str) -> None:
        self._runner = runner
        self._name = f"jmsql archive {target}"

    def acquire(self) -> bool:
        """Take the lock until the transaction ends, and tell whether it was free."""
        self._runner.run(_begin.bind())
        self._runner.run(allow_idleness)
        return self._runner.run(_lock.bind(name=self._name))

    def check(self) -> None:
        """Make sure that the transaction still lives, and with it the lock.

        Raises:
            JMSException: It does not: somebody else may have the lock by now.
        """
        self._runner.run(_check.bind())
