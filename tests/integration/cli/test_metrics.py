"""`jmsql metrics`: what SQL can tell, for Prometheus."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request

from tests.integration.cli.conftest import Command


def test_metrics_are_printed_once(jmsql: Command) -> None:
    jmsql("send", "orders", "x", "--count", "3")
    outcome = jmsql("metrics", "--once")
    assert outcome.exit_code == 0
    assert (
        'jmsql_messages{client_id="",destination="orders",kind="queue",state="ready",subscription=""} 3.0'
        in outcome.text
    )


def test_a_missing_schema(jmsql: Command) -> None:
    outcome = jmsql("--verbose", "metrics", "--once", "--schema", "nowhere")
    assert outcome.exit_code == 3
    assert "jmsql migrate" in outcome.errors


def test_they_are_shown_over_http_until_it_is_told_to_end(jmsql_clean_url: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "jmsql", "metrics", "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"JMSQL_URL": jmsql_clean_url},
    ) as process:
        assert process.stderr is not None
        address = re.search(r"http://\S+/metrics", process.stderr.readline())
        assert address is not None
        with urllib.request.urlopen(address[0], timeout=60) as answer:
            assert b"jmsql_database_up 1.0\n" in answer.read()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stderr.read() == ""


def test_a_port_that_is_taken(jmsql: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        outcome = jmsql("metrics", "--port", str(taken.getsockname()[1]))
    assert outcome.exit_code == 2
    assert "Metrics cannot be shown" in outcome.errors
