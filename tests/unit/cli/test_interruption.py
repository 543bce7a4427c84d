"""Signals that end a command."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

_PROGRAM = """
import time

from jmsql.cli.application import end_by_signals

class Collected:
    def __del__(self):
        print("collecting", flush=True)
        time.sleep(60)

end_by_signals()
if {in_a_destructor}:
    Collected()
print("going on", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("in_a_destructor", [False, True])
def test_a_signal_ends_the_process_wherever_it_comes(number: signal.Signals, *, in_a_destructor: bool) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM.format(in_a_destructor=in_a_destructor)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == ("collecting\n" if in_a_destructor else "going on\n")
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    # Python ends itself by SIGINT; the command line has 130, from its own handling of KeyboardInterrupt.
    assert process.returncode == (-number if number == signal.SIGINT else 128 + number)
    assert "ignored" not in errors
