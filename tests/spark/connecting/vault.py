"""Stands for a place that keeps secrets."""

from __future__ import annotations

import os


def url() -> str:
    """What `connection=tests.spark.connecting.vault:url` calls."""
    return os.environ["JMSQL_CONNECTION_SHOP"]
