"""Where the demo works."""

from __future__ import annotations

from typing import NamedTuple

import sqlalchemy
from sqlalchemy import Engine
from sqlalchemy.exc import ArgumentError

import jmsql

__all__ = ["DemoDatabase"]


class DemoDatabase(NamedTuple):
    """The database of the demo: its own tables are there, and its messages.

    Args:
        url: The database.
        schema: The schema of jmsql's tables.
    """

    url: str
    schema: str

    def open_engine(self) -> Engine:
        """Return what makes connections for the application's own SQL; nothing is connected yet.

        Raises:
            JMSException: The URL cannot be read. The message shows nothing of it, as it may hold a password.
        """
        try:
            url = sqlalchemy.make_url(self.url).set(drivername="postgresql+psycopg")
        except (ArgumentError, ValueError):
            raise jmsql.JMSException(
                "The database URL cannot be read; write postgresql://user@host/database."
            ) from None
        return sqlalchemy.create_engine(url, hide_parameters=True, isolation_level="READ COMMITTED")

    def factory(self) -> jmsql.ConnectionFactory:
        """Return what makes JMS connections to it."""
        return jmsql.ConnectionFactory(self.url, schema=self.schema)

    def administration(self) -> jmsql.admin.Administration:
        """Connect to look after its queues and subscriptions."""
        return jmsql.admin.Administration(self.url, schema=self.schema)
