"""What a run of the archive has done, day by day."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

__all__ = ["ArchiveReport", "ArchivedDay"]


@dataclass(frozen=True, slots=True)
class ArchivedDay:
    """A day of the history beside the same day in the archive.

    Args:
        day: The day, in UTC, on which the messages left their destinations.
        in_history: How many messages the history has.
        in_archive: How many the archive has.
        missing: How many of the history the archive has not.
        doubled: How many the archive has too often.
        settled: Whether nothing will be added to the history of the day any more.
        dropped: Whether it was removed from the history; in a dry run, whether it would be.
        kept_because: Why it stays, if it was to go.
    """

    day: date
    in_history: int
    in_archive: int
    missing: int
    doubled: int
    settled: bool
    dropped: bool = False
    kept_because: str | None = None

    @property
    def is_safe(self) -> bool:
        """Whether the archive has all of it, each message once."""
        return not self.missing and not self.doubled


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """What a run has done.

    Args:
        target: Where the archive is: a path without symbolic links, or a URL.
        batches: How many batches were written.
        messages: How many messages of the history were written; in a dry run, how many would be.
        live_messages: How many messages were written that wait in queues and subscriptions; None: nobody asked.
        merged_files: How many small files were merged to larger ones.
        days: The days that were compared: those that were to be dropped; in a dry run, all.
        dry_run: Whether nothing was done.
    """

    target: str
    batches: int
    messages: int
    live_messages: int | None
    merged_files: int
    days: tuple[ArchivedDay, ...]
    dry_run: bool

    @property
    def is_safe(self) -> bool:
        """Whether no settled day was kept because the archive does not have all of it."""
        return self.dry_run or all(day.is_safe for day in self.days if day.settled)
