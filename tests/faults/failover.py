"""The primary is killed under load, and its synchronous standby promoted, again and again.

``python -m tests.faults --fault failover --hours H --seed N`` runs it.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

from tests.faults.replicated_servers import replicated_servers
from tests.faults.trial import Trial


class Failovers(Trial):
    """The URL of the clients names both servers."""

    def begin(self, stack: ExitStack) -> tuple[str, str]:
        self._servers = stack.enter_context(replicated_servers())
        return self._servers.url, self._servers.url

    def strike(self, seconds: float) -> str:
        if self.random.random() < 0.25:
            self._servers.switch_over()
            return "switched over"
        self._servers.kill_primary()
        killed = self.perhaps_kill_a_client()
        time.sleep(seconds)
        self._servers.promote()
        return f"primary killed{killed}"

    def heal(self) -> None:
        self._servers.add_standby()
