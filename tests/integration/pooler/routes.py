"""The ways on which a client reaches the server: tests that are marked with `routes` are run on each of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from enum import Enum

import pytest

from jmsql import ConnectionFactory
from jmsql.testing import wait_for
from tests.integration.pooler.pgbouncer import PgBouncer


class Route(Enum):
    """How a client reaches the server."""

    DIRECT = "direct"
    POOLED = "pooled"
    """The sessions through a pooler that keeps prepared statements, the control connection past it."""
    POOLED_ALONE = "pooled-alone"
    """Everything through a pooler."""


def by_route(factory: ConnectionFactory, route: Route, request: pytest.FixtureRequest) -> Iterator[ConnectionFactory]:
    """Give a factory that takes the route; afterwards nothing of it is left on the server.

    Args:
        factory: One whose clients reach the server directly.
        route: The way.
        request: Where the fixture of the pooler is, if it is needed.
    """
    if route is Route.DIRECT:
        yield factory
        return
    pooler: PgBouncer = request.getfixturevalue("current_pooler" if route is Route.POOLED else "pooler")
    assert factory.url is not None
    control_url = factory.url if route is Route.POOLED else None
    yield dataclasses.replace(factory, url=pooler.url(factory.url), control_url=control_url)
    try:
        wait_for(lambda: not pooler.clients())
    finally:
        pooler.forget(factory.url)
