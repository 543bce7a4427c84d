"""What the tests of reading the history share: a history of several destinations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import jmsql


@pytest.fixture
def administration(jmsql_factory: jmsql.ConnectionFactory) -> Iterator[jmsql.admin.Administration]:
    """The administration of the tests' database."""
    with jmsql.admin.Administration(jmsql_factory) as administration:
        yield administration


@pytest.fixture
def client(jmsql_factory: jmsql.ConnectionFactory) -> Iterator[jmsql.JMSContext]:
    """A client whose messages are acknowledged when they are received."""
    with jmsql_factory.create_context() as context:
        yield context
