"""Keys that are pressed while a command shows something."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Keyboard", "keyboard"]


class Keyboard:
    """The terminal that the standard input is, if it is one.

    Args:
        descriptor: Its file descriptor; None: there is no terminal.
    """

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def wait(self, seconds: float) -> str | None:
        """Wait so long for a key, and return it."""
        descriptors = [] if self._descriptor is None else [self._descriptor]
        pressed, _, _ = select.select(descriptors, [], [], seconds)
        if self._descriptor is None or not pressed:
            return None
        key = os.read(self._descriptor, 1)
        if not key:  # the terminal is gone
            self._descriptor = None
            return None
        return key.decode(errors="replace")


@contextmanager
def keyboard() -> Iterator[Keyboard]:
    """Read keys as they are pressed, without showing them, for as long as the block lasts. Ctrl-C still interrupts."""
    if not sys.stdin.isatty():
        yield Keyboard(None)
        return
    descriptor = sys.stdin.fileno()
    former = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield Keyboard(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, former)
