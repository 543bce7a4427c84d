"""A call that runs beside the test, on a thread of its own."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from tests.event_loop_thread import event_loop_called_by

Result = TypeVar("Result")

_PATIENCE = 60.0
_PAUSE = 0.01
_LOOKS = 3
_ASKING = "psycopg"
"""The package in which a thread waits for the server's answer: for how long, the server's load decides."""


class _Place(NamedTuple):
    """Where a thread is: the innermost frame of Python's."""

    package: str
    function: str
    instruction: int


class Background(Generic[Result]):
    """Starts the call at once.

    Args:
        call: What to call.
    """

    def __init__(self, call: Callable[[], Result]) -> None:
        self._call = call
        self._results: list[Result] = []
        self._errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, name=f"background {call!r}", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether the call has not returned yet."""
        return self._thread.is_alive()

    def wait_until_it_waits(self) -> None:
        """Return when the call waits for another thread, or for news: its thread sleeps, and stays at one place.

        On a busy machine a thread stays at one place, too, while it waits for a processor. One that has asked the
        server something does not count either. Where a call waits for a lock in the database, only the server can tell:
        see `Server.wait_until_someone_waits`.
        """
        deadline = time.monotonic() + _PATIENCE
        place, looks = self._place(), 0
        while looks < _LOOKS:
            assert time.monotonic() < deadline, f"the call does not wait; it is at {place}"
            time.sleep(_PAUSE)
            last, place = place, self._place()
            assert place is not None, "the call has returned"
            waits = place == last and place.package != _ASKING and self._sleeps()
            looks = looks + 1 if waits else 0

    def result(self, timeout: float = _PATIENCE) -> Result:
        """Wait for the call to return; return or raise what it did."""
        self._thread.join(timeout)
        assert not self.is_running, f"the call has not returned within {timeout} s"
        if self._errors:
            raise self._errors[0]
        return self._results[0]

    def _run(self) -> None:
        try:
            self._results.append(self._call())
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            self._errors.append(error)

    def _sleeps(self) -> bool:
        try:
            state = Path(f"/proc/self/task/{self._thread.native_id}/stat").read_text(encoding="utf-8")
        except FileNotFoundError:  # another system than Linux
            return True
        return state.rpartition(")")[2].split()[0] == "S"

    def _place(self) -> _Place | None:
        thread = self._thread.ident or 0
        frame = sys._current_frames().get(thread)
        if frame is None or not self.is_running:
            return None
        event_loop = event_loop_called_by(frame)
        if event_loop is not None:
            frame = event_loop.innermost_frame(thread)
            if frame is None:
                return _Place(_ASKING, "", 0)
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        return _Place(package, frame.f_code.co_qualname, frame.f_lasti)
