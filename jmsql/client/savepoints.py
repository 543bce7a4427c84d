"""The savepoints that an application sets in the transaction of a session."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jmsql.store.rows.message_rows import MessageKey


# Two savepoints may have the same name: PostgreSQL then uses the later one until it is released, and so does `_place`.
# The name of a rollback may be none of those on the list, where a text of several commands hides it. Then any message
# may have come back, and each receive that finds nothing, and the commit, ask the server (`is_one_unknown`).


class Savepoints:
    """The messages received before each savepoint: a rollback to it brings back the others."""

    def __init__(self) -> None:
        self._open: list[tuple[str | None, set[MessageKey]]] = []
        self.is_one_unknown = False
        """True if an unknown one was rolled back to, so that any received message may have come back."""

    def add(self, name: str | None, received: Iterable[MessageKey]) -> None:
        """Note that a savepoint is set.

        The name is None where the statement does not tell it.
        """
        self._open.append((name, set(received)))

    def release(self, name: str | None) -> None:
        """Note that a savepoint is released, with those set after it."""
        place = self._place(name)
        if place is not None:
            del self._open[place:]

    def roll_back(self, name: str | None) -> set[MessageKey] | None:
        """Return the messages received before a savepoint that is rolled back to; None: it is unknown."""
        place = self._place(name)
        if place is None:
            self.is_one_unknown = True
            return None
        del self._open[place + 1 :]
        return self._open[place][1]

    def _place(self, name: str | None) -> int | None:
        """Return where the last savepoint of a name stands."""
        return next((place for place, (each, _) in reversed([*enumerate(self._open)]) if each == name), None)
