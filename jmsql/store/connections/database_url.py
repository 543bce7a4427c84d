"""Database URLs: reading them, and showing them without passwords.

They are read as SQLAlchemy reads them, which the URLs of engines are for, and without it: loading SQLAlchemy takes
longer than all that a command does. libpq's own parser reads others: to it a plus sign is no space, and a password has
no slash.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote

from jmsql.exceptions import JMSException

UNREADABLE = "The database URL cannot be read; write postgresql://user@host:port/database."
"""The URL is not quoted: a password may stand anywhere in an unreadable one."""

_POSTGRESQL = {"postgresql", "postgres", "postgresql+psycopg"}
_URL = re.compile(
    r"""
    (?P<scheme> [\w+]+ ) ://
    (?: (?P<username> [^:/]* ) (?: : (?P<password> [^@]* ) )? @ )?
    (?: \[ (?P<address> [^/?]+ ) \] | (?P<name> [^/:?]+ ) )?
    (?: : (?P<port> [^/?]* ) )?
    (?: / (?P<database> [^?]* ) )?
    (?: \? (?P<query> .* ) )?
    """,
    re.VERBOSE,
)

_SERVER = re.compile(r"(?: \[ (?P<address> [^]]+ ) \] | (?P<name> [^]:[]+ ) ) (?: : (?P<port> \d+ ) )?", re.VERBOSE)
"""One of several servers in a URL."""


class Place(NamedTuple):
    """Where a database is, in words for people: nothing in it is a secret.

    Args:
        host: The server's host, with its port where that is not 5432, or the directory of its socket.
        database: The name of the database.
    """

    host: str
    database: str

    def __str__(self) -> str:
        return f"database {self.database!r} on {self.host}"


class DatabaseUrl(NamedTuple):
    """A URL of a PostgreSQL database. Its representation shows no password."""

    username: str | None = None
    password: str | None = None
    host: str | None = None
    port: int | None = None
    database: str | None = None
    query: Mapping[str, str | tuple[str, ...]] = {}
    """The parameters of libpq and psycopg; a tuple for a repeated one."""

    def with_parameters(self, parameters: Mapping[str, str]) -> DatabaseUrl:
        """Return the URL with other values for parameters."""
        return self._replace(query={**self.query, **parameters})

    def without_parameters(self, *names: str) -> DatabaseUrl:
        """Return the URL without parameters."""
        return self._replace(query={name: value for name, value in self.query.items() if name not in names})

    def text(self) -> str:
        """Return the URL as libpq reads it, with the password."""
        return self.written(quote(self.password or "", safe=""))

    @property
    def place(self) -> Place:
        """The place of the database for libpq: the environment completes the URL."""
        from psycopg import pq

        options = [*pq.Conninfo.get_defaults(), *pq.Conninfo.parse(self.text().encode())]
        known = {option.keyword.decode(): option.val.decode() for option in options if option.val}
        several = self.query.get("host")
        host = ",".join(several) if isinstance(several, tuple) else known.get("host") or known.get("hostaddr")
        service = known.get("service")
        database = known.get("dbname") or service or known.get("user", "")
        if host is None:
            return Place("a local socket" if service is None else f"service {service}", database)
        shows_port = known["port"] != "5432" and not host.startswith(("/", "@")) and "," not in host
        return Place(f"{host}:{known['port']}" if shows_port else host, database)

    def __repr__(self) -> str:
        return without_secrets(self)

    def written(self, password: str) -> str:
        """Return the URL as libpq reads it, with a text in place of the password, if it has one."""
        credentials = quote(self.username or "", safe="")
        if self.password is not None:
            credentials += f":{password}"
        if self.username is not None or self.password is not None:
            credentials += "@"
        host = self.host or ""
        if ":" in host:
            host = f"[{host}]"
        port = "" if self.port is None else f":{self.port}"
        database = "" if self.database is None else f"/{quote(self.database)}"
        parameters = "&".join(
            f"{quote(name, safe='')}={quote(value, safe=',')}"
            for name, given in sorted(self.query.items())
            for value in ((given,) if isinstance(given, str) else given)
        )
        return f"postgresql://{credentials}{host}{port}{database}{'?' if parameters else ''}{parameters}"


def parse_url(url: str, user: str | None = None, password: str | None = None) -> DatabaseUrl:
    """Read a database URL, with the user and password put in if they are given.

    The role and its password replace those in the URL.

    Raises:
        JMSException: The text is no URL of a PostgreSQL database. The message never shows a password.
    """
    given: object = url
    if given == "":
        raise JMSException("The database URL is empty; write postgresql://user@host:port/database.")
    found = _URL.match(given) if isinstance(given, str) else None
    if found is None:
        raise JMSException(UNREADABLE)
    host, port, servers = found["name"] or found["address"], None, _several_servers(found)
    if servers:
        host = None
    elif found["port"] is not None:
        try:
            port = int(found["port"])
        except ValueError:
            raise JMSException(UNREADABLE) from None  # not chained, since it quotes a possible password
    if found["scheme"] not in _POSTGRESQL:
        raise JMSException(f"jmsql needs a PostgreSQL database: write postgresql://…, not {found['scheme']}://….")
    query: dict[str, str | tuple[str, ...]] = {**servers}
    for name, value in parse_qsl(found["query"] or ""):
        former = query.get(name, ())
        query[name] = value if former == () else (*((former,) if isinstance(former, str) else former), value)
    parsed = DatabaseUrl(
        _unquoted(found["username"]),
        _unquoted(found["password"]),
        host,
        port,
        _unquoted(found["database"]),
        query,
    )
    parsed = _credentials_in_front(parsed)
    return parsed if user is None else parsed._replace(username=user, password=password)


def url_in_environment(variable: str) -> str | None:
    """Return the URL that an environment variable has; None if it is not set.

    Raises:
        JMSException: It is set and empty, as where a secret is missing.
    """
    url = os.environ.get(variable)
    if url == "":
        raise JMSException(
            f"The environment variable {variable} is empty. Set it to the URL of a database, or unset it."
        )
    return url


def place_of(url: str | None) -> str:
    """Say where the database is of a factory with a URL, or with none.

    Raises:
        JMSException: The URL cannot be read, or the environment variable is empty.
    """
    found = url_in_environment("JMSQL_URL") if url is None else url
    return "the embedded server" if found is None else str(parse_url(found).place)


def without_secrets(url: DatabaseUrl) -> str:
    """Return a URL as text that may be shown and logged."""
    return url.without_parameters("sslpassword").written("***")


def _several_servers(found: re.Match[str]) -> dict[str, str]:
    """Return libpq's parameters for ``one:5432,two:5432``, and none where that is not written.

    It is how PostgreSQL's documentation writes several servers. SQLAlchemy does not read it, and takes
    ``?host=one:5432&host=two:5432``, as does jmsql.
    """
    address, port = found["address"], found["port"] or ""
    if "," not in port and "]" not in (address or ""):
        return {}
    first = found["name"] if address is None else f"[{address}]"
    servers = [_SERVER.fullmatch(server) for server in f"{first}:{port}".split(",")]
    known = [server for server in servers if server is not None]
    if len(known) < len(servers):
        return {}
    return {
        "host": ",".join(server["name"] or server["address"] for server in known),
        "port": ",".join(server["port"] or "" for server in known),
    }


def _unquoted(text: str | None) -> str | None:
    return None if text is None else unquote(text)


def _credentials_in_front(url: DatabaseUrl) -> DatabaseUrl:
    """Move user and password, if they are parameters, to where they are hidden and can be replaced."""
    user, password = url.query.get("user"), url.query.get("password")
    if isinstance(user, str):
        url = url.without_parameters("user")._replace(username=user)
    if isinstance(password, str):
        url = url.without_parameters("password")._replace(password=password)
    return url
