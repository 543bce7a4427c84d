"""The counts of a batch's messages."""

from __future__ import annotations

from dataclasses import dataclass

from jmsql.public_names import set_module


@set_module("jmsql")
@dataclass(frozen=True, slots=True)
class BatchProgress:
    """The counts of a batch's messages at one time.

    Attributes:
        total: All messages, without sends that were dropped by a deduplication id or a coalescing key.
        done: Messages that a consumer has acknowledged.
        failed: Messages that are dead letters, or have been.
        expired: Messages that have expired.
        cancelled: Messages that were cancelled or purged, or whose queue was deleted.
        waiting: Messages that have not ended.
        is_open: True while the block that sends the messages has not ended.
        is_ended: True once all had ended, and the callbacks were sent.
    """

    total: int
    done: int
    failed: int
    expired: int
    cancelled: int
    waiting: int
    is_open: bool
    is_ended: bool

    @property
    def fraction(self) -> float:
        """The part of the messages that have ended, from 0 to 1; of a batch without messages, 1."""
        return 1.0 if not self.total else 1.0 - self.waiting / self.total
