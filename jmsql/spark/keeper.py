"""Processes of their own that keep something in the database while a driver of Spark lives.

Spark plans a read or a write in a process that ends as soon as it has planned, and nothing tells when the driver ends.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys

from jmsql.exceptions import JMSException

__all__ = ["is_running", "start_keeper"]

_START_TIMEOUT = 60.0
"""Seconds to wait for the answer of a process."""

_keepers: list[subprocess.Popen[str]] = []
"""The processes that this one has started, until they are found to have ended."""


def start_keeper(module: str, *arguments: str, doing: str) -> str:
    """Start a process that goes on when this one ends, and return the first line that it prints.

    Args:
        module: What it runs.
        arguments: Its arguments.
        doing: What for, for an error: "no snapshot could be taken".

    Raises:
        JMSException: It has failed; the message has what it printed instead of ``ok`` and its answer.
    """
    command = [sys.executable, "-m", module, *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    keeper = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    _keepers[:] = [process for process in _keepers if process.poll() is None] + [keeper]
    assert keeper.stdout is not None
    with keeper.stdout as output:
        ready, _, _ = select.select([output], [], [], _START_TIMEOUT)
        answer = output.readline().strip() if ready else f"no answer within {_START_TIMEOUT:g} s"
    if not answer.startswith("ok "):
        keeper.kill()
        keeper.wait()
        raise JMSException(f"{doing}: {answer}.")
    return answer.removeprefix("ok ")


def is_running(process: int) -> bool:
    """Tell whether there is a process."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
