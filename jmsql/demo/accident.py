"""The accidents of the demo: a worker is killed while it holds messages that it has received and not committed."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

import sqlalchemy
from sqlalchemy import Connection, Table

from jmsql.demo.crew import Crew
from jmsql.demo.worker import APPLICATION_NAME

__all__ = ["Accident", "Casualty"]

_STOPPED_WORKERS = sqlalchemy.text(
    """
    select substr(application_name, length(:prefix) + 1), clock_timestamp()
    from pg_stat_activity
    where starts_with(application_name, :prefix) and pg_backend_pid() = any(pg_blocking_pids(pid))
    """
)


class Casualty(NamedTuple):
    """A worker that was killed, the flights that it held then, and the table that their rows were for."""

    worker: str
    process_id: int
    flight_ids: list[int]
    killed_at: datetime
    table: str


class Accident:
    """Stops all workers where it is worst: they have received messages, and wait to write their rows. Then kills one.

    It locks the table of the rows. That a worker waits for it, PostgreSQL says; which messages it holds, it has
    reported before.

    Args:
        connection: For the lock, and for nothing else.
        crew: The workers.
        table: What the workers write to.
        endangered: The names of the workers that may be killed.
    """

    def __init__(self, connection: Connection, crew: Crew, table: Table, endangered: Collection[str]) -> None:
        self._connection = connection
        self._crew = crew
        self._table = table
        self._lock = sqlalchemy.text(f"lock table {table} in share mode")
        self._endangered = endangered
        self._is_locked = False
        self.casualty: Casualty | None = None

    @property
    def is_over(self) -> bool:
        """Whether a worker was killed."""
        return self.casualty is not None

    def proceed(self) -> Casualty | None:
        """Bring the accident about: kill a worker if one holds messages by now, return it, and let the others go on."""
        if not self._is_locked:
            self._connection.execute(self._lock)
            self._is_locked = True
        for name, now in self._connection.execute(_STOPPED_WORKERS, {"prefix": APPLICATION_NAME}):
            if name in self._endangered:
                worker = self._crew.named(name)
                self._crew.kill(worker)
                self.casualty = Casualty(name, worker.process.pid, worker.received, now, self._table.name)
                self._connection.rollback()
                return self.casualty
        return None
