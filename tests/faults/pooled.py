"""Clients behind a PgBouncer in transaction mode that keeps prepared statements, which is killed as they are.

``python -m tests.faults --fault pooler --hours H --seed N`` runs it; `make current-pgbouncer` builds the pooler.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

from tests.faults.faulty_server import faulty_server
from tests.faults.trial import Trial
from tests.integration.pooler.pgbouncer import pgbouncer

_POOL = 30
"""More than transactions are open at once."""


class Poolers(Trial):
    """All goes through the pooler: sessions and control connections."""

    def begin(self, stack: ExitStack) -> tuple[str, str]:
        self._server = stack.enter_context(faulty_server())
        self._pooler = stack.enter_context(pgbouncer(self._server.url, _POOL, current=True))
        return self._pooler.url(self._server.url), self._server.url

    def strike(self, seconds: float) -> str:
        what = self.random.choice(["pooler killed", "server process killed", "connections terminated"])
        if what == "pooler killed":
            self._pooler.kill()
            killed = self.perhaps_kill_a_client()
            time.sleep(seconds)
            self._pooler.start()
            return what + killed
        if what == "server process killed":
            self._server.kill_backend(self.random.random())
            time.sleep(1.0)  # until the server has noticed
            self._server.wait_until_ready()
        else:
            self._server.terminate_backends(self.random.uniform(0.1, 1.0))
        return what + self.perhaps_kill_a_client()
