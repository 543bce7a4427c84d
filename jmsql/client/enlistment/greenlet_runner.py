"""Running statements on an asynchronous connection, for code that SQLAlchemy runs in a greenlet."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy.util import await_only

from jmsql.store._async import runner as asynchronous
from jmsql.store._sync.runner import Runner
from jmsql.store.statement import Result

__all__ = ["GreenletRunner"]


class GreenletRunner(Runner):
    """Runs statements on an asynchronous psycopg connection.

    Args:
        connection: The connection; its row factory, cursor factory and adapters are left alone.
        schema: The plain name of the schema.
    """

    __slots__ = ("_connection", "_runner")

    def __init__(self, connection: psycopg.AsyncConnection[Any], schema: str) -> None:
        super().__init__(schema)
        self._connection = connection
        self._runner = asynchronous.PsycopgRunner(connection, schema)

    @property
    def is_idle(self) -> bool:
        return self._connection.pgconn.transaction_status == TransactionStatus.IDLE

    def execute(self, statement: bytes, parameters: Mapping[str, Any]) -> Result:
        return await_only(self._runner.execute(statement, parameters))

    def sleep(self, seconds: float) -> None:
        await_only(asyncio.sleep(seconds))
