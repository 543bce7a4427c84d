"""A selector that holds a statement up after its snapshot, so that others are sure to act meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from jmsql.selectors import SelectorSQL

_NUMBER = 20_020


@dataclass(frozen=True)
class Gate:
    """A selector that every message matches, once the gate is open."""

    text: str = "gate"

    def to_sql(self, first: int = 0) -> SelectorSQL:
        return SelectorSQL(f"exists (select from pg_advisory_xact_lock_shared({_NUMBER}))", {})


@contextmanager
def gate_closed(keeper: psycopg.Connection[Any]) -> Iterator[None]:
    """Keep the gate closed by a connection, each statement of which commits."""
    keeper.execute("select pg_advisory_lock(%s)", (_NUMBER,))
    try:
        yield
    finally:
        keeper.execute("select pg_advisory_unlock(%s)", (_NUMBER,))
