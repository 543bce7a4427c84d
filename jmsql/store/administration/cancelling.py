"""Messages that an administrator cancels, whether they wait or are handled."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from jmsql.public_names import set_module
from jmsql.store.statement import Query, SqlFile, column
from jmsql.values.postgresql_text import to_postgresql


@set_module("jmsql.admin")
class Cancellation(StrEnum):
    """The outcome of cancelling a message."""

    removed = "removed"
    """It waited, and is not delivered any more."""
    asked = "asked"
    """A client has received it: it is removed, and the client is told. Its work is rolled back if not committed yet."""
    locked = "locked"
    """An open transaction has received it, of a session that is no worker's: it stays. Cancel it again later. Copies
    in other subscriptions are cancelled."""
    gone = "gone"
    """There is nothing to cancel: it was handled, has expired or is a dead letter, or there was no such message."""


_cancel = SqlFile("administration").statement("cancel", "cancelling the message", column)

_BY_WEIGHT = (Cancellation.locked, Cancellation.asked, Cancellation.removed)


def cancel(message_id: str) -> Query[list[str]]:
    """Cancel a message; return the outcome of each of its copies. All messages are read for it.

    Raises:
        TypeError: The identifier is no text.
    """
    if not isinstance(message_id, str):
        raise TypeError(f"Expected a message's identifier as a str, got {message_id!r}.")
    return _cancel.bind(message_id=to_postgresql(message_id))


def outcome_of_all(copies: Collection[str], cancelled: set[str] | None = None) -> Cancellation:
    """Return the outcome for a message, given the outcomes of its copies, as `jmsql.cancel` does.

    Args:
        copies: The outcomes of the copies that were there.
        cancelled: The outcomes of those that earlier attempts have cancelled. This attempt's are added.
    """
    outcome = next((each for each in _BY_WEIGHT if each in {*copies, *(cancelled or ())}), Cancellation.gone)
    if cancelled is not None:
        cancelled.update({Cancellation.removed, Cancellation.asked}.intersection(copies))
    return outcome
