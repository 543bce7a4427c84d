"""Ending a command by a signal, also where Python would pass over the exception that ends it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import NoReturn

__all__ = ["end_by_signals"]

_AGAIN_AFTER = 0.05
"""Seconds; what swallowed the exception has returned by then."""


def end_by_signals() -> None:
    """Have SIGTERM end the process as Ctrl-C does: by an exception, so that what is open is closed.

    The exception is raised wherever the main thread is. In a destructor, or in what is called when an object is
    collected, Python reports it and goes on. Then the signal is sent again.
    """
    signal.signal(signal.SIGTERM, _exit)
    sys.unraisablehook = _send_again


def _exit(number: int, _: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def _send_again(ignored: sys.UnraisableHookArgs) -> None:
    if issubclass(ignored.exc_type, SystemExit):
        number = signal.SIGTERM
    elif issubclass(ignored.exc_type, KeyboardInterrupt):
        number = signal.SIGINT
    else:
        sys.__unraisablehook__(ignored)
        return
    timer = threading.Timer(_AGAIN_AFTER, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()
