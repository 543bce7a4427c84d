"""Quoting names in SQL, and writing SQL that names the schema `jmsql` for a schema of another name."""

from __future__ import annotations

import re

_NAME = re.compile(
    r"""
    (?<![\w.'"$])jmsql(?:_internal)?(?=\.[a-z_*%"])          # in front of a name, also of one that format() writes
    | (?<=\bschema\ )jmsql(?:_internal)?\b                    # behind the word
    | (?:(?<=')(?=\w+(?:\.\w+)?'::(?:pg_catalog\.)?reg) | (?<=to_regclass\(') | (?<=to_regnamespace\('))
      (?P<literal>jmsql(?:_internal)?)\b                     # in a literal that is looked up
    """,
    re.VERBOSE,
)


def quote_identifier(name: str) -> str:
    """Write `name` as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def internal_schema(schema: str) -> str:
    """Return the name of the schema that holds the tables and functions behind the contract of `schema`."""
    return f"{schema}_internal"


def in_schema(text: str, schema: str) -> str:
    """Return SQL that is written for the schemas `jmsql` and `jmsql_internal`, for `schema` and its internals.

    SQL files write `jmsql.queues` and `jmsql_internal.message`, so that editors and people can read them, also in the
    texts that functions execute. A schema alone stands behind the word `schema`, or as `'jmsql'::regnamespace`. Other
    text directly behind a quote, such as the name of a setting, stays as it is.
    """
    names = {"jmsql": quote_identifier(schema), "jmsql_internal": quote_identifier(internal_schema(schema))}
    return _NAME.sub(lambda found: names[found[0]].replace("'", "''") if found["literal"] else names[found[0]], text)
