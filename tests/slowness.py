"""How much slower than usual the machine is, and times of tests that grow with that."""

from __future__ import annotations

import json
import time
import tomllib
from pathlib import Path

_SETTINGS = Path(__file__).with_name("plugins") / "budget.toml"
_SAMPLE = {"numbers": list(range(200)), "texts": {str(number): "x" * number for number in range(50)}}
_MOST = 6.0


def calibrate() -> float:
    """Run the calibrating loop; return its processor time in milliseconds."""
    started = time.thread_time()
    for _ in range(100):
        assert json.loads(json.dumps(_SAMPLE, indent=1)) == _SAMPLE
    return 1000 * (time.thread_time() - started)


def _measure() -> float:
    usual: float = tomllib.loads(_SETTINGS.read_text(encoding="utf-8"))["calibrating_loop_milliseconds"]
    started = time.monotonic()  # not the processor time: other processes may take their share
    calibrate()
    return min(_MOST, max(1.0, 1000 * (time.monotonic() - started) / usual))


_SLOWNESS = _measure()


def scaled(seconds: float) -> float:
    """Return how long this machine may take for something that takes a usual one that time."""
    return seconds * _SLOWNESS
