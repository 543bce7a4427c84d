from __future__ import annotations

from pathlib import Path

import pytest

from jmsql.worker.metrics import Totals, WorkerMetrics, exposition


def test_a_process_that_has_not_filled_its_file_yet_hides_no_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    (tmp_path / "counter_4711.db").touch()
    metrics = WorkerMetrics(
        Totals(), processes={"ready": 1}, restarts=0, replaced={}, running=0, longest_transaction=0.0
    )
    assert 'jmsql_worker_processes{state="ready"} 1.0' in exposition(lambda: metrics).decode().splitlines()
