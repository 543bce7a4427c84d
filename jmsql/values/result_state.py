"""The states of a message whose result is awaited."""

from __future__ import annotations

from enum import StrEnum

from jmsql.public_names import set_module


@set_module("jmsql")
class ResultState(StrEnum):
    """The state of a message, from its sending to its end. Each is a `str`, so that it compares with a text.

    The last four are final, unless a dead letter is delivered again.
    """

    UNKNOWN = "unknown"
    """No such message is there: it was not sent yet, was removed, or was handled where no result is kept."""
    WAITING = "waiting"
    """It waits for a handler, or for its delivery time."""
    RUNNING = "running"
    """A worker or another client holds it."""
    RETRYING = "retrying"
    """A delivery has ended without an acknowledgement, and another one follows."""
    DONE = "done"
    """Its handler has returned, and the transaction is committed."""
    FAILED = "failed"
    """It is a dead letter: its handler has failed for the last time."""
    EXPIRED = "expired"
    """It has expired before a handler could end it."""
    CANCELLED = "cancelled"
    """It was cancelled."""

    @property
    def is_final(self) -> bool:
        """True if the message has ended: it is done, failed, expired or cancelled."""
        return self in _FINAL


_FINAL = {ResultState.DONE, ResultState.FAILED, ResultState.EXPIRED, ResultState.CANCELLED}
