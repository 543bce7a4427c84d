"""Collecting thousands of tests makes no garbage; its collector would look at all of them again and again."""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave the garbage alone meanwhile, which saves a fifth of the 15 s that all tests take, in each process."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return (yield)
    finally:
        if was_enabled:
            gc.enable()
