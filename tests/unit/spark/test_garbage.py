"""Spark's Python processes do not collect the modules that they have loaded."""

from __future__ import annotations

import gc
import sys
from importlib.machinery import ModuleSpec
from itertools import count
from types import ModuleType

import pytest

from jmsql.spark import garbage
from jmsql.spark.garbage import exempt_modules


@pytest.mark.parametrize(("program", "exempting"), [("pyspark.daemon", [2]), ("pytest", [])])
def test_the_second_call_of_a_process_of_sparks_exempts_its_objects_from_collections(
    program: str, exempting: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    main = ModuleType("__main__")
    main.__spec__ = ModuleSpec(program, None)
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(garbage, "_calls", count())
    calls: list[int] = []
    exempted: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: exempted.append(calls[-1]))
    for call in (1, 2, 3):
        calls.append(call)
        exempt_modules()
    assert exempted == exempting
