"""Watching the files of a program, for `--reload`."""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["SourceFiles"]

_LEFT_OUT = frozenset({"__pycache__", "node_modules", "site-packages"})


class SourceFiles:
    """The Python files below a directory, hidden ones and installed packages aside.

    Args:
        directory: The directory.
        interval: Seconds between two looks.
    """

    def __init__(self, directory: Path, interval: float) -> None:
        self._interval = interval
        self._directory = directory
        self._times = self._read()
        self._next_look = 0.0

    def have_changed(self) -> bool:
        """Return whether any was changed, made or deleted since the last call."""
        now = time.monotonic()
        if now < self._next_look:
            return False
        former, self._times = self._times, self._read()
        self._next_look = now + self._interval
        return self._times != former

    def _read(self) -> dict[str, int]:
        times = {}
        for directory, directories, names in os.walk(self._directory):
            directories[:] = [name for name in directories if not name.startswith(".") and name not in _LEFT_OUT]
            for name in names:
                if name.endswith(".py"):
                    path = Path(directory, name)
                    try:
                        times[str(path)] = path.stat().st_mtime_ns
                    except FileNotFoundError:
                        continue  # deleted just now
        return times
