"""What workers have done, as the application's table tells it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg

from benchmarks.database import BenchmarkDatabase
from benchmarks.workers import effects

_POLLING_SECONDS = 0.02
_COUNTING_SECONDS = 1.0


class Batch(NamedTuple):
    """Messages with numbers of their own.

    Args:
        first: The first number.
        size: How many.
    """

    first: int
    size: int


class Ledger:
    """The application's table.

    Args:
        connection: Reads it.
    """

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._next = 0

    def batch(self, count: int) -> Batch:
        """Return numbers that no message has yet."""
        first, self._next = self._next, self._next + count
        return Batch(first, count)

    def handled(self, batch: Batch) -> int:
        """Return how many messages were handled at least once."""
        return int(self._value("select count(distinct number) from effect", batch))

    def doubled(self, batch: Batch) -> int:
        """Return how many rows there are beside one for each message that was handled."""
        return int(self._value("select count(*) - count(distinct number) from effect", batch))

    def seconds(self, batch: Batch) -> float:
        """Return how long it took from the first row to the last."""
        return float(self._value("select extract(epoch from max(inserted_at) - min(inserted_at)) from effect", batch))

    def beginnings(self, batch: Batch) -> dict[int, float]:
        """Return by the numbers of messages when their handlers have begun, by the monotonic clock."""
        condition = "select number, min(began) from effect where number between %s and %s group by number"
        rows = self._connection.execute(condition, (batch.first, batch.first + batch.size - 1)).fetchall()
        return dict(rows)

    def _value(self, selection: str, batch: Batch) -> Any:
        row = self._connection.execute(
            f"{selection} where number between %s and %s".encode(), (batch.first, batch.first + batch.size - 1)
        ).fetchone()
        assert row is not None
        return row[0]

    def wait_for(self, batch: Batch, count: int, seconds: float, watch: Callable[[], None] = lambda: None) -> bool:
        """Wait until so many messages were handled.

        Args:
            batch: Of which.
            count: How many.
            seconds: For how long to wait.
            watch: Called now and then.

        Returns:
            Whether they were.
        """
        deadline = time.monotonic() + seconds
        while (missing := count - self.handled(batch)) > 0:
            # To count all rows takes the server longer than to ask how many numbers it has given to rows.
            enough = self._rows() + missing
            counted = time.monotonic()
            while self._rows() < enough and time.monotonic() < counted + _COUNTING_SECONDS:
                watch()
                if time.monotonic() > deadline:
                    return False
                time.sleep(_POLLING_SECONDS)
        return True

    def _rows(self) -> int:
        """Return how many rows there were ever, also of transactions that were rolled back."""
        row = self._connection.execute("select last_value from effect_effect_id_seq").fetchone()
        assert row is not None
        return int(row[0])


@contextmanager
def open_ledger(database: BenchmarkDatabase) -> Iterator[Ledger]:
    """Make the application's table."""
    with database.connect(autocommit=True) as connection:
        connection.execute(effects.TABLE)
        yield Ledger(connection)
