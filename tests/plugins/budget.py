"""What the tests cost: a run ends with the processor time of each tier, and fails if one takes more than its budget.

`budget.toml` has the tiers and their budgets.
"""

from __future__ import annotations

import time
import tomllib
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.plugins.processor_time import ProcessorTime

_BUDGET = Path(__file__).with_name("budget.toml")
_SPENT = "processor_seconds"
_OTHERS = "others"
_INTERVAL = 5.0
"""For how many seconds tests of one tier run between two measurements: each looks at every process of the machine,
which takes 20 ms where there are some hundreds."""


class FinishedProcess(Protocol):
    """A process of pytest-xdist that has run its share of the tests."""

    workeroutput: dict[str, Any]


class Budget:
    """Measures the tests that this process runs, and adds up what others have measured."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = tomllib.loads(_BUDGET.read_text(encoding="utf-8"))[_SPENT]
        self._spent: Counter[str] = Counter()
        self._time = ProcessorTime()
        self._last = self._time.seconds()
        self._measured = time.monotonic()

    def _tier(self, item: pytest.Item) -> str:
        return max((name for name in self._seconds if item.nodeid.startswith(name)), key=len, default=_OTHERS)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        result = yield
        tier = self._tier(item)
        is_last = nextitem is None or self._tier(nextitem) != tier
        if is_last or time.monotonic() >= self._measured + _INTERVAL:
            last, self._last = self._last, self._time.seconds()
            self._measured = time.monotonic()
            self._spent.update({tier: round(1000 * max(0.0, self._last - last))})
        return result

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: FinishedProcess) -> None:
        self._spent.update(getattr(node, "workeroutput", {}).get(_SPENT, {}))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_SPENT] = dict(self._spent)
        elif self._exceeded() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        exceeded = self._exceeded()
        terminalreporter.section("processor time", red=bool(exceeded))
        for tier, spent in self._spent.most_common():
            remark = ", which is too much" if tier in exceeded else ""
            terminalreporter.line(f"{spent / 1000:7.0f} s of {self._seconds.get(tier, 0.0):5.0f} s  {tier}{remark}")

    def _exceeded(self) -> list[str]:
        return [tier for tier, spent in self._spent.items() if spent > 1000 * self._seconds.get(tier, 0.0)]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Budget())
