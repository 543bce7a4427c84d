"""The time for which `wait_for` waits in tests that name none, on a machine that is slower than usual.

On a usual machine it stays 10 s: a test fails where a client is woken by a later look, or by the end of a lease.
"""

from __future__ import annotations

import time
import tomllib
from pathlib import Path

from jmsql.testing import wait_for
from tests.plugins.cost import calibrate

_USUAL = 10.0
_MOST = 60.0


def pytest_configure() -> None:
    settings = tomllib.loads(Path(__file__).with_name("budget.toml").read_text(encoding="utf-8"))
    started = time.monotonic()  # not the processor time: other processes may take their share
    calibrate()
    slowness = 1000 * (time.monotonic() - started) / settings["calibrating_loop_milliseconds"]
    wait_for.__defaults__ = (min(_MOST, _USUAL * max(1.0, slowness)),)
