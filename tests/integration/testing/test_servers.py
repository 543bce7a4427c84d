"""The server of a test run ends with it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jmsql.testing import wait_for

PROGRAM = """
import signal
from jmsql.testing.servers import server_for_tests

with server_for_tests() as url:
    print(url, flush=True)
    signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_killed_leaves_no_server(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JMSQL_TEST_URL", raising=False)
    monkeypatch.setenv("PATH", os.defpath)  # without Docker
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        address = run.stdout.readline()
        directory = Path(address.split("host=")[1].split("&")[0].strip().replace("%2F", "/")).parents[1]
        server = int((directory / "postgresql" / "cluster" / "postmaster.pid").read_text().split()[0])
        run.send_signal(number)
    wait_for(lambda: not Path(f"/proc/{server}").exists() and not directory.exists(), 60.0)
