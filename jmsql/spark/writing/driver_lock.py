"""The lock of a driver of Spark, by which others see that it lives, and that its transactions are still wanted.

A process of its own holds it while the driver lives. It is one for all writes of an application.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import sys
import time
from pathlib import Path

from jmsql.exceptions import JMSException
from jmsql.spark.connection import DatabaseReference
from jmsql.spark.keeper import is_running, start_keeper
from jmsql.spark.writing.prepared import living_drivers
from jmsql.store._sync.connecting import make_fit
from jmsql.store._sync.runner import PsycopgRunner, Runner
from jmsql.store.statement import SqlFile, nothing, value
from jmsql.timings import Timings

__all__ = ["hold_driver_lock"]

_INTERVAL = 0.25
"""Seconds between two looks at the driver and the connection."""

_PATIENCE = 60.0
"""Seconds after which a database that cannot be reached is given up."""

_sql = SqlFile("writing", "jmsql.spark")
_lock_driver = _sql.statement("lock_driver", "taking the lock of the driver", value(bool))
_check_lock = _sql.statement("check_lock", "keeping the lock of the driver", nothing)


def hold_driver_lock(runner: Runner, database: DatabaseReference, process: int | None = None) -> int | None:
    """Have others see that a driver lives, until it ends.

    Args:
        runner: Tells whether they do already.
        database: Where they look.
        process: The number of the driver's process; None: of the one that has started this one.

    Returns:
        The number of the driver; None through a pooler, where no lock tells anything.

    Raises:
        JMSException: The process that holds the lock could not be started.
    """
    process = os.getppid() if process is None else process
    driver = _number(process)
    if not runner.run(living_drivers([driver])):
        answer = start_keeper(
            "jmsql.spark.writing.driver_lock",
            *(str(process), str(driver), database.connection or "", database.url or ""),
            doing="The life of the driver cannot be shown to others",
        )
        if answer == "pooled":
            return None
    return driver


def _number(process: int) -> int:
    """Return a number for a process, also of another machine, that no other one has had; it is positive."""
    started = ""
    with contextlib.suppress(OSError):  # macOS has no such file
        started = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    name = f"jmsql spark driver {socket.gethostname()} {process} {started}"
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) >> 1


def _keep(database: DatabaseReference, process: int, driver: int) -> None:
    told = False
    last_held = time.monotonic()
    while is_running(process) and time.monotonic() < last_held + _PATIENCE:
        try:
            with database.connect("keeping the lock of a driver", autocommit=True) as connection:
                if make_fit(connection, Timings()):  # through a pooler
                    _tell("ok pooled")
                    return
                holding = PsycopgRunner(connection, "jmsql")
                is_held = holding.run(_lock_driver.bind(driver=driver))
                if not told:
                    _tell("ok held")
                    told = True
                if not is_held:  # another process does
                    return
                while is_running(process):
                    holding.run(_check_lock.bind())
                    last_held = time.monotonic()
                    time.sleep(_INTERVAL)
        except JMSException as error:
            if not told:
                _tell(str(error))
                return
            time.sleep(_INTERVAL)  # the server may be there again before others notice


def _tell(answer: str) -> None:
    print(answer, flush=True)  # noqa: T201 - the answer to the process that has started this one


if __name__ == "__main__":
    _keep(DatabaseReference(sys.argv[3] or None, sys.argv[4] or None), int(sys.argv[1]), int(sys.argv[2]))
