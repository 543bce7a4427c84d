"""Which process runs which tests (pytest-xdist): one runs all that need a Spark session, which takes long to start."""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling


class SparkInOneProcess(LoadScopeScheduling):  # type: ignore[misc] # xdist comes without types
    """Gives each test to the next process that is free, and the tests with Spark to the first one, together."""

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if nodeid.startswith("tests/spark/") else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> SparkInOneProcess:
    return SparkInOneProcess(config, log)
