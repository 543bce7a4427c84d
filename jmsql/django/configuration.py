"""The settings of a project: the database and schema of the messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections
from django.utils.connection import ConnectionDoesNotExist
from django.utils.module_loading import import_string
from psycopg import pq

from jmsql.client._sync.connection.factory import ConnectionFactory
from jmsql.store.connections.database_url import DatabaseUrl
from jmsql.store.schema.version import DEFAULT_SCHEMA

if TYPE_CHECKING:
    from jmsql.worker.handlers.dead_letters import DeadLetterHook
    from jmsql.worker.handlers.listener import Around


def database_alias() -> str:
    """Return which of `DATABASES` has the messages: the setting `JMSQL_DATABASE`."""
    return cast("str", getattr(settings, "JMSQL_DATABASE", DEFAULT_DB_ALIAS))


def schema_name() -> str:
    """Return the schema of jmsql's tables: the setting `JMSQL_SCHEMA`.

    Raises:
        ImproperlyConfigured: That is no text.
    """
    name = getattr(settings, "JMSQL_SCHEMA", DEFAULT_SCHEMA)
    if not isinstance(name, str):
        raise ImproperlyConfigured(f"The setting JMSQL_SCHEMA is {name!r}, and is to be the name of a schema.")
    return name


def around_of_settings() -> Around | None:
    """Return the function around each call of a handler, from the setting `JMSQL_AROUND`; None: nothing.

    Raises:
        ImproperlyConfigured: There is nothing of that name.
    """
    return cast("Around | None", _of_settings("JMSQL_AROUND", "a context manager"))


def dead_letter_hook_of_settings() -> DeadLetterHook | None:
    """Return the function to call with dead letters, from the setting `JMSQL_ON_DEAD_LETTER`, if any.

    Raises:
        ImproperlyConfigured: There is nothing of that name.
    """
    return cast("DeadLetterHook | None", _of_settings("JMSQL_ON_DEAD_LETTER", "a function"))


def _of_settings(name: str, kind: str) -> object:
    """Import the object that a setting names; None: there is no such setting."""
    path = getattr(settings, name, None)
    if path is None:
        return None
    try:
        found: object = import_string(path)
    except (ImportError, TypeError, AttributeError) as error:
        raise ImproperlyConfigured(
            f"The setting {name} is {path!r}, and is to be the dotted path of {kind}: {error}."
        ) from error
    return found


def require_psycopg(alias: str) -> Any:
    """Return Django's connection of an alias.

    Raises:
        ImproperlyConfigured: There is none, or it is no connection to PostgreSQL, or not by psycopg 3.
    """
    try:
        connection = connections[alias]
    except ConnectionDoesNotExist as error:
        raise ImproperlyConfigured(
            f"The setting JMSQL_DATABASE is {alias!r}, and DATABASES has {', '.join(map(repr, connections))}."
        ) from error
    if connection.vendor != "postgresql":
        raise ImproperlyConfigured(
            f"jmsql keeps its messages in PostgreSQL, and DATABASES[{alias!r}] is {connection.display_name}. "
            "JMSQL_DATABASE names another."
        )
    if connection.Database.__name__ != "psycopg":
        raise ImproperlyConfigured(
            "jmsql needs psycopg 3, and Django has found psycopg2: pip install 'psycopg[binary]'."
        )
    return connection


def connection_factory() -> ConnectionFactory:
    """Return a factory for the database of the settings, as it is now: tests have another.

    Raises:
        ImproperlyConfigured: That is no PostgreSQL, or not by psycopg 3.
    """
    return ConnectionFactory(_url(require_psycopg(database_alias())).text(), schema=schema_name())


def _url(connection: Any) -> DatabaseUrl:
    """Return where a connection of Django's leads, with all of its parameters that are libpq's."""
    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()} - {"client_encoding"}
    given: dict[str, Any] = connection.get_connection_params()
    parameters = {name: str(value) for name, value in given.items() if name in known and value is not None}
    role = connection.settings_dict["OPTIONS"].get("assume_role")
    if role:
        escaped = str(role).replace("\\", "\\\\").replace(" ", "\\ ")
        parameters["options"] = f"{parameters.get('options', '')} -c role={escaped}".strip()
    return DatabaseUrl(
        username=parameters.pop("user", None),
        password=parameters.pop("password", None),
        database=parameters.pop("dbname", None),
        query=parameters,
    )
