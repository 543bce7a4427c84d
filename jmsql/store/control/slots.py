"""The slots that a client's handlers hold within limits over all workers, and how it shows that it lives."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import NamedTuple

from jmsql.logs import contained_logger
from jmsql.store.receiving.throttling import end_presence, show_presence
from jmsql.store.statement import Steps
from jmsql.store.wire._sync.runner import Runner
from jmsql.timings import InternalTimings
from jmsql.values.clock import monotonic

logger = contained_logger("jmsql")


class _Call(NamedTuple):
    claim_id: int
    end: Callable[[], object]


class Slots:
    """The duty to show that a client lives whose handlers hold slots.

    A slot is a claim, until its client is silent for too long: a process that is frozen keeps its claims, and gives its
    slots back. It hears of that as soon as it goes on and shows that it lives: then its calls end, since others may run
    in their place, also those that have begun since, and no other begins with a message that was claimed before.
    The control thread calls `run`, `seconds_to_next`, `end`, and `hold_for` once it has connected again; any thread may
    call the others.

    Args:
        wake: Wakes the control thread.
        timings: How often the client shows that it lives, and for how long the slots are its own.
    """

    def __init__(self, wake: Callable[[], None], timings: InternalTimings) -> None:
        self._wake = wake
        self._interval = timings.slot_interval
        self._duration = timings.slot_duration
        self._lock = threading.Lock()
        self._running: dict[int, _Call] = {}
        """The calls, by the sequences of their messages. Handlers and `_end_below` write it, under the lock."""
        self._lost_below = 0
        """The claims with lower numbers have lost their slots. `_end_below` writes it, under the lock."""
        self._connection_id = 0
        # `_show` writes both without the lock, in the control thread or in one that claims: the last one counts.
        # `hold_for`, in the control thread, writes the first so, too.
        self._next_run = math.inf
        self._certain_until = 0.0
        self.holder_id = 0
        """The client's number among those that hold slots; 0: none. `_show` writes it, once, under the lock."""

    def hold_for(self, connection_id: int) -> None:
        """Hold the slots for another connection from now on."""
        self._connection_id = connection_id
        if self.holder_id:
            self._next_run = 0.0

    def use(self) -> Steps[None]:
        """Show that the client lives if that is not certain, as it is not before its first slot."""
        if monotonic() >= self._certain_until:
            yield from self._show()
            self._wake()

    def begin_call(self, sequence: int, claim_id: int, end: Callable[[], object]) -> bool:
        """Note that the handler of a message begins; return False if it must not, since its slot is lost.

        Args:
            sequence: The message's.
            claim_id: The claim that is the slot.
            end: Ends the call, since its slot is lost; called from any thread, and returns soon.
        """
        with self._lock:
            if claim_id < self._lost_below:
                return False
            self._running[sequence] = _Call(claim_id, end)
            return True

    def end_call(self, sequence: int) -> None:
        """Note that the handler of a message has returned; its slot ends with the claim."""
        with self._lock:
            self._running.pop(sequence, None)

    def _show(self) -> Steps[None]:
        self._next_run = monotonic() + self._interval
        with self._lock:
            running = dict(self._running)
            self.holder_id = self.holder_id or self._connection_id
        certain_until = monotonic() + self._duration
        lost_below = yield from show_presence(
            *(self.holder_id, self._connection_id, running, self._duration), was_shown=self._certain_until > 0
        )
        self._certain_until = certain_until
        if lost_below:
            self._end_below(lost_below)

    def _end_below(self, lost_below: int) -> None:
        with self._lock:  # calls that have begun since are among them
            self._lost_below = lost_below
            lost = {sequence: call for sequence, call in self._running.items() if call.claim_id < lost_below}
            for sequence in lost:
                del self._running[sequence]
        logger.warning("The slots of %d running handlers were given to others; these end.", len(lost))
        for call in lost.values():
            try:
                call.end()
            except Exception:  # its event loop may be closed
                logger.exception("The call of a handler that has lost its slot does not end.")

    def run(self, control: Runner) -> None:
        """Show that the client lives, if it is time to."""
        if monotonic() >= self._next_run:
            control.run(self._show())

    def seconds_to_next(self) -> float:
        """Return in how many seconds the client shows that it lives."""
        return max(0.0, self._next_run - monotonic())

    def end(self, control: Runner) -> None:
        """Give the slots back as the client ends. The slots of calls that run on stay until they expire."""
        if self.holder_id and not self._running:
            control.run(end_presence(self.holder_id))
