"""The lock of the process that writes an archive, so that nobody else writes to the same target at the same time."""

from __future__ import annotations

from jmsql.store._sync.runner import Runner
from jmsql.store.statement import SqlFile, nothing, value

__all__ = ["ArchiveLock"]

_sql = SqlFile("archive", "jmsql.spark")
_DOING = "making sure that nobody else writes to the archive"
_lock = _sql.statement("lock", _DOING, value(bool))
_check = _sql.statement("check", _DOING, nothing)


class ArchiveLock:
    """An advisory lock, which PostgreSQL holds for as long as the connection lives.

    Args:
        runner: Runs statements on a connection of the archive's own, in autocommit mode.
        target: Where the archive is.
    """

    def __init__(self, runner: Runner, target: str) -> None:
        self._runner = runner
        self._name = f"jmsql archive {target}"

    def acquire(self) -> bool:
        """Take the lock, and tell whether it was free."""
        return self._runner.run(_lock.bind(name=self._name))

    def check(self) -> None:
        """Make sure that the connection still lives, and with it the lock.

        Raises:
            JMSException: It does not: somebody else may have the lock by now.
        """
        self._runner.run(_check.bind())
