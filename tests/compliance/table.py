"""The part of the test run that keeps the compliance table: reads the marks, judges complete runs, writes the table.

Where the tests run in several processes (pytest-xdist), each reads the marks of its tests and sends them along with the
reports; the process that started them keeps the table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.compliance.catalogue import KINDS, Catalogue, Outcome, Record

TESTS = Path(__file__).parents[1]
TABLE = TESTS.parent / "docs" / "compliance.md"

_COLLECTED = "compliance_collected"


class FinishedProcess(Protocol):
    """A process of pytest-xdist that has run its share of the tests."""

    workeroutput: dict[str, Any]


class Marks:
    """Sends the ids of the collected tests with their reports."""

    def __init__(self) -> None:
        self._deselected = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            for kind in KINDS:
                ids = {identifier for mark in item.iter_markers(kind) for identifier in mark.args}
                item.user_properties += [(kind, identifier) for identifier in sorted(ids)]

    def pytest_deselected(self) -> None:
        self._deselected = True

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_COLLECTED] = self.collected(session)

    def collected(self, session: pytest.Session) -> int | None:
        """How many tests there are; None if some were left out on purpose."""
        return None if self._deselected else session.testscollected


class ComplianceTable:
    """Follows one test run, in the process that prints the reports.

    Args:
        catalogue: The cases and requirements to prove.
        marks: What this process collects; where others run the tests, nothing.
    """

    def __init__(self, catalogue: Catalogue, marks: Marks) -> None:
        self._known = {kind: catalogue.ids(kind) for kind in KINDS}
        self._record = Record(catalogue)
        self._marks = marks
        self._collected: set[int | None] = set()
        self._ids: dict[str, list[str]] = {}
        self._outcomes: dict[str, Outcome] = {}
        self._problems: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome = Outcome[report.outcome.upper()]
        self._outcomes[report.nodeid] = max(outcome, self._outcomes.get(report.nodeid, outcome))
        if report.when == "setup":
            marks = [(kind, str(value)) for kind, value in report.user_properties if kind in KINDS]
            self._ids[report.nodeid] = [identifier for _, identifier in marks]
            self._problems += [
                f"{report.nodeid}: there is no {kind} {identifier!r}"
                for kind, identifier in marks
                if identifier not in self._known[kind]
            ]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: FinishedProcess) -> None:
        self._collected.add(getattr(node, "workeroutput", {}).get(_COLLECTED))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        collected = self._collected or {self._marks.collected(session)}
        if collected == {len(self._outcomes)} and _asks_for_everything(session):
            self._write()
        if self._problems and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _write(self) -> None:
        for test, outcome in self._outcomes.items():
            name = test.removeprefix(f"{TESTS.name}/").partition("[")[0]
            self._record.add(self._ids[test], name, outcome)
        table = self._record.table()
        if not TABLE.exists() or TABLE.read_text(encoding="utf-8") != table:
            TABLE.write_text(table, encoding="utf-8")
        self._problems += self._record.problems()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._problems:
            terminalreporter.section("compliance", red=True)
            for problem in self._problems:
                terminalreporter.line(problem)


def _asks_for_everything(session: pytest.Session) -> bool:
    config = session.config
    roots = [config.invocation_params.dir / argument for argument in config.args]
    everything = any(root.resolve() in (TESTS, *TESTS.parents) for root in roots)
    return everything and not config.option.collectonly and not config.option.ignore


def pytest_configure(config: pytest.Config) -> None:
    marks = Marks()
    config.pluginmanager.register(marks)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(ComplianceTable(Catalogue.read(Path(__file__).parent), marks))
