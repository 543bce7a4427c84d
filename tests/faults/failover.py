"""The primary is killed under load, and its synchronous standby promoted, again and again.

``python -m tests.faults --failover --hours H --seed N`` runs it.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from jmsql.testing import wait_for
from tests.faults.ledger import Ledger
from tests.faults.replicated_servers import replicated_servers
from tests.faults.storm import KILLED, ROUTES, Clients, Report, finish, subscribe

_PATIENCE = 90.0
"""Seconds for clients of all kinds to work again."""


class Failovers:
    """Clients of all kinds, whose URL names both servers.

    Args:
        seed: Where the choices begin.
        directory: Where logs go.
        tell: Is told what happens.
    """

    def __init__(self, seed: int, directory: Path, tell: Callable[[str], None] = lambda _: None) -> None:
        self._random = random.Random(seed)
        self._directory = directory
        self._tell = tell
        self._report = Report(seed)

    def run(
        self, seconds: float = math.inf, pause: float = 5.0, longest: float = 5.0, faults: float = math.inf
    ) -> Report:
        """Kill and promote by turns.

        Args:
            seconds: How long.
            pause: The mean time from when the servers are replicated to the next fault, in seconds.
            longest: The most seconds for which there is no primary.
            faults: After how many primaries it is over, if that is sooner.
        """
        with ExitStack() as stack:
            self._servers = stack.enter_context(replicated_servers())
            self._ledger = Ledger(self._servers.url)
            self._ledger.create()
            subscribe(self._servers.url)
            self._clients = Clients(dict.fromkeys(ROUTES, self._servers.url), None, self._directory, self._report.seed)
            stack.callback(self._clients.close)
            self._clients.start_all()
            started = time.monotonic()
            while (
                time.monotonic() - started < seconds
                and self._report.faults.total() < faults
                and not (self._clients.defects or self._report.defects)
            ):
                time.sleep(min(self._random.expovariate(1 / pause), 5 * pause))
                what, took = self._replace_primary(self._random.uniform(0.0, longest))
                self._report.faults[what] += 1
                self._tell(f"{what}; promoted in {took:.1f} s; all work again after {self._wait_for_work():.1f} s")
                self._servers.add_standby()
                self._clients.look()
            self._report.seconds = time.monotonic() - started
            self._tell("calm")
            finish(self._clients, self._ledger, self._report)
        return self._report

    def _wait_for_work(self) -> float:
        """Wait until something was done in every channel; return how many seconds that took."""
        started, now = time.monotonic(), self._ledger.now()

        def has_begun() -> bool:
            self._clients.look()
            return bool(self._clients.defects) or not self._ledger.idle_channels(now)

        try:
            wait_for(has_begun, _PATIENCE)
        except AssertionError:
            idle = ", ".join(sorted(self._ledger.idle_channels(now)))
            self._report.defects += [f"nothing was done within {_PATIENCE:.0f} s in: {idle}", *self._ledger.left()]
        return time.monotonic() - started

    def _replace_primary(self, seconds: float) -> tuple[str, float]:
        """Be without a primary for so long; return what happened, and how long the promotion took."""
        if self._random.random() < 0.25:
            return "switched over", self._servers.switch_over()
        what = "primary killed"
        self._servers.kill_primary()
        if self._random.random() < 0.5:
            what = "primary and a client killed"
            name = self._random.choice(KILLED)
            self._clients.kill(name)
            self._clients.start(name)
        time.sleep(seconds)
        return what, self._servers.promote()
