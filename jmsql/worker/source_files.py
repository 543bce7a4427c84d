"""Watching the files of a program, for `--reload`."""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["SourceFiles"]

_INTERVAL = 0.5
_LEFT_OUT = frozenset({"__pycache__", "node_modules", "site-packages"})


class SourceFiles:
    """The Python files below a directory, hidden ones and installed packages aside.

    Args:
        directory: The directory.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._times = self._read()
        self._next_look = 0.0

    def have_changed(self) -> bool:
        """Return whether any was changed, made or deleted since the last call. It looks twice a second at most."""
        now = time.monotonic()
        if now < self._next_look:
            return False
        former, self._times = self._times, self._read()
        self._next_look = now + _INTERVAL
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
