"""Checks of the database before Spark reads or writes, and streams that have stopped."""

from __future__ import annotations

from typing import NamedTuple

from jmsql import JMSException, JMSSecurityException
from jmsql.extension.connections import check_version
from jmsql.extension.statements import Runner, SqlFile, first_value, nothing, records, rows

_UNDEFINED_TABLE = "42P01"

_sql = SqlFile("database", "jmsql.spark")
_version = _sql.statement("version", "looking at the schema", first_value)
allow_idleness = _sql.statement("unlimited_idleness", "keeping a transaction open", nothing).bind()
"""Lets the transaction idle and last without a limit."""

_rights = _sql.statement("rights", "looking at the rights of the role", rows)


def check_database(runner: Runner) -> None:
    """Make sure that the schema is there, and of the right version.

    Raises:
        JMSException: The schema is missing, or of another version; the error says how to mend that.
    """
    version = None
    try:
        version = runner.run(_version.bind())
    except JMSException as error:
        if error.error_code != _UNDEFINED_TABLE:
            raise
    check_version(version, runner.schema)


def check_rights(runner: Runner) -> None:
    """Make sure that this role has the rights for Spark's streams and writes, on this server.

    Raises:
        JMSSecurityException: It may not.
        JMSException: The server is a hot standby.
    """
    [(allowed, role, is_standby)] = runner.run(_rights.bind())
    if is_standby:
        raise JMSException(
            "The server is a hot standby, from which batch reads alone are possible. Name the primary in option "
            "'connection' or 'url'."
        )
    if not allowed:
        raise JMSSecurityException(
            f"The role {role!r} lacks the right to administer the schema {runner.schema!r}. Streams and writes of "
            "Spark need it: they pass through tables that all destinations share. The owner of the schema has it, and "
            "so has the role jmsql_admin of `jmsql roles create`.",
            "42501",
        )


class WaitingStream(NamedTuple):
    """A streaming read that has stopped, and that keeps messages, or all history after its place."""

    source_id: str
    destination: str | None
    claimed: int
    seconds: float


waiting_streams = _sql.statement("waiting_streams", "examining the server", records(WaitingStream._make))
"""The streaming reads that have not gone on for so many seconds and keep something."""
