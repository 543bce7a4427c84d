"""What the tables hold of topics."""

from __future__ import annotations

from typing import LiteralString

from jmsql.testing import wait_for
from tests.integration.client.server import Server

_PATIENCE = 60.0
"""Seconds. Maintenance runs once a second."""


def count(server: Server, table: LiteralString) -> int:
    """How many rows a table of the schema has."""
    number: int = server.rows(f"select count(*) from jmsql_internal.{table}")[0][0]
    return number


def wait_until_empty(server: Server, *tables: LiteralString) -> None:
    """Wait until maintenance has removed all rows of some tables."""
    wait_for(lambda: all(count(server, table) == 0 for table in tables), timeout=_PATIENCE)
