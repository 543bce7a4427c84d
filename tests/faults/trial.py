"""Clients of all kinds at work, and faults of one kind, after each of which all of them have to work again."""

from __future__ import annotations

import math
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from jmsql.testing import wait_for
from tests.faults.ledger import Ledger
from tests.faults.storm import KILLED, ROUTES, Clients, Report, finish, subscribe

_PATIENCE = 90.0
"""Seconds for clients of all kinds to work again."""


class Trial(ABC):
    """What the faults have in common.

    Args:
        seed: Where the choices begin.
        directory: Where logs go.
        tell: Is told what happens.
        longest: The most seconds that a fault lasts.
    """

    pause = 5.0
    """The mean time from when all work to the next fault, in seconds."""

    def __init__(
        self, seed: int, directory: Path, tell: Callable[[str], None] = lambda _: None, *, longest: float
    ) -> None:
        self.random = random.Random(seed)
        self._directory = directory
        self._tell = tell
        self._longest = longest
        self._report = Report(seed)

    @abstractmethod
    def begin(self, stack: ExitStack) -> tuple[str, str]:
        """Start servers; return the URL of the clients, and a way to the server past all faults."""

    @abstractmethod
    def strike(self, seconds: float) -> str:
        """Have a fault last for so long, and end it; return what it was."""

    def heal(self) -> None:  # noqa: B027 - most faults leave nothing to do
        """Do what remains to be done once all clients work again."""

    def run(self, seconds: float = math.inf, faults: float = math.inf) -> Report:
        """Have faults come.

        Args:
            seconds: How long.
            faults: After how many of them it is over, if that is sooner.
        """
        with ExitStack() as stack:
            url, administrators_url = self.begin(stack)
            self._ledger = Ledger(administrators_url)
            self._ledger.create()
            subscribe(administrators_url)
            self._clients = Clients(dict.fromkeys(ROUTES, url), None, self._directory, self._report.seed)
            stack.callback(self._clients.close)
            self._clients.start_all()
            self._wait_for_work()
            started = time.monotonic()
            while (
                time.monotonic() - started < seconds
                and self._report.faults.total() < faults
                and not (self._clients.defects or self._report.defects)
            ):
                time.sleep(min(self.random.expovariate(1 / self.pause), 5 * self.pause))
                what = self.strike(self.random.uniform(0.2, 1.0) * self._longest)
                self._report.faults[what] += 1
                self._tell(f"{what}; all work again after {self._wait_for_work():.1f} s")
                self.heal()
            self._report.seconds = time.monotonic() - started
            self._tell("calm")
            finish(self._clients, self._ledger, self._report)
        return self._report

    def perhaps_kill_a_client(self, share: float = 0.5) -> str:
        """Kill a client's process, or not, and start another; return what to say of it."""
        if self.random.random() >= share:
            return ""
        name = self.random.choice(KILLED)
        self._clients.kill(name)
        self._clients.start(name)
        return ", and a client killed"

    def _wait_for_work(self) -> float:
        """Wait until something was done in every channel; return how many seconds that took."""
        started, last = time.monotonic(), self._ledger.last_done()

        def has_begun() -> bool:
            self._clients.look()
            return bool(self._clients.defects) or not self._ledger.idle_channels(last)

        try:
            wait_for(has_begun, _PATIENCE)
        except AssertionError:
            idle = ", ".join(sorted(self._ledger.idle_channels(last)))
            self._report.defects += [f"nothing was done within {_PATIENCE:.0f} s in: {idle}", *self._ledger.left()]
        return time.monotonic() - started
