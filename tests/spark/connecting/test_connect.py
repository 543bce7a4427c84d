from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.client.server import Server
from tests.spark.conftest import SECRET
from tests.spark.subprocesses import environment, start_module

pytestmark = pytest.mark.timeout(400)


def test_all_of_it_works_by_spark_connect(secret_url: str, server: Server, tmp_path: Path) -> None:
    log = tmp_path / "program.log"
    with log.open("w") as output:
        process = start_module(
            "tests.spark.programs.connect_program", str(tmp_path), environment=environment(secret_url), log=output
        )
    try:
        assert process.wait(380) == 0, log.read_text()[-4000:]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert json.loads((tmp_path / "answer.json").read_text()) == {"read": ["one", "two"], "lake": ["one", "two"]}
    assert server.rows("select count(*) from jmsql_internal.message") == [(0,)]
    assert SECRET not in log.read_text()
