"""What another engine than Spark finds in an archive, beside what PostgreSQL has in the history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from tests.integration.client.server import Server

_FILES = "destination=*/day=*/batch=*/*.parquet"
_LIVE_FILES = "_live/destination=*/batch=*/*.parquet"


def _rows(target: Path, files: str, columns: str) -> list[tuple[Any, ...]]:
    if not any(target.glob(files)):
        return []
    with duckdb.connect() as database:
        query = f"select {columns} from read_parquet('{target}/{files}', hive_partitioning = true) order by all"
        return database.execute(query).fetchall()


def in_archive(target: Path, columns: str = "destination, day::text, text_body") -> list[tuple[Any, ...]]:
    """What the archive has, in order."""
    return _rows(target, _FILES, columns)


def waiting(target: Path, columns: str = "destination, text_body") -> list[tuple[Any, ...]]:
    """What the archive says of what waits, in order."""
    return _rows(target, _LIVE_FILES, columns)


def in_history(server: Server) -> list[tuple[Any, ...]]:
    """What the history has, in the columns and the order of `in_archive`."""
    return sorted(
        server.rows(
            """select destination_type || '://' || destination, (acknowledged_at at time zone 'UTC')::date::text,
                      text_body from jmsql.history"""
        )
    )


def assert_archived_once(target: Path, expected: list[tuple[Any, ...]]) -> None:
    """Lost 0, doubled 0."""
    found = in_archive(target)
    assert found == expected
    places = in_archive(target, "destination, subscription, transaction_id, sequence")
    assert len(set(places)) == len(places)
