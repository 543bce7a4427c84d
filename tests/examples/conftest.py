"""The examples as their README files start them: real processes, on the test's database."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from jmsql import Destination, Queue, Topic
from jmsql.testing import wait_for

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Example:
    """How an example is started, each command by Python's ``-m``; `{port}` stands for a free port.

    `destination` is where its messages go. Without a worker, the backend itself receives them. With `has_courier`, a
    courier is called for express orders.
    """

    destination: Destination
    backend: str
    worker: str | None = None
    preparation: str | None = None
    has_courier: bool = False


EXAMPLES = {
    "fastapi_orders": Example(
        Queue("example orders"),
        "uvicorn examples.fastapi_orders.backend:app --timeout-graceful-shutdown 5 --port {port}",
    ),
    "flask_orders": Example(
        Topic("example orders placed"),
        "flask --app examples.flask_orders.backend run --port {port}",
        "jmsql worker examples.flask_orders.messaging:app",
        has_courier=True,
    ),
    "django_orders": Example(
        Queue("example django orders"),
        "examples.django_orders.manage runserver --noreload {port}",
        "examples.django_orders.manage jmsql worker",
        "examples.django_orders.manage migrate",
    ),
}


WITH_WORKER = [name for name, example in EXAMPLES.items() if example.worker is not None]


@pytest.fixture(params=EXAMPLES)
def example(request: pytest.FixtureRequest) -> Example:
    """Each example."""
    return EXAMPLES[request.param]


@pytest.fixture
def environment(jmsql_clean_url: str) -> dict[str, str]:
    """What the processes of an example find in their environment."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    # Tests of Django in this process name settings of theirs.
    inherited = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    return inherited | {"JMSQL_URL": jmsql_clean_url, "PYTHONPATH": path}


@contextmanager
def running(arguments: str, environment: dict[str, str], expected: set[int]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-m", *arguments.split()], cwd=ROOT, env=environment)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60.0) in expected


@pytest.fixture
def backend(example: Example, environment: dict[str, str]) -> Iterator[httpx2.Client]:
    """A client of the running backend."""
    if example.preparation is not None:
        subprocess.run(
            [sys.executable, "-m", *example.preparation.split()], cwd=ROOT, env=environment, check=True, timeout=180
        )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (
        running(example.backend.format(port=port), environment, {0, -signal.SIGTERM}) as process,
        httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60.0) as client,
    ):

        def answers() -> bool:
            assert process.poll() is None, "The backend has ended."
            try:
                return client.get("/orders/none").status_code == httpx2.codes.NOT_FOUND
            except httpx2.ConnectError:
                return False

        wait_for(answers, 60.0)
        yield client


@pytest.fixture
def worker(example: Example, environment: dict[str, str]) -> Callable[[], AbstractContextManager[None]]:
    """Runs the worker for as long as the context lasts."""

    @contextmanager
    def run() -> Iterator[None]:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with running(f"{example.worker} --health-port {port}", environment, {0}) as process:

            def is_ready() -> bool:
                assert process.poll() is None, "The worker has ended."
                try:
                    return httpx2.get(f"http://127.0.0.1:{port}/ready", timeout=60.0).is_success
                except httpx2.ConnectError:
                    return False

            wait_for(is_ready, 60.0)
            yield

    return run
