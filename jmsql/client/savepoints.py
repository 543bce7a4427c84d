"""The savepoints that an application sets in the transaction of a session."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from jmsql.store.wire.application_sql import SavepointCommand

if TYPE_CHECKING:
    from jmsql.store.rows.message_rows import MessageKey
    from jmsql.store.wire.application_sql import SavepointStep


# Two savepoints may have the same name: PostgreSQL then uses the later one until it is released, and so does `_place`.
# The name of a rollback may be none of those on the list, where a text of several commands hides it. Then any message
# may have come back, and each receive that finds nothing, and the commit, ask the server (`is_one_unknown`).


class Savepoints:
    """The messages received before each savepoint: a rollback to it brings back the others."""

    def __init__(self) -> None:
        self._open: list[tuple[str | None, set[MessageKey]]] = []
        self.is_one_unknown = False
        """True if an unknown one was rolled back to, so that any received message may have come back."""

    def heed(self, step: SavepointStep, received: Collection[MessageKey]) -> list[MessageKey] | None:
        """Note a step of the application with a savepoint.

        Args:
            step: Sets a savepoint, releases it with those set after it, or rolls back to it.
            received: The messages that the transaction has received.

        Returns:
            The received messages that a rollback brings back; None: its savepoint is unknown.
        """
        if step.command is SavepointCommand.SET:
            self._open.append((step.name, set(received)))
            return []
        place = self._place(step.name)
        if step.command is SavepointCommand.RELEASE:
            if place is not None:
                del self._open[place:]
            return []
        if place is None:
            self.is_one_unknown = True
            return None
        del self._open[place + 1 :]
        before = self._open[place][1]
        return [key for key in received if key not in before]

    def _place(self, name: str | None) -> int | None:
        """Return where the last savepoint of a name stands."""
        return next((place for place, (each, _) in reversed([*enumerate(self._open)]) if each == name), None)
