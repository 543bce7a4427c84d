"""What the tests with a connection start from. A test that talks to a server is run with both APIs."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from zlib import crc32

import pytest

from jmsql import Connection, ConnectionFactory, Message, Queue
from tests.compliance.apis import Api, AsyncioApi, ThreadsApi
from tests.compliance.places import Place, PlaceKind, make_place
from tests.compliance.selecting import Selecting
from tests.event_loop_thread import EventLoopThread, run_event_loop
from tests.integration.pooler.routes import Route
from tests.shared_connections import is_maintained

APIS = ("threads", "asyncio")
SHARED_BY_BOTH = ("messages", "properties", "selectors")
"""Directories whose tests are about code without I/O, or about SQL."""

_numbers = itertools.count(1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the second of the two APIs where the first proves as much, unless a run is for one route.

    That is so behind a pooler, and for messages, properties and selectors, whose code both APIs share: about half of
    these tests are run with each API.
    """
    if config.getoption("--route") is None:
        items[:] = [item for item in items if not _is_proved_by_others(item)]


def _is_proved_by_others(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    if callspec is None or "api" not in callspec.params:
        return False
    if any(mark.args[0] == "api" for mark in item.iter_markers("parametrize")):
        return False
    way: Route = callspec.params.get("route", Route.DIRECT)
    if way is Route.DIRECT and item.path.parent.name not in SHARED_BY_BOTH:
        return False
    api: str = callspec.params["api"]
    # All combinations of a test have this name, without the API and the way.
    name = item.nodeid.replace(way.value, "").replace(api, "")
    return APIS.index(api) != (crc32(name.encode()) + list(Route).index(way)) % len(APIS)


@pytest.fixture(scope="session")
def event_loop_thread() -> Iterator[EventLoopThread]:
    """The event loop of all tests of the process."""
    with run_event_loop() as event_loop:
        yield event_loop


@pytest.fixture(scope="module", params=APIS)
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    """The API that the test is run with; that for asyncio in the shape of that for threads."""
    if request.param == "threads":
        yield ThreadsApi()
        return
    api = AsyncioApi(request.getfixturevalue("event_loop_thread"))
    yield api
    api.require_no_tasks()


@pytest.fixture
def jmsql_factory(
    jmsql_factory: ConnectionFactory, api: Api, request: pytest.FixtureRequest
) -> Iterator[ConnectionFactory]:
    """A connection factory on an empty schema, whose clients do the maintenance if the test is marked `maintained`."""
    if not is_maintained(request):
        request.getfixturevalue("maintenance_suspended")
    yield api.factory(jmsql_factory)
    api.require_no_tasks()


@pytest.fixture(scope="module")
def adapted(api: Api) -> Callable[[ConnectionFactory], ConnectionFactory]:
    """Gives clients the API, and each an identifier of its own, so that it can have durable subscriptions."""

    def adapt(factory: ConnectionFactory) -> ConnectionFactory:
        return dataclasses.replace(api.factory(factory), client_id=f"compliance {next(_numbers)}")

    return adapt


@pytest.fixture(params=list(PlaceKind), ids=lambda kind: kind.value)
def place(request: pytest.FixtureRequest, connection: Connection, queue: Queue) -> Place:
    """A place where messages wait: the test is run with each kind."""
    return make_place(request.param, connection, queue.name)


@pytest.fixture(scope="module")
def selecting(shared_connection: Connection) -> Selecting:
    """One session for all selectors of a module, of which there are many; each meets a queue of its own."""
    selecting = Selecting(shared_connection.create_session())
    selecting.chosen(None, [Message()])  # opens what is opened on first use: what a test opens, it has to close
    return selecting
