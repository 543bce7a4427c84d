from __future__ import annotations

from pathlib import Path

import pytest

from tests.compliance.catalogue import Catalogue, Entry, Outcome, Record


def record() -> Record:
    entries = [Entry("producer.ttl", "4.8.6")]
    return Record(Catalogue({"requirement": entries, "case": [Entry("ttl-01", "Time to live")]}))


def test_entry_without_a_test_is_a_problem() -> None:
    assert record().problems() == ["requirement producer.ttl has no passing test", "case ttl-01 has no passing test"]


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.SKIPPED])
def test_test_that_does_not_pass_proves_nothing(outcome: Outcome) -> None:
    run = record()
    run.add(["producer.ttl"], "test_ttl.py::test_it", outcome)
    assert "requirement producer.ttl has no passing test" in run.problems()


def test_passing_tests_leave_no_problem() -> None:
    run = record()
    run.add(["producer.ttl", "ttl-01"], "test_ttl.py::test_it", Outcome.PASSED)
    assert run.problems() == []


def test_one_failed_run_of_a_test_counts() -> None:
    run = record()
    for outcome in (Outcome.FAILED, Outcome.PASSED):
        run.add(["producer.ttl", "ttl-01"], "test_ttl.py::test_it", outcome)
    assert len(run.problems()) == 2


def test_table_shows_tests_and_outcomes_in_a_fixed_order() -> None:
    run = record()
    for test in ("test_ttl.py::test_b", "test_ttl.py::test_a"):
        run.add(["ttl-01"], test, Outcome.PASSED)
    table = run.table().splitlines()
    assert "## Requirements: 0 of 1 proven" in table
    assert "| `producer.ttl` | 4.8.6 |  | missing |" in table
    assert "| `ttl-01` | Time to live | `test_ttl.py::test_a`<br>`test_ttl.py::test_b` | passed |" in table


def test_lists_refer_to_each_other() -> None:
    catalogue = Catalogue.read(Path(__file__).parents[2] / "compliance")
    assert len(catalogue.ids("requirement")) == 143
    assert len(catalogue.ids("case")) == 315


@pytest.mark.parametrize("processes", ["0", "1"])
def test_mark_with_an_unknown_id_fails_the_run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, processes: str
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # what is installed takes seconds to load
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.case("selector-empty-1000")
        def test_nothing():
            pass
        """
    )
    pytester.makeini("[pytest]\nmarkers =\n case(*ids)\n")
    pytester.syspathinsert(Path(__file__).parents[3])
    result = pytester.runpytest_subprocess("-p", "xdist.plugin", "-p", "tests.compliance.table", "-n", processes)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*test_nothing: there is no case 'selector-empty-1000'"])
