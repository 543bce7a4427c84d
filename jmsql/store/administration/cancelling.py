"""Messages that an administrator cancels, whether they wait or are handled."""

from __future__ import annotations

from enum import StrEnum

from jmsql.public_names import set_module
from jmsql.store.statement import Query, SqlFile, value
from jmsql.values.postgresql_text import to_postgresql


@set_module("jmsql.admin")
class Cancellation(StrEnum):
    """The outcome of cancelling a message."""

    removed = "removed"
    """It waited, and is not delivered any more."""
    asked = "asked"
    """A client has received it: it is removed, and the client is told. Its work is rolled back if not committed yet."""
    locked = "locked"
    """An open transaction has received it, of a session that is no worker's: it stays. Cancel it again later."""
    gone = "gone"
    """There is nothing to cancel: it was handled, has expired or is a dead letter, or there was no such message."""


_cancel = SqlFile("administration").statement("cancel", "cancelling the message", value(Cancellation))


def cancel(message_id: str) -> Query[Cancellation]:
    """Cancel a message. All messages are read for it."""
    return _cancel.bind(message_id=to_postgresql(message_id))
