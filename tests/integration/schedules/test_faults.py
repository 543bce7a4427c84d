"""Ticks of a schedule while clients are killed, frozen and cut off: each is sent once.

``python -m tests.integration.schedules.test_faults URL 5 60`` does the same to five clients of a database for a minute.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta

import psycopg
import pytest

from jmsql import Missed
from jmsql.admin import Administration
from jmsql.testing import wait_for
from tests.faults.proxy import CuttingProxy

PATIENCE = 60.0
CLIENT = """
import sys, time
import jmsql
with jmsql.ConnectionFactory(sys.argv[1]).create_connection() as connection:
    connection.create_session().create_consumer("another queue")
    connection.start()
    print("ready", flush=True)
    time.sleep(3600)
"""


@contextmanager
def client(url: str) -> Iterator[Callable[[random.Random], str]]:
    """Run a client that receives; the block is given what has a fault happen to it."""
    proxy = CuttingProxy(url)
    process = subprocess.Popen([sys.executable, "-c", CLIENT, proxy.url], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None

    def fail(chance: random.Random) -> str:
        fault = chance.choice(["kill", "freeze", "cut off"])
        if fault == "kill":
            process.kill()
        elif fault == "freeze":
            process.send_signal(signal.SIGSTOP)
        else:
            proxy.swallow()
        return fault

    try:
        process.stdout.readline()
        yield fail
    finally:
        process.kill()
        process.communicate()
        proxy.close()


def trouble(url: str, clients: int, seconds: float, seed: int) -> list[str]:
    """Run clients, of which one after the other fails and is replaced; return the faults."""
    chance = random.Random(seed)
    faults = []
    with ExitStack() as exits:
        running = []
        for _ in range(clients):
            stack = exits.enter_context(ExitStack())
            running.append((stack, stack.enter_context(client(url))))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            stack, fail = running.pop(0)
            faults.append(fail(chance))
            time.sleep(chance.uniform(0.2, 1.5))
            successor = exits.enter_context(ExitStack())
            running.append((successor, successor.enter_context(client(url))))
            stack.close()
    return faults


def require_each_tick_once(url: str) -> int:
    """Make sure that the ticks of the schedule are those of consecutive seconds; return how many there are."""
    with psycopg.connect(url) as database:
        ticks = database.execute(
            "select (properties ->> 'JMS_jmsql_ScheduledTime')::bigint, properties ->> 'JMS_jmsql_MissedTicks' "
            "from jmsql.messages where queue = 'ticks' order by 1"
        ).fetchall()
    first = ticks[0][0]
    assert ticks == [(first + 1000 * number, "0") for number in range(len(ticks))]
    return len(ticks)


@pytest.mark.timeout(180)
def test_each_tick_is_sent_once_while_clients_fail(jmsql_clean_url: str) -> None:
    with Administration(jmsql_clean_url) as administration:
        administration.set_schedule("ticks", timedelta(seconds=1), "ticks", missed=Missed.ALL)
        trouble(jmsql_clean_url, 2, 2.0, seed=7)
        with client(jmsql_clean_url):
            wait_for(lambda: administration.schedule("ticks").sent >= 4, PATIENCE)
        administration.pause_schedule("ticks")
        assert require_each_tick_once(jmsql_clean_url) == administration.schedule("ticks").sent


def main(url: str, clients: str, seconds: str) -> None:
    """Do the same by hand, and print what has come of it."""
    with Administration(url) as administration:
        administration.set_schedule("ticks", "* * * * * *", "ticks", missed=Missed.ALL)
        began = time.monotonic()
        faults = trouble(url, int(clients), float(seconds), random.randrange(10**6))
        with client(url):
            time.sleep(2.0)
        administration.pause_schedule("ticks")
        number = require_each_tick_once(url)
    print(f"{len(faults)} faults in {time.monotonic() - began:.1f} s: {number} ticks, each once")  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
