"""Administration of the tests' database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jmsql import ConnectionFactory
from jmsql.admin import Administration


@pytest.fixture
def administration(jmsql_factory: ConnectionFactory) -> Iterator[Administration]:
    """The administration of an empty store."""
    with Administration(jmsql_factory) as administration:
        yield administration
