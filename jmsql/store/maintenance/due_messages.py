"""Moving delayed messages to where consumers find them, once they are due."""

from __future__ import annotations

from jmsql.store.receiving.candidates import LAST_SEQUENCE
from jmsql.store.rows.columns import DELAYED_COLUMNS
from jmsql.store.statement import SqlFile, mapping, optional_value, row_count
from jmsql.store.wire._sync.runner import Runner
from jmsql.timings import InternalTimings
from jmsql.values.clock import monotonic

_LIMIT = 500
_SHARE = 20.0


_sql = SqlFile("maintenance")
_names = [name for name, _ in DELAYED_COLUMNS[1:]]


milliseconds_to_next = _sql.statement("milliseconds_to_next_due", "looking for delayed messages", optional_value(int))
move_due = _sql.statement(
    "move_due",
    "moving delayed messages",
    mapping,
    {
        "columns": ", ".join(_names),
        "values": ", ".join(f"d.{name}" for name in _names),
        "last_sequence": str(LAST_SEQUENCE),
    },
)
purge_deleted_delayed = _sql.statement("purge_deleted_delayed", "removing what was in deleted queues", row_count)


class DueMessages:
    """Moves messages when they are due, in small steps, for the one connection that does the maintenance.

    It looks when the next known message is due, when it is told of another, and now and then, since a notification may
    be lost. Looking takes up at most a twentieth of the time.
    """

    def __init__(self, timings: InternalTimings) -> None:
        self._timings = timings
        self._earliest_look = 0.0
        self._next_look = 0.0

    def check_soon(self) -> None:
        """Note that there is a new delayed message, which may be due before those that are known."""
        self._next_look = self._earliest_look

    def postpone(self, seconds: float) -> None:
        """Do not look for a while."""
        self._next_look = self._earliest_look = monotonic() + seconds

    def seconds_to_next(self) -> float:
        """Return how many seconds there are to the next look."""
        return max(0.0, self._next_look - monotonic())

    def run(self, runner: Runner) -> list[int]:
        """Move some messages, if it is time to, and return the numbers of their queues."""
        started = monotonic()
        if started < self._next_look:
            return []
        moved: dict[int, int] = {}
        milliseconds = runner.run(milliseconds_to_next.bind())
        pause = self._timings.delayed_message_interval
        if milliseconds is not None:
            pause = min((milliseconds + 1) / 1000, pause)
        if pause <= 0:
            moved = runner.run(move_due.bind(limit=_LIMIT))
            # None, though some are due: another session has locked them, to purge the queue.
            pause = 0.0 if moved else self._timings.locked_message_interval
        now = monotonic()
        self._earliest_look = now if moved else now + _SHARE * (now - started)
        self._next_look = max(now + pause, self._earliest_look)
        return list(moved)
