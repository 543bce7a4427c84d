"""Where administered objects are kept under their names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jmsql.store.autocommit_connection import AutocommitConnection
from jmsql.store.errors import jms_errors
from jmsql.store.identifier import Schema

__all__ = ["Bindings"]


class Bindings:
    """The administered objects of a schema, as JSON, by name.

    Args:
        connection: Where each change commits.
        schema: The name of the schema.
    """

    def __init__(self, connection: AutocommitConnection, schema: str) -> None:
        self._connection = connection
        self._table = f"{Schema(schema).internal}.binding"

    def bind(self, name: str, document: Mapping[str, Any]) -> None:
        """Keep an object under a name, instead of what was there."""
        statement = f"""
            insert into {self._table} as b (name, object) values (%(name)s, %(object)s::jsonb)
            on conflict (name) do update set object = excluded.object, bound_at = now()"""
        with jms_errors(f"binding {name!r}"):
            self._connection.rows(statement, name=name, object=json.dumps(document))

    def unbind(self, name: str) -> bool:
        """Forget an object, and return whether it was there."""
        with jms_errors(f"unbinding {name!r}"):
            statement = f"delete from {self._table} where name = %(name)s returning name"
            return bool(self._connection.rows(statement, name=name))

    def find(self, name: str) -> dict[str, Any] | None:
        """Return what is kept under a name, or None."""
        with jms_errors(f"looking up {name!r}"):
            rows = self._connection.rows(f"select object from {self._table} where name = %(name)s", name=name)
        return rows[0][0] if rows else None

    def all(self) -> dict[str, dict[str, Any]]:
        """Return all that is kept, by name."""
        with jms_errors("looking at the bindings"):
            return dict(self._connection.rows(f"select name, object from {self._table} order by name"))
