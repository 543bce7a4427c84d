"""The supervisor of a worker's processes, with a clock that a test sets."""

from __future__ import annotations

from typing import Any

import pytest

from jmsql.worker import child_process, supervisor
from jmsql.worker.child_process import ProcessSlot
from jmsql.worker.settings import Settings
from jmsql.worker.supervisor import Supervisor


class Process:
    """A process that lives on and says nothing."""

    pid = 1
    kills = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def poll(self) -> None:
        pass

    def kill(self) -> None:
        Process.kills += 1


def test_the_time_in_which_the_supervisor_was_frozen_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("subprocess.Popen", Process)
    monkeypatch.setattr(child_process, "monotonic", lambda: now)
    monkeypatch.setattr(supervisor, "monotonic", lambda: now)
    monkeypatch.setattr(supervisor, "_reap_orphans", lambda _: None)
    settings = Settings(application="shop:app")
    watching = Supervisor(settings, 1)
    watching._slots = [ProcessSlot(watching._start, settings.timings)]
    watching._start_first()
    [child] = watching._children
    child.listeners = [{"timeout": 1.0}]

    def select(timeout: float) -> list[Any]:
        nonlocal now
        now += timeout
        return []

    with child.channel, monkeypatch.context() as patched:
        patched.setattr(watching._selector, "select", select)
        for _ in range(3):
            watching._look()
            now += 3600.0
        watching._look()
        assert Process.kills == 0
        for _ in range(int(settings.timings.silence_timeout / settings.timings.supervision_interval) + 1):
            watching._look()
        assert Process.kills >= 1
    watching._selector.close()
