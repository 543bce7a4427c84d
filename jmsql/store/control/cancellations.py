"""The calls of handlers that end since an administrator has cancelled their message, or their claim was lost."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol

from jmsql.logs import contained_logger
from jmsql.store.receiving.candidates import LOOK_UPS
from jmsql.store.rows.message_rows import MessageKey, key_parameters
from jmsql.store.statement import SqlFile, integers_literal, rows
from jmsql.store.wire._sync.runner import Runner
from jmsql.values.clock import monotonic

logger = contained_logger("jmsql")

_MOST_HEARD = 1000
"""Cancelled messages that are remembered at once. A session that has forgotten one loses its claim at its commit."""

_form = re.compile(r"cancelled ([0-9]{1,19})").fullmatch

_lost_claims = SqlFile("control").statement("lost_claims", "looking for cancelled messages", rows, LOOK_UPS)


def cancelled_message(payload: str) -> int | None:
    """Return the sequence of the cancelled message that a notification names; None: it says something else."""
    found = _form(payload)
    return None if found is None else int(found[1])


class End(Protocol):
    """Ends a call, from the control thread, and returns soon."""

    def __call__(self, *, is_claim_lost: bool) -> object:
        """End the call.

        Args:
            is_claim_lost: True if the message is still there, so that another client gets it; else it was cancelled.
        """


class _Call(NamedTuple):
    """A call of a handler.

    Args:
        key: Its message.
        claim_id: The claim that holds the message.
        end: Ends the call.
    """

    key: MessageKey
    claim_id: int
    end: End


class Cancellations:
    """The duty to end the calls whose messages were cancelled, or whose claims were lost.

    Every role may notify, so a call ends only if the server says that its claim is gone. With a cancellation the
    message is gone, too; it is still there if the maintenance has freed the claim, after a lost connection.

    Any thread may call `watch`, `unwatch` and `forget`; the control thread calls the other methods.

    Args:
        wake: Wakes the control thread.
        interval: After how many seconds the server is asked again where there are no notifications.
    """

    def __init__(self, wake: Callable[[], None], interval: float) -> None:
        self._wake = wake
        self._interval = interval
        self._lock = threading.Lock()
        self._calls: dict[int, _Call] = {}
        self._is_deaf = False
        self._next_check = math.inf
        self.heard: dict[int, None] = {}
        """The sequences of messages that were cancelled lately, the last one at the end. Written under the lock."""

    def reset(self, *, is_deaf: bool) -> None:
        """Begin on a new connection, before which some may have been missed.

        Args:
            is_deaf: True if the connection gets no notifications.
        """
        self._is_deaf = is_deaf
        self._next_check = 0.0

    def watch(self, key: MessageKey, claim_id: int, end: End) -> None:
        """Call `end` if a claimed message is cancelled or its claim lost, until `unwatch`."""
        self._calls[key.sequence] = _Call(key, claim_id, end)
        if self.heard and key.sequence in self.heard:  # since the session took the message from those that it holds
            self._next_check = 0.0
            self._wake()

    def unwatch(self, key: MessageKey) -> None:
        """End a watch."""
        self._calls.pop(key.sequence, None)

    def hear(self, sequence: int) -> None:
        """Note that a message may have been cancelled."""
        with self._lock:
            self.heard[sequence] = None
            if len(self.heard) > _MOST_HEARD:
                del self.heard[next(iter(self.heard))]
        if sequence in self._calls:
            self._next_check = 0.0

    def forget(self, sequence: int) -> None:
        """Forget that a message was cancelled, once no session delivers it any more."""
        with self._lock:
            self.heard.pop(sequence, None)

    def missed(self) -> None:
        """Note that any may have been missed."""
        if self._calls:
            self._next_check = 0.0

    def run(self, control: Runner) -> None:
        """End the calls whose claims are gone, if some may be."""
        if monotonic() < self._next_check:
            return
        self._next_check = monotonic() + self._interval if self._is_deaf else math.inf
        calls = list(self._calls.values())  # after that, as a call that begins now may set it
        if not calls:
            return
        claim_ids = integers_literal(call.claim_id for call in calls)
        keys = key_parameters([call.key for call in calls])
        try:
            lost_claims = control.run(_lost_claims.bind(keys, claim_ids=claim_ids))
        except BaseException:
            self._next_check = min(self._next_check, monotonic() + self._interval)
            raise
        for number, is_message_there in lost_claims:
            lost = calls[number - 1]
            current = self._calls.get(lost.key.sequence)
            if current is not None and current.claim_id == lost.claim_id:
                self.unwatch(lost.key)
                try:
                    lost.end(is_claim_lost=is_message_there)
                except Exception:  # its event loop may be closed
                    logger.exception("The call of a handler that has lost its message does not end.")

    def seconds_to_next(self) -> float:
        """Return in how many seconds the server is asked."""
        return max(0.0, self._next_check - monotonic())
