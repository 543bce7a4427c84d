"""The savepoints that an application sets in the transaction of a session."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jmsql.store.rows.message_rows import MessageKey


class Savepoints:
    """What the transaction had received at each savepoint, which tells what comes back with a rollback to it."""

    def __init__(self) -> None:
        self._open: list[tuple[str | None, set[MessageKey]]] = []
        self.is_one_unknown = False
        """Whether one was rolled back to that nobody knows, so that anything received may have come back."""

    def begin(self, name: str | None, received: Iterable[MessageKey]) -> None:
        """Note that a savepoint is set.

        Args:
            name: Its name; None: the statement does not tell.
            received: What was received before.
        """
        self._open.append((name, set(received)))

    def release(self, name: str | None) -> None:
        """Note that a savepoint is released, with those set after it."""
        place = self._place(name)
        if place is not None:
            del self._open[place:]

    def roll_back(self, name: str | None) -> set[MessageKey] | None:
        """Return what was received before a savepoint that is rolled back to; None: nobody knows."""
        place = self._place(name)
        if place is None:
            self.is_one_unknown = True
            return None
        del self._open[place + 1 :]
        return self._open[place][1]

    def clear(self) -> None:
        """Forget all, as the transaction has ended."""
        self._open.clear()
        self.is_one_unknown = False

    def _place(self, name: str | None) -> int | None:
        """Return where the last savepoint of a name stands."""
        return next((place for place, (each, _) in reversed([*enumerate(self._open)]) if each == name), None)
