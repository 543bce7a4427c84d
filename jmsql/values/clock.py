"""The monotonic clock of time limits.

Tests of applications stop `time.monotonic`, as freezegun does. A receive with a time limit would then never end.
"""

from __future__ import annotations

import sys
import time
from functools import partial

if sys.platform == "win32":
    monotonic, monotonic_ns = time.monotonic, time.monotonic_ns
else:
    monotonic = partial(time.clock_gettime, time.CLOCK_MONOTONIC)
    """The seconds since some moment in the past; on Linux the same as `time.monotonic`."""
    monotonic_ns = partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC)
    """The same in nanoseconds."""
