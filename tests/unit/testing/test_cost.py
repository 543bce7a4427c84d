"""The processor time of a test run is printed, and judged on request alone."""

from __future__ import annotations

import pytest

from tests.plugins import cost

BUSY = """
import time

def test_busy():
    began = time.thread_time()
    while time.thread_time() < began + 0.05:
        pass
"""


@pytest.mark.parametrize(
    ("arguments", "outcome"),
    [((), pytest.ExitCode.OK), (("--budget",), pytest.ExitCode.TESTS_FAILED)],
    ids=["printed", "judged"],
)
def test_a_run_without_a_budget_fails_only_where_budgets_are_asked_for(
    pytester: pytest.Pytester, arguments: tuple[str, ...], outcome: pytest.ExitCode
) -> None:
    pytester.makepyfile(BUSY)
    result = pytester.runpytest_inprocess("-p", "no:randomly", "-p", "no:asyncio", *arguments, plugins=[cost])
    assert result.ret == outcome
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*s*others*"])


def test_a_budget_grows_with_the_calibrating_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = cost.Cost(is_limited=True)
    usual = judge.budget("tests/unit")
    monkeypatch.setattr(cost, "calibrate", lambda: 3 * judge.usual_loop)
    judge.run_loop()
    assert judge.budget("tests/unit") == pytest.approx(3 * usual)
