"""Names in SQL."""

from __future__ import annotations

import re

__all__ = ["in_schema", "internal_schema", "quote_identifier"]

_QUALIFIER = re.compile(r"""(?<![\w.'"$])jmsql(_internal)?(?=\.[a-z_*])""")
_REGCLASS = re.compile(r"(?<=')jmsql(_internal)?(?=\.[a-z_]+'::regclass)")


def quote_identifier(name: str) -> str:
    """Write `name` as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def internal_schema(schema: str) -> str:
    """Return the name of the schema that holds the tables and functions behind the contract of `schema`."""
    return f"{schema}_internal"


def in_schema(text: str, schema: str) -> str:
    """Return SQL that is written for the schemas `jmsql` and `jmsql_internal`, for `schema` and its internals.

    SQL files write `jmsql.queues` and `jmsql_internal.message`, so that editors and people can read them. What stands
    directly behind a quote, as the name of a setting does, stays as it is, but for `'jmsql.queues'::regclass`.

    Args:
        text: The SQL.
        schema: The plain name of the schema.
    """
    names = {None: quote_identifier(schema), "_internal": quote_identifier(internal_schema(schema))}
    text = _QUALIFIER.sub(lambda found: names[found[1]], text)
    return _REGCLASS.sub(lambda found: names[found[1]].replace("'", "''"), text)
