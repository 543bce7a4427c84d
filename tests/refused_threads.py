"""Threads that the system refuses to start."""

from __future__ import annotations

import threading
from typing import Self

import pytest


class Refusal:
    """Lets no thread start whose name begins so, as at the system's limit, until `end` or the end of a `with` block."""

    def __init__(self, name: str) -> None:
        self._patch = pytest.MonkeyPatch()
        self.names: list[str] = []
        """The names of the threads that did not start."""
        start = threading.Thread.start

        def start_others(thread: threading.Thread) -> None:
            if thread.name.startswith(name):
                self.names.append(thread.name)
                raise RuntimeError("can't start new thread")
            start(thread)

        self._patch.setattr(threading.Thread, "start", start_others)

    def end(self) -> None:
        self._patch.undo()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
