"""Where all that the tests need is installed, none is skipped: in continuous integration a skipped test fails the run.

`CI` says so, as everywhere; `.ci/run` sets it.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

ALLOWED: dict[str, str] = {
    "the registry of packages does not answer": "a machine that is not online has the locked versions at most",
}
"""Reasons for which a test may be skipped there, too, and what a machine of continuous integration may lack."""


class Skips:
    """Counts the skipped tests by reason, in the process that prints the reports."""

    def __init__(self) -> None:
        self._reasons: Counter[str] = Counter()

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            reason = reason.removeprefix("Skipped: ")
            if reason not in ALLOWED:
                self._reasons[reason] += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._reasons and "CI" in os.environ and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._reasons:
            terminalreporter.section("not tested", red="CI" in os.environ, yellow="CI" not in os.environ)
            for reason, tests in self._reasons.most_common():
                terminalreporter.line(f"{tests} skipped: {reason}")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Skips())
