"""Queues with redelivery policies, and what an administrator sees of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jmsql import Timings
from jmsql.admin import Administration
from jmsql.testing import FAST_TIMINGS


@pytest.fixture
def jmsql_timings() -> Timings:
    return FAST_TIMINGS


@pytest.fixture
def administration(jmsql_clean_url: str) -> Iterator[Administration]:
    with Administration(jmsql_clean_url) as administration:
        yield administration
