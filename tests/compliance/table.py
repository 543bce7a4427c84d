"""The part of the test run that keeps the compliance table: reads the marks, judges complete runs, writes the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compliance.catalogue import KINDS, Catalogue, Outcome, Record

TESTS = Path(__file__).parents[1]
TABLE = TESTS.parent / "docs" / "compliance.md"


class ComplianceTable:
    """Follows one test run."""

    def __init__(self) -> None:
        self._catalogue = Catalogue.read(Path(__file__).parent)
        self._record = Record(self._catalogue)
        self._ids: dict[str, set[str]] = {}
        self._outcomes: dict[str, Outcome] = {}
        self._problems: list[str] = []
        self._complete = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        errors = []
        for item in items:
            for kind in KINDS:
                ids = {identifier for mark in item.iter_markers(kind) for identifier in mark.args}
                self._ids.setdefault(item.nodeid, set()).update(ids)
                unknown = ids - self._catalogue.ids(kind)
                errors += [f"{item.nodeid}: there is no {kind} {identifier!r}" for identifier in sorted(unknown)]
        if errors:
            raise pytest.UsageError("\n".join(errors))

    def pytest_deselected(self) -> None:
        self._complete = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome = Outcome[report.outcome.upper()]
        self._outcomes[report.nodeid] = max(outcome, self._outcomes.get(report.nodeid, outcome))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self._complete or not _asks_for_everything(session) or session.testscollected != len(self._outcomes):
            return
        for test, outcome in self._outcomes.items():
            name = test.removeprefix(f"{TESTS.name}/").partition("[")[0]
            self._record.add(self._ids[test], name, outcome)
        table = self._record.table()
        if not TABLE.exists() or TABLE.read_text(encoding="utf-8") != table:
            TABLE.write_text(table, encoding="utf-8")
        self._problems = self._record.problems()
        if self._problems and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

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
    config.pluginmanager.register(ComplianceTable())
