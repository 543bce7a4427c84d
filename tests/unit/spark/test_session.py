"""The session of jmsql's own jobs."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from jmsql.spark.session import spark_session
from pyspark_jmsql import DefaultSource


class RunningSession:
    """A session of the application's, which notes what is registered."""

    def __init__(self) -> None:
        self.registered: list[type] = []

    @property
    def dataSource(self) -> Any:  # noqa: N802 - Spark's name
        return self

    def register(self, source: type) -> None:
        self.registered.append(source)


def test_format_is_there_though_spark_itself_has_not_found_it(monkeypatch: pytest.MonkeyPatch) -> None:
    running = RunningSession()
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: running)
    with spark_session("a job"):
        assert running.registered == [DefaultSource]
