"""The intervals and time-outs of a worker: their bounds."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from typer.testing import CliRunner

from jmsql.cli.application import app
from jmsql.worker.timings import WorkerTimings

FIELDS = [field.name for field in dataclasses.fields(WorkerTimings)]


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, 366 * 86_400])
def test_a_value_out_of_bounds_is_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"^{name} is a number of seconds from 0.001 to 31536000"):
        WorkerTimings(**{name: value})


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("value", ["1", None, True])
def test_a_value_of_another_type_is_refused(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"^{name} is a number of seconds"):
        WorkerTimings(**{name: value})


@pytest.mark.parametrize(
    ("values", "advice"),
    [
        ({"minimum_restart_delay": 31}, "minimum_restart_delay, 31 s, is more than maximum_restart_delay, 30 s; raise"),
        ({"silence_timeout": 1.9}, "silence_timeout, 1.9 s, is less than 2 times report_interval, 1 s: .* Raise"),
        (
            {"silence_timeout": 0.4, "report_interval": 0.1},
            "silence_timeout, 0.4 s, is less than 2 times check_interval, 0.25 s: .* lower check_interval",
        ),
        ({"rollback_timeout": 10}, "rollback_timeout, 10 s, is not less than exit_timeout, 10 s: .* Lower"),
    ],
)
def test_values_that_contradict_each_other_are_refused(values: dict[str, Any], advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        WorkerTimings(**values)


def test_short_ones_are_accepted() -> None:
    timings = WorkerTimings(**dict.fromkeys(set(FIELDS) - {"silence_timeout", "exit_timeout"}, 0.001))
    assert timings.maximum_restart_delay == 0.001


@pytest.mark.parametrize(
    ("timing", "answer"),
    [
        ("patience=1", "Expected one of cancel_timeout, check_interval,"),
        ("check_interval=soon", "Expected seconds such as check_interval=0.5, got 'check_interval=soon'"),
        ("rollback_timeout=20", "rollback_timeout, 20 s, is not less than exit_timeout, 10 s"),
    ],
)
def test_the_command_refuses_others(timing: str, answer: str) -> None:
    ran = CliRunner().invoke(app, ["worker", "shop:app", "--timing", timing], env={"COLUMNS": "500"})
    assert ran.exit_code == 2
    assert answer in ran.output
