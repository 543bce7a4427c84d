"""Commands whose standard streams are closed, or lead to a full disk."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from jmsql.testing import wait_for
from tests.integration.cli.conftest import Command

UNWRITABLE = pytest.mark.parametrize("output", [">/dev/full", ">&-"])
ERRORS = {
    ">/dev/full": "jmsql: Standard input or output failed: No space left on device.\n",
    ">&-": "jmsql: Standard input or output failed: Bad file descriptor.\n",
    "<&-": "jmsql: Standard input or output failed: Bad file descriptor.\n",
}

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")


def redirected(redirection: str, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = shlex.join([sys.executable, "-m", "jmsql", *arguments])
    return subprocess.run(
        ["/bin/sh", "-c", f"exec {command} {redirection}"],
        capture_output=True,
        check=False,
        text=True,
        timeout=180,
        env=os.environ | {"JMSQL_URL": url},
    )


@UNWRITABLE
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("queues",), id="a table"),
        pytest.param(("queues", "--json"), id="a document"),
        pytest.param(("send", "orders", "second"), id="a sentence"),
        pytest.param(("doctor", "--longest-claim", "0.001"), id="a list of rich"),
    ],
)
def test_a_command_that_cannot_write_its_output_says_so(
    jmsql: Command, jmsql_clean_url: str, output: str, arguments: tuple[str, ...]
) -> None:
    jmsql("send", "orders", "first")
    process = redirected(output, jmsql_clean_url, *arguments)
    assert (process.returncode, process.stderr.splitlines(keepends=True)[-1]) == (74, ERRORS[output])
    assert "Traceback" not in process.stderr


@UNWRITABLE
@pytest.mark.parametrize("size", [1, 100_000], ids=["in the buffer", "beyond the buffer"])
def test_a_message_that_cannot_be_printed_stays_and_is_not_taken_for_none(
    jmsql: Command, jmsql_clean_url: str, output: str, size: int
) -> None:
    jmsql("send", "orders", "x" * size)
    process = redirected(output, jmsql_clean_url, "receive", "orders")
    assert (process.returncode, process.stderr) == (74, ERRORS[output])
    assert jmsql("queues", "--json").document[-1]["ready"] == 1


def test_a_body_that_cannot_be_read_is_not_sent(jmsql: Command, jmsql_clean_url: str) -> None:
    process = redirected("<&-", jmsql_clean_url, "send", "orders", "--lines")
    assert (process.returncode, process.stderr) == (74, ERRORS["<&-"])
    assert [queue["ready"] for queue in jmsql("queues", "--json").document] == [0]


@pytest.mark.parametrize("redirection", ["2>&-", "<&- 2>&-", "2>/dev/full"])
def test_a_standard_error_that_cannot_be_written_loses_remarks_alone(
    jmsql: Command, jmsql_clean_url: str, redirection: str
) -> None:
    jmsql("send", "orders", "first")
    jmsql("pause", "orders")
    process = redirected(redirection, jmsql_clean_url, "queues")
    assert (process.returncode, len(process.stdout.splitlines())) == (0, 2)
    jmsql("resume", "orders")
    assert redirected(redirection, jmsql_clean_url, "receive", "orders").stdout == "first\n"
    assert redirected(redirection, jmsql_clean_url, "receive", "orders").returncode == 1


def test_metrics_are_shown_though_the_log_is_on_a_full_disk(jmsql_clean_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = [sys.executable, "-m", "jmsql", "metrics", "--port", str(port)]
    with (
        Path("/dev/full").open("w") as full,
        subprocess.Popen(
            arguments, stdout=full, stderr=full, env=os.environ | {"JMSQL_URL": jmsql_clean_url}
        ) as process,
    ):
        try:
            wait_for(lambda: process.poll() is not None or answers(port), timeout=60)
            assert process.poll() is None
        finally:
            process.terminate()
        assert process.wait(60) == 0


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            return b"jmsql_database_up 1.0\n" in answer.read()
    except urllib.error.URLError:
        return False
