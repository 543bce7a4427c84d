"""Claims with a visibility timeout that are extended, since those who hold them are at work."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence

from jmsql.store.receiving.redelivery import ExtendedClaim, extend_claims
from jmsql.store.rows.message_rows import MessageKey
from jmsql.store.wire._sync.runner import Runner
from jmsql.values.clock import monotonic

_EXTENSIONS_IN_A_TIMEOUT = 3


class ClaimExtensions:
    """The claims that one connection keeps extending, three times within their visibility timeouts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Held to write the other fields."""
        self._claims: dict[object, Sequence[ExtendedClaim]] = {}
        self._next_run = 0.0
        self._extended: set[MessageKey] = set()
        """The messages whose claims the last run has extended, and when."""
        self._extended_at = 0.0
        self.is_running = False
        """True while a statement extends claims, perhaps of a holder that was removed just now. `run` writes it, under
        the lock."""
        self._waiters: list[Callable[[], object]] = []

    def add(self, holder: object, claims: Sequence[ExtendedClaim]) -> None:
        """Extend claims, first a third of their timeouts after the receipt, or after the last extension.

        May be called from any thread.

        Args:
            holder: The holder, which has no other claims here.
            claims: At least one.
        """
        with self._lock:
            next_run = min(self._lasts_since(claim) + claim.seconds / _EXTENSIONS_IN_A_TIMEOUT for claim in claims)
            self._next_run = min(next_run, self._next_run) if self._claims else next_run
            self._claims[holder] = claims

    def _lasts_since(self, claim: ExtendedClaim) -> float:
        return max(claim.received_at, self._extended_at) if claim.key in self._extended else claim.received_at

    def remove(self, holder: object) -> None:
        """Extend a holder's claims no more."""
        with self._lock:
            self._claims.pop(holder, None)

    def call_after(self, ended: Callable[[], object]) -> None:
        """Call a function once no statement extends claims: at once, or from the control thread."""
        with self._lock:
            if self.is_running:
                self._waiters.append(ended)
                return
        ended()

    def seconds_to_next(self) -> float:
        """Return in how many seconds claims are to be extended."""
        with self._lock:
            return max(0.0, self._next_run - monotonic()) if self._claims else math.inf

    def run(self, runner: Runner) -> None:
        """Extend the claims, if it is time to.

        Args:
            runner: A connection in autocommit mode.
        """
        with self._lock:
            claims = [claim for of_holder in self._claims.values() for claim in of_holder]
            if not claims or monotonic() < self._next_run:
                return
            now = monotonic()
            self._next_run = now + min(claim.seconds for claim in claims) / _EXTENSIONS_IN_A_TIMEOUT
            self.is_running = True
        try:
            runner.run(extend_claims(claims))
            with self._lock:
                self._extended, self._extended_at = {claim.key for claim in claims}, now
        finally:
            with self._lock:
                self.is_running = False
                waiters, self._waiters = self._waiters, []
            for ended in waiters:
                ended()
