"""The examples: web backends that take orders, send messages in the same transaction, and ship them or have workers."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager

import httpx2
import pytest

from jmsql import ConnectionFactory, Topic
from jmsql.admin import Administration
from jmsql.testing import wait_for
from tests.documentation import commands
from tests.examples.conftest import EXAMPLES, ROOT, WITH_WORKER, Example

RunWorker = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def count_sent(example: Example, jmsql_factory: ConnectionFactory) -> Callable[[], int]:
    """How many messages the example has sent, as long as no worker receives them."""
    if isinstance(example.destination, Topic):
        with jmsql_factory.create_context() as context:
            context.create_shared_durable_consumer(example.destination, "audit")

    def count() -> int:
        with Administration(jmsql_factory) as administration:
            ready = [queue.ready for queue in administration.queues()]
            return sum(ready + [subscription.ready for subscription in administration.subscriptions()])

    return count


@pytest.mark.parametrize("example", WITH_WORKER, indirect=True)
def test_orders_are_placed_once_and_shipped(
    backend: httpx2.Client, worker: RunWorker, example: Example, count_sent: Callable[[], int]
) -> None:
    orders = [{"reference": uuid.uuid4().hex, "goods": goods} for goods in ("two kites", "a lantern")]
    assert backend.post("/orders", json=orders[0]).status_code == 201
    assert backend.get(f"/orders/{orders[0]['reference']}").json()["state"] == "placed"
    assert backend.post("/orders", json=orders[0]).status_code == 409
    assert count_sent() == 1
    with worker():
        assert backend.post("/orders", json=orders[1]).status_code == 201
        # The topic had no subscription of the worker's when the first one was placed.
        shipped = orders[1:] if isinstance(example.destination, Topic) else orders
        addresses = [f"/orders/{order['reference']}" for order in shipped]
        wait_for(lambda: {backend.get(address).json()["state"] for address in addresses} == {"shipped"}, 60.0)
        if example.has_courier:
            check_that_the_courier_is_called_for_express_orders_alone(backend)


def check_that_the_courier_is_called_for_express_orders_alone(backend: httpx2.Client) -> None:
    references = {express: uuid.uuid4().hex for express in (True, False)}
    for express, reference in references.items():
        backend.post("/orders", json={"reference": reference, "goods": "a lantern", "express": express})
    wait_for(lambda: backend.get(f"/orders/{references[True]}").json()["courier"], 60.0)
    wait_for(lambda: backend.get(f"/orders/{references[False]}").json()["state"] == "shipped", 60.0)
    assert backend.get(f"/orders/{references[False]}").json()["courier"] is False


@pytest.mark.parametrize("example", ["fastapi_orders"], indirect=True)
def test_a_backend_ships_what_it_takes_and_tells_of_it(backend: httpx2.Client) -> None:
    references = [uuid.uuid4().hex for _ in range(2)]
    with backend.stream("GET", "/shipments") as watching:
        lines = filter(None, watching.iter_lines())
        assert next(lines).startswith(":")
        for reference, status in ((references[0], 201), (references[0], 409), (references[1], 201)):
            assert backend.post("/orders", json={"reference": reference, "goods": "a kite"}).status_code == status
        assert {next(lines), next(lines)} == {f"data: {reference}" for reference in references}
        # The shipment and its announcement are one transaction.
        states = [backend.get(f"/orders/{reference}").json()["state"] for reference in references]
        assert states == ["shipped", "shipped"]
    assert backend.get("/quotes/kite").json() == {"goods": "kite", "price": 20}


def test_the_tests_of_the_project_of_djangos_pass(environment: dict[str, str]) -> None:
    command = "examples.django_orders.manage test examples.django_orders"
    arguments = [sys.executable, "-m", *command.split()]
    done = subprocess.run(
        arguments, cwd=ROOT, env=environment, check=False, timeout=280, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "Ran 3 tests" in done.stderr
    assert set(command.split()) <= set().union(*commands("examples/django_orders/README.md"))


def test_its_page_starts_it_as_it_is_tested(example: Example) -> None:
    [name] = [name for name, known in EXAMPLES.items() if known is example]
    shown = [set(words) for words in commands(f"examples/{name}/README.md")]
    for command in filter(None, (example.preparation, example.backend, example.worker)):
        words = set(command.split()) - {"--noreload", "--port", "{port}"}
        assert any(words <= each for each in shown), command
