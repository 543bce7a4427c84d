"""What a client has to know of the server that it has connected to: asked once, in one statement."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from jmsql.exceptions import JMSException
from jmsql.store.runners._sync.runner import Runner
from jmsql.store.schema.version import check_schema, check_version
from jmsql.store.statement import SqlFile, rows

__all__ = ["Server", "look_at_server"]

_MISSING = {"3F000", "42P01", "42883"}
"""What PostgreSQL reports where the schema, a table or a function is not there."""

_FIRST_WITH_ANNOUNCED_WAITS = 2

_server = SqlFile("control").statement("server", "looking at the schema", rows)


class Server(NamedTuple):
    """The server, the database and the schema, as the role that has connected sees them."""

    version: str
    milliseconds: int
    """What time it was there, in milliseconds since the epoch."""
    is_restricted: bool
    """Whether policies hide destinations from the role."""
    may_ask_to_dequeue: bool
    """Whether the role may have the server dequeue a message for it; schema 0001 cannot."""
    announces_waits: bool
    """Whether clients announce there what their consumers wait for; in schema 0001 they do not."""
    dialect: tuple[Hashable, ...]
    """Which database it is, and what SQLAlchemy's dialect asks there on an engine's first connection."""

    @property
    def database(self) -> tuple[Hashable, ...]:
        """Which database it is, by `find_database`."""
        return self.dialect[:2]


def look_at_server(runner: Runner) -> Server:
    """Ask for what a client has to know, and make sure that the schema is there and of the right version.

    Args:
        runner: Runs statements on a new connection, in autocommit mode.

    Raises:
        JMSException: The schema is not; the message says what to do.
    """
    try:
        [(schema_version, version, milliseconds, is_restricted, may_ask_to_dequeue, *dialect)] = runner.run(
            _server.bind()
        )
    except JMSException as error:
        if error.error_code in _MISSING:
            runner.run(check_schema(runner.schema))
        raise
    check_version(schema_version, runner.schema)
    announces_waits = int(schema_version) >= _FIRST_WITH_ANNOUNCED_WAITS
    return Server(version, milliseconds, is_restricted, may_ask_to_dequeue, announces_waits, tuple(dialect))
