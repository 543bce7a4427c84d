"""What the tests of the simplified API start from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jmsql import AcknowledgeMode, ConnectionFactory, JMSContext


@pytest.fixture
def mode() -> AcknowledgeMode:
    """The mode of the test's context."""
    return AcknowledgeMode.AUTO


@pytest.fixture
def context(jmsql_factory: ConnectionFactory, mode: AcknowledgeMode) -> Iterator[JMSContext]:
    """A context with a connection of its own."""
    with jmsql_factory.create_context(session_mode=mode) as context:
        yield context


@pytest.fixture
def other(jmsql_factory: ConnectionFactory) -> Iterator[JMSContext]:
    """The context of another client, which sends, and looks at what is left."""
    with jmsql_factory.create_context() as context:
        yield context
