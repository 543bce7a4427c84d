"""The version of the schema: which one is there, and whether this release works with it."""

from __future__ import annotations

import importlib.resources
import re
import shlex
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path

from jmsql.exceptions import JMSException
from jmsql.store.identifier import internal_schema, quote_identifier
from jmsql.store.statement import SqlFile, Steps, first_value, optional_value

DEFAULT_SCHEMA = "jmsql"
VERSION_TABLE = "schema_version"

COMMAND = re.compile(r"""`(jmsql (?:'[^']*'|"[^"]*"|[^`'"])*)`""")
"""A command of jmsql in backticks. Its words in quotes, such as a queue's name, may have backticks themselves."""
_LONGEST_NAME = 63 - len(internal_schema(""))
"""The longest name of a schema in bytes: PostgreSQL truncates names, and the internal schema's is longer."""
_UNFIT = set("'$%{}")
"""Migrations write the name into functions, where it stands in literals too."""

_sql = SqlFile("server")
_has_schema = _sql.statement("has_schema", "looking at the schema", first_value)
_version = _sql.statement("version", "looking at the schema", optional_value(str))
_schema_in_functions = _sql.statement("schema_in_functions", "looking at the schema", optional_value(str))


@cache
def migrations_directory() -> Traversable:
    """Return the directory of the migrations, which may be in a ZIP archive: Spark brings packages along so."""
    installed = importlib.resources.files("jmsql").joinpath("migrations")
    return installed if installed.is_dir() else Path(__file__).resolve().parents[3] / "migrations"


@cache
def newest_version() -> str:
    """Return the version of the schema that this release works with: the number of its newest migration."""
    names = (path.name for path in migrations_directory().joinpath("versions").iterdir())
    return max((name.partition("_")[0] for name in names if name[0].isdigit()), key=int)


def check_name(schema: str) -> None:
    """Make sure that a schema of jmsql's can have a name.

    Raises:
        JMSException: It cannot; the message says which names are possible.
    """
    given: object = schema
    try:
        length = len(given.encode()) if isinstance(given, str) else 0
    except UnicodeEncodeError:  # half a surrogate pair, as of a byte of the command line that is no text
        length = 0
    if not 0 < length <= _LONGEST_NAME or (_UNFIT | {"\0"}) & set(schema):
        raise JMSException(
            f"The schema cannot be named {given!r}: choose a name of 1 to {_LONGEST_NAME} bytes without any of "
            f"{' '.join(sorted(_UNFIT))}"
        )


def check_own(schema: str) -> None:
    """Make sure that a schema that is to be made would be jmsql's own.

    Raises:
        JMSException: It is PostgreSQL's, or everybody's.
    """
    if schema in {"public", "information_schema"} or schema.startswith("pg_"):
        of = "of an application's own tables" if schema == "public" else "of PostgreSQL"
        raise JMSException(
            f"The schema cannot be {schema!r}, which is that {of}: what jmsql makes, grants and drops stays apart from "
            f"it. Choose another name, such as {DEFAULT_SCHEMA}."
        )


def current_version(schema: str = DEFAULT_SCHEMA) -> Steps[str | None]:
    """Return the version of the schema in the database, or None if the schema is not there.

    Raises:
        JMSException: It was renamed, so that its functions find nothing.
    """
    if not (yield from _has_schema.bind(table=f"{quote_identifier(schema)}.{VERSION_TABLE}")):
        return None
    check_not_renamed((yield from _schema_in_functions.bind()), schema)
    return (yield from _version.bind())


def check_not_renamed(in_functions: str | None, schema: str) -> None:
    """Make sure that functions look for their tables in the schema that they are in.

    Args:
        in_functions: The internal schema that they name, as an identifier; None: there are none.
        schema: The schema.

    Raises:
        JMSException: They do not; the error says how to mend that.
    """
    former = _former_name(in_functions, schema)
    if former is not None:
        raise JMSException(f"The schema {schema!r} was {former!r} before: {rename_back(schema, former)}.", "3F000")


def former_name(schema: str) -> Steps[str | None]:
    """Return the name with which a schema was made, if it was renamed since."""
    return _former_name((yield from _schema_in_functions.bind()), schema)


def _former_name(in_functions: str | None, schema: str) -> str | None:
    if in_functions is None:
        return None
    is_quoted = in_functions.startswith('"')
    name = in_functions[1:-1].replace('""', '"') if is_quoted else in_functions
    return None if name == internal_schema(schema) else name.removesuffix(internal_schema(""))


def rename_back(schema: str, former: str) -> str:
    """Return what to do about a schema that was renamed, for errors and advice."""
    commands = (
        f"`alter schema {quote_identifier(now)} rename to {quote_identifier(then)}`"
        for now, then in ((schema, former), (internal_schema(schema), internal_schema(former)))
    )
    return f"its functions look for that name, so rename it back with {' and '.join(commands)}"


def migrate_command(schema: str) -> str:
    """Return the command that makes the schema or brings it up to date, for advice."""
    return "`jmsql migrate`" if schema == DEFAULT_SCHEMA else f"`jmsql migrate --schema {shlex.quote(schema)}`"


def with_place(text: str, schema: str, url: str | None = None) -> str:
    """Return advice, each command of jmsql in backticks with the options that name the database and the schema.

    Args:
        text: The advice.
        schema: The schema.
        url: The URL of the database, without a password; None: the reader's commands find it.
    """
    given = {"--url": url, "--schema": None if schema == DEFAULT_SCHEMA else schema}

    def completed(found: re.Match[str]) -> str:
        options = (
            f" {option} {shlex.quote(value)}"
            for option, value in given.items()
            if value is not None and option not in found[1].split()
        )
        return f"`{found[1]}{''.join(options)}`"

    return COMMAND.sub(completed, text)


def check_schema(schema: str = DEFAULT_SCHEMA) -> Steps[None]:
    """Make sure that the schema is there and of a version that this release works with.

    Raises:
        JMSException: It is not; the error says how to mend that.
    """
    check_version((yield from current_version(schema)), schema)


def check_version(found: str | None, schema: str) -> None:
    """Make sure that this release works with a version of the schema, None if it is not there.

    It does with its own, the one before and the one after, so that processes of two releases run side by side.

    Raises:
        JMSException: It does not; the error says how to mend that.
    """
    if found is None:
        raise JMSException(
            f"The database has no schema {schema!r}: run {migrate_command(schema)}, or jmsql.migrate(), to make it.",
            "3F000",
        )
    number, newest = int(found), int(newest_version())
    if max(newest - 1, 1) <= number <= newest + 1:
        return
    if number < newest:
        advice = f"run {migrate_command(schema)}, or jmsql.migrate(), to bring it up to date"
    else:
        advice = "it was made by a newer release: upgrade jmsql"
    raise JMSException(
        f"The schema {schema!r} has version {found}, and this release works with version {newest_version()}: {advice}.",
        "3F000",
    )
