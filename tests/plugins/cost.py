"""The processor time of each tier of tests, printed at the end of a run.

`--budget` compares it with `budget.toml`, and fails the run if a tier has taken more. Seconds of one machine say
nothing about another, or about the same one under other load: a calibrating loop runs between the tests, and the
budgets grow with the time that it takes.
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
from tests.slowness import calibrate

_BUDGET = Path(__file__).with_name("budget.toml")
_SPENT = "processor_milliseconds"
_OTHERS = "others"
_LOOP = "calibrating loop"
_LOOPS = "number of calibrating loops"
_INTERVAL = 5.0
"""Seconds between two measurements while tests of one tier run. A measurement reads /proc, which takes 20 ms where
there are some hundred processes."""


class FinishedProcess(Protocol):
    """A process of pytest-xdist that has run its share of the tests."""

    workeroutput: dict[str, Any]


class Cost:
    """Measures the tests of this process, and adds the measurements of the other processes."""

    def __init__(self, is_limited: bool) -> None:
        settings = tomllib.loads(_BUDGET.read_text(encoding="utf-8"))
        self._budgets: dict[str, float] = settings["processor_seconds"]
        self.usual_loop: float = settings["calibrating_loop_milliseconds"]
        self._is_limited = is_limited
        self._spent: Counter[str] = Counter()
        self._loop = 0.0
        self._loops = 0
        self._time = ProcessorTime()
        self._last = self._time.seconds()
        self._measured = time.monotonic()

    def _tier(self, item: pytest.Item) -> str:
        return max((name for name in self._budgets if item.nodeid.startswith(name)), key=len, default=_OTHERS)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        result = yield
        tier = self._tier(item)
        is_last = nextitem is None or self._tier(nextitem) != tier
        is_due = time.monotonic() >= self._measured + _INTERVAL
        if is_due:
            self.run_loop()
        if is_last or is_due:
            last, self._last = self._last, self._time.seconds()
            self._spent.update({tier: round(1000 * max(0.0, self._last - last))})
            self._measured = time.monotonic()
        return result

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: FinishedProcess) -> None:
        output = getattr(node, "workeroutput", {})
        self._spent.update(output.get(_SPENT, {}))
        self._loop += output.get(_LOOP, 0.0)
        self._loops += output.get(_LOOPS, 0)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output.update({_SPENT: dict(self._spent), _LOOP: self._loop, _LOOPS: self._loops})
        elif self._is_limited and self._exceeded() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        exceeded = self._exceeded() if self._is_limited else []
        terminalreporter.section("processor time", red=bool(exceeded))
        for tier, spent in self._spent.most_common():
            budget = f" of {self.budget(tier) / 1000:5.0f} s" if self._is_limited else ""
            remark = ", which is too much" if tier in exceeded else ""
            terminalreporter.line(f"{spent / 1000:7.0f} s{budget}  {tier}{remark}")
        if self._loops:
            terminalreporter.line(f"{self._loop / self._loops:7.2f} ms  {_LOOP} ({self.usual_loop:.2f} ms is usual)")

    def run_loop(self) -> None:
        """Run the calibrating loop once, and remember its time."""
        self._loop += calibrate()
        self._loops += 1

    def budget(self, tier: str) -> float:
        """The budget of a tier in milliseconds, on this machine and under the load of this run."""
        slowness = self._loop / self._loops / self.usual_loop if self._loops else 1.0
        return 1000 * self._budgets.get(tier, 0.0) * max(1.0, slowness)

    def _exceeded(self) -> list[str]:
        return [tier for tier, spent in self._spent.items() if spent > self.budget(tier)]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--budget",
        action="store_true",
        help="fail if the tests of a directory take more processor time than tests/plugins/budget.toml allows",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Cost(config.getoption("--budget")))
