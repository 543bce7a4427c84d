"""Queues with redelivery policies, and what an administrator sees of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jmsql.admin import Administration


@pytest.fixture
def administration(jmsql_clean_url: str) -> Iterator[Administration]:
    with Administration(jmsql_clean_url) as administration:
        yield administration
