"""The lock of the process that writes an archive, so that nobody else writes to the same target at the same time."""

from __future__ import annotations

from jmsql.store.driver import Driver

__all__ = ["ArchiveLock"]


class ArchiveLock:
    """An advisory lock, which PostgreSQL holds for as long as the connection lives.

    Args:
        driver: A connection of the archive's own, in autocommit mode.
        target: Where the archive is.
    """

    def __init__(self, driver: Driver, target: str) -> None:
        self._driver = driver
        self._name = f"jmsql archive {target}"

    def acquire(self) -> bool:
        """Take the lock, and tell whether it was free."""
        taken = self._driver.execute(
            "select pg_try_advisory_lock(hashtextextended(%(name)s, 0))", {"name": self._name}
        ).rows[0][0]
        return bool(taken)

    def check(self) -> None:
        """Make sure that the connection still lives, and with it the lock.

        Raises:
            psycopg.Error: It does not: somebody else may have the lock by now.
        """
        self._driver.execute("select")
