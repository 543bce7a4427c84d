"""What to collect thousands of tests costs: all processes would compile them, and look for garbage among them."""

from __future__ import annotations

import atexit
import gc
import importlib
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest

_THRESHOLDS = (50_000, 20, 50)
"""Objects made until Python looks for garbage. With its own 700, 10 and 10, that takes 2 % of all tests' time."""


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Leave the garbage alone meanwhile, which saves a fifth of the 15 s that all tests take, in each process.

    What was collected stays, and is left alone from then on: to look through its million objects takes half a second.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        _share_compiling(session.config)
        return (yield)
    finally:
        # Its plugin loads it at the end of each run. It looks for references then, which it would not find any more.
        importlib.import_module("hypothesis")
        gc.freeze()
        gc.set_threshold(*_THRESHOLDS)
        atexit.register(gc.unfreeze)  # libraries complain at exit of what is left of theirs
        if was_enabled:
            gc.enable()


def _share_compiling(config: pytest.Config) -> None:
    """Import the modules of tests, beginning in each process of pytest-xdist with others.

    Where they were never run, pytest compiles each of them, with its asserts rewritten, and keeps what it has compiled:
    processes that all begin with the first do so at the same time, each for itself.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None:
        return
    modules = [path for argument in config.args for path in _modules(config.rootpath / argument.partition("::")[0])]
    first = len(modules) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for path in modules[first:] + modules[:first]:
        with suppress(Exception, pytest.skip.Exception):  # which is told where the module is collected
            importlib.import_module(".".join(path.relative_to(config.rootpath).with_suffix("").parts))


def _modules(path: Path) -> list[Path]:
    return sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
