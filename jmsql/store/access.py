"""Who may send to a destination, receive from it, and browse it: a thin cover of the SQL functions that see to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from jmsql.destinations import Destination, Topic
from jmsql.store.autocommit_connection import AutocommitConnection
from jmsql.store.errors import jms_errors
from jmsql.store.identifier import Schema

__all__ = ["Access", "AccessSummary", "Action"]

Action = Literal["send", "receive", "browse"]


class AccessSummary(NamedTuple):
    """A row of the view ``grants``; without a destination, it is about all of them."""

    kind: str | None
    destination: str | None
    role: str
    send: bool
    receive: bool
    browse: bool
    administer: bool


class Access:
    """Gives roles access to destinations, and takes it back.

    Args:
        connection: Where each change commits.
        schema: The name of the schema.
    """

    def __init__(self, connection: AutocommitConnection, schema: str) -> None:
        self._connection = connection
        self._schema = Schema(schema)

    def grant(self, destination: Destination, role: str, actions: Sequence[Action]) -> None:
        """Let a role do something with a destination."""
        self._change("grant_access", destination, role, actions)

    def revoke(self, destination: Destination, role: str, actions: Sequence[Action]) -> None:
        """Let a role do something with a destination no more."""
        self._change("revoke_access", destination, role, actions)

    def _change(self, function: str, destination: Destination, role: str, actions: Sequence[Action]) -> None:
        statement = f"select {self._schema}.{function}(%(destination)s, %(role)s, variadic %(actions)s::text[])"
        with jms_errors(f"changing the access to {destination}"):
            self._connection.rows(statement, destination=destination.uri, role=role, actions=list(actions))

    def create_roles(self) -> list[str]:
        """Make the roles that have access to all destinations, and return those that were not there."""
        with jms_errors("making roles"):
            return [row[0] for row in self._connection.rows(f"select {self._schema}.create_roles()")]

    def summaries(self, destination: Destination | None = None) -> list[AccessSummary]:
        """Return who has access to a destination, or to all and each of them, by destination and role."""
        columns = ", ".join(AccessSummary._fields)
        condition, parameters = "", {}
        if destination is not None:
            condition = "where kind = %(kind)s and destination = %(name)s"
            parameters = {"kind": "topic" if isinstance(destination, Topic) else "queue", "name": destination.name}
        statement = (
            f"select {columns} from {self._schema}.grants {condition} order by destination nulls first, kind, role"
        )
        with jms_errors("looking at who has access"):
            return [AccessSummary._make(row) for row in self._connection.rows(statement, **parameters)]
