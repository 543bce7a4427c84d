"""The example of a web backend and its worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from fastapi.testclient import TestClient

from jmsql import ConnectionFactory
from jmsql.testing import wait_for

ROOT = Path(__file__).parents[2]


@pytest.fixture
def backend(jmsql_clean_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """A client of the running backend."""
    monkeypatch.setenv("JMSQL_URL", jmsql_clean_url)
    from examples.fastapi_orders.backend import app  # it reads the URL from the environment

    with TestClient(app) as client:
        yield client
    engine = sqlalchemy.create_engine(sqlalchemy.make_url(jmsql_clean_url).set(drivername="postgresql+psycopg"))
    with engine.begin() as database:
        database.execute(sqlalchemy.text("drop table example_order"))
    engine.dispose()


@pytest.fixture
def worker(backend: TestClient) -> Iterator[None]:
    """The worker, until the test is over."""
    process = subprocess.Popen(
        [sys.executable, "-m", "jmsql.cli", "worker", "examples.fastapi_orders.messaging:app"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])},
    )
    yield
    process.send_signal(signal.SIGTERM)
    assert process.wait(30.0) == 0


@pytest.mark.usefixtures("worker")
def test_orders_are_shipped(backend: TestClient) -> None:
    assert backend.post("/orders", json={"reference": "A1", "goods": "two kites"}).status_code == 201
    wait_for(lambda: backend.get("/orders/A1").json() == {"reference": "A1", "state": "shipped"}, 30.0)


def test_an_order_that_is_refused_sends_nothing(backend: TestClient, jmsql_factory: ConnectionFactory) -> None:
    order = {"reference": "A1", "goods": "two kites"}
    answers = [backend.post("/orders", json=order).status_code for _ in range(2)]
    assert answers == [201, 409]
    with jmsql_factory.create_context() as context:
        browser = context.create_browser(context.create_queue("example orders"))
        assert [message.get_body(dict) for message in browser] == [{"reference": "A1"}]


def test_an_order_that_is_not_there_is_not_found(backend: Any) -> None:
    assert backend.get("/orders/none").status_code == 404
