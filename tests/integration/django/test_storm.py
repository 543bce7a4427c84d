"""Handlers that write with Django's ORM, while workers, server processes and the server are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

import jmsql
from jmsql.testing import wait_for
from tests.faults.faulty_server import FaultyServer, faulty_server

ROOT = Path(__file__).parents[3]
PATIENCE = 90.0
COUNT = 800


@contextmanager
def worker(environment: dict[str, str], log: Path) -> Iterator[int]:
    """A worker of the project, started from another directory; its process."""
    program = str(ROOT / "tests/integration/django/manage.py")
    command = [sys.executable, program, "jmsql", "worker", "-p", "2", "-c", "3"]
    with log.open("ab") as output:
        process = subprocess.Popen(command, cwd=log.parent, env=environment, stderr=output)
    try:
        wait_for(lambda: "Handling messages" in log.read_text(), PATIENCE)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        exit_code = process.wait(PATIENCE)
    assert exit_code == 0, log.read_text()[-5000:]


def kill_a_child(supervisor: int) -> None:
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    if children:
        os.kill(int(children[0]), signal.SIGKILL)


def restart(server: FaultyServer, number: signal.Signals) -> None:
    server.kill(number)
    server.start()
    server.wait_until_ready()


def kill_a_server_process(server: FaultyServer) -> None:
    server.kill_backend(0.5)
    server.wait_until_ready()


def recovered(url: str, queries: Mapping[str, str]) -> dict[str, int]:
    """Query, as soon as the server has noticed that a process was killed, and has recovered from it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with psycopg.connect(url) as connection:
                return {name: connection.execute(query.encode()).fetchall()[0][0] for name, query in queries.items()}
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def counts(url: str) -> dict[str, int]:
    """How many articles and messages there are, and how many articles were finished."""
    queries = {
        "articles": "select count(*) from shop_article",
        "finished": "select count(*) from shop_article where amount = 1",
        **{
            queue: f"select count(*) from jmsql.messages where queue = '{queue}'"
            for queue in ("deliveries", "bills", "DLQ")
        },
    }
    return recovered(url, queries)


@pytest.mark.timeout(400)
def test_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with faulty_server() as server:
        environment = os.environ | {
            "SHOP_DATABASE": server.url,
            "DJANGO_SETTINGS_MODULE": "tests.integration.django.settings",
            "PYTHONPATH": str(ROOT),
        }
        migrate = [sys.executable, "tests/integration/django/manage.py", "migrate", "--verbosity", "0"]
        subprocess.run(migrate, cwd=ROOT, env=environment, check=True, timeout=PATIENCE)
        with psycopg.connect(server.url) as sender:
            producer = jmsql.enlist(sender).create_producer()
            for number in range(COUNT):
                producer.send(jmsql.Queue("deliveries"), {"name": f"article {number}"})
        with worker(environment, log) as supervisor:
            faults: list[Callable[[], object]] = [
                lambda: kill_a_child(supervisor),
                lambda: server.terminate_backends(0.5),
                lambda: kill_a_server_process(server),
                lambda: restart(server, signal.SIGKILL),
                lambda: kill_a_child(supervisor),
                lambda: restart(server, signal.SIGQUIT),
                lambda: server.terminate_backends(1.0),
            ]
            struck = 0
            for fault in faults:
                seen = counts(server.url)["articles"]
                wait_for(lambda seen=seen: counts(server.url)["articles"] >= min(seen + 10, COUNT), PATIENCE)  # type: ignore[misc]
                struck += counts(server.url)["deliveries"] > 0
                fault()
            wait_for(lambda: counts(server.url)["deliveries"] == 0, PATIENCE)
        assert counts(server.url) == {
            "articles": COUNT,
            "finished": COUNT,
            "deliveries": 0,
            "bills": COUNT,
            "DLQ": 0,
        }
        assert struck >= 5  # else the messages were handled before the faults
