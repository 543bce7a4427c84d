"""The time for which `wait_for` waits in tests that name none, on a machine that is slower than usual.

On a usual machine it stays 10 s: a test fails where a client is woken by a later look, or by the end of a lease.
"""

from __future__ import annotations

from jmsql.testing import wait_for
from tests.slowness import scaled

_USUAL = 10.0


def pytest_configure() -> None:
    wait_for.__defaults__ = (scaled(_USUAL),)
