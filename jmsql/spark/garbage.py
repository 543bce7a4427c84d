"""Garbage collections in Spark's Python processes."""

from __future__ import annotations

import gc
import sys
from itertools import count

_DAEMON = "pyspark.daemon"
_calls = count()


def exempt_modules() -> None:
    """Exempt the objects of a process from its collections, at its second call by Spark.

    Spark's daemon collects all garbage of a process after each call. With the modules of a write, pandas among them,
    that takes 70 ms of a processor, which the next step of the query then lacks.

    At the second call, the modules are loaded, and the collection after the first has left no garbage that would stay.
    Later calls exempt nothing: each would keep the cycles of its own objects for good. In a process of another program
    this does nothing.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    if main is not None and main.name == _DAEMON and next(_calls) == 1:
        gc.freeze()
