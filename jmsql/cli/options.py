"""The options that several commands have, and how their values are read."""

from __future__ import annotations

import getpass
import os
import re
import sys
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from jmsql.cli.advice import SCHEMA, URL
from jmsql.cli.output import working
from jmsql.exceptions import InvalidDestinationException, JMSException
from jmsql.values.destinations import Destination, require_destination
from jmsql.values.duration import seconds

# Connecting modules are imported where they are used: `--help` and a mistaken option need none of them.
if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsql.client._sync.administration.administration import Administration
    from jmsql.client._sync.connection.factory import ConnectionFactory
    from jmsql.client.results._sync.result import Result
    from jmsql.store.connections.database_url import Place


def _is_given(context: typer.Context, parameter: typer.CallbackParam) -> bool:
    """Tell whether an option stands on the command line."""
    source = context.get_parameter_source(parameter.name or "")
    return source is not None and source.name == "COMMANDLINE"


def _note_url(context: typer.Context, url: str | None) -> str | None:
    if url is not None:
        context.meta[URL] = url
    return url


def _database_url(context: typer.Context, parameter: typer.CallbackParam, url: str | None) -> str | None:
    from jmsql.store.connections.database_url import parse_url, url_in_environment

    if not _is_given(context, parameter):
        if URL not in context.meta:
            return url_in_environment(_URL_VARIABLE)
        url = context.meta[URL]
    if url is not None and parse_url(url).password is not None:
        raise typer.BadParameter(
            "All users of this machine can read a password on the command line. Put it in PGPASSWORD or ~/.pgpass, "
            "or the whole URL in JMSQL_URL."
        )
    return _note_url(context, url)


_URL_VARIABLE = "JMSQL_URL"

GlobalUrl = Annotated[
    str | None,
    typer.Option(
        "--url", callback=_note_url, metavar="postgresql://USER@HOST/DATABASE", help="Database URL; may follow COMMAND."
    ),
]


def _url_option(default: str) -> Any:
    return typer.Option(
        envvar=_URL_VARIABLE,
        show_envvar=True,
        callback=_database_url,
        metavar="postgresql://USER@HOST/DATABASE",
        help=f"Database URL. Default: {default}.",
    )


Url = Annotated[str | None, _url_option("the embedded server")]
WorkerUrl = Annotated[str | None, _url_option("the application's own factory, else the embedded server")]


def _note_schema(context: typer.Context, schema: str | None) -> str | None:
    if schema is not None:
        context.meta[SCHEMA] = schema
    return schema


def _schema(context: typer.Context, parameter: typer.CallbackParam, schema: str | None) -> str | None:
    if not _is_given(context, parameter):
        if os.environ.get(_SCHEMA_VARIABLE) == "":
            raise JMSException(
                f"The environment variable {_SCHEMA_VARIABLE} is empty. Set it to a schema, or unset it."
            )
        schema = context.meta.get(SCHEMA, schema)
    return _note_schema(context, schema)


_SCHEMA_VARIABLE = "JMSQL_SCHEMA"
GlobalSchema = Annotated[
    str | None, typer.Option("--schema", callback=_note_schema, metavar="NAME", help="Schema; may follow COMMAND.")
]


def _schema_option(*, show_default: bool) -> Any:
    return typer.Option(
        envvar=_SCHEMA_VARIABLE,
        show_envvar=True,
        callback=_schema,
        metavar="NAME",
        help="The schema of jmsql's tables.",
        show_default=show_default,
    )


Schema = Annotated[str, _schema_option(show_default=True)]
OptionalSchema = Annotated[str | None, _schema_option(show_default=False)]


def _check_pattern(pattern: str | None) -> str | None:
    from jmsql.store.administration.overview import require_pattern

    try:
        require_pattern(pattern)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return pattern


Pattern = Annotated[
    str | None,
    typer.Argument(
        callback=_check_pattern,
        metavar="[PATTERN]",
        help="Only names that match this LIKE pattern: 'orders.%'.",
        show_default=False,
    ),
]
Exact = Annotated[bool, typer.Option("--exact", help="Count all messages, which reads them.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DestinationName = Annotated[
    str,
    typer.Argument(metavar="DESTINATION", help="A queue's name, or queue://NAME or topic://NAME.", show_default=False),
]
Properties = Annotated[
    list[str] | None,
    typer.Option("--property", "-p", metavar="NAME[:TYPE]=VALUE", help="A property; a string, if no type is given."),
]
Priority = Annotated[int, typer.Option(min=0, max=9, help="0 (lowest) to 9.")]
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The name of the queue.", show_default=False)]
Selector = Annotated[
    str | None,
    typer.Option("--selector", "-s", metavar="SELECTOR", help="Only the messages that this JMS selector chooses."),
]


def _check_settings(given: list[str] | None) -> list[str]:
    for each in given or ():
        name, equals, _ = each.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{each!r} is not a setting: write KEY=VALUE.")
    return given or []


SparkSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--spark-conf",
        metavar="KEY=VALUE",
        callback=_check_settings,
        help="A setting of Spark's, such as spark.master or spark.jars.packages. May be repeated.",
    ),
]


def command_group(description: str) -> typer.Typer:
    """Return a group of subcommands, which its own subcommands are added to."""
    return typer.Typer(
        help=description,
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def confirm(question: str, *, yes: bool) -> None:
    """Ask whether to go on, unless --yes has answered already.

    Raises:
        typer.BadParameter: There is no terminal to ask on.
        typer.Abort: The answer is no.
    """
    if not yes:
        if not sys.stdin.isatty():
            raise typer.BadParameter("There is no terminal to ask on; say --yes.")
        typer.confirm(question, abort=True, err=True)


class DatabaseAddress(NamedTuple):
    """Where the command finds the messages."""

    url: str
    schema: str
    is_embedded: bool

    def __str__(self) -> str:
        return "the embedded server" if self.is_embedded else str(self.place)

    @property
    def place(self) -> Place:
        """Where the database is."""
        from jmsql.store.connections.database_url import parse_url

        return parse_url(self.url).place

    def factory(self) -> ConnectionFactory:
        """Return a factory of JMS connections to it."""
        from jmsql.client._sync.connection.factory import ConnectionFactory

        return ConnectionFactory(self.url, schema=self.schema)

    def administration(self) -> Administration:
        """Return an administration of it."""
        from jmsql.client._sync.administration.administration import Administration

        return Administration(self.url, schema=self.schema, actor=_user())

    def clock(self) -> Callable[[], datetime]:
        """Return a function that tells the server's time, which it asks for once, on a connection of its own."""

        @cache
        def now() -> datetime:
            from jmsql.client._sync.link.opening import open_runner
            from jmsql.store.administration.inspection import server_time

            with open_runner(self.url, self.schema) as runner:
                return runner.run(server_time)

        return now

    def newest(self) -> int:
        """Return the sequence of the last message sent to any queue, which it asks for on a connection of its own."""
        from jmsql.client._sync.link.opening import open_runner
        from jmsql.store.destinations.lookup import last_sequence

        with open_runner(self.url, self.schema) as runner:
            return runner.run(last_sequence)

    def result(self, message_id: str) -> Result:
        """Return the result of a message of it. A standby answers, too: no client is registered for the question."""
        from jmsql.client._sync.link.opening import open_runner
        from jmsql.client.results._sync.result import result

        with open_runner(self.url, self.schema) as runner:
            return result(runner.connection, message_id, schema=self.schema)


def _user() -> str | None:
    """Return the name of the user of the shell, for the activity."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have none
        return None


def open_database(url: str | None, schema: str) -> DatabaseAddress:
    """Return the database that the options name; the embedded server is started if they name none.

    Raises:
        ResourceAllocationException: There is no embedded server, or it does not start.
    """
    if url is not None:
        return DatabaseAddress(url, schema, is_embedded=False)
    from jmsql.embedded import start_server

    with working("Starting the embedded server ..."):
        return DatabaseAddress(start_server().url, schema, is_embedded=True)


def check_duration(parameter: typer.CallbackParam, value: float) -> float:
    """Refuse a value that is no duration, before anything is done."""
    try:
        return seconds(value, parameter.name or "")
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def check_optional_duration(parameter: typer.CallbackParam, value: float | None) -> float | None:
    """Refuse a given value that is no duration, before anything is done."""
    return None if value is None else check_duration(parameter, value)


def read_destination(text: str) -> Destination:
    """Read a destination; a bare name is a queue's.

    Raises:
        typer.BadParameter: It cannot be read.
    """
    try:
        return require_destination(text)
    except InvalidDestinationException as error:
        raise typer.BadParameter(str(error)) from error


def check_selector(text: str | None) -> None:
    """Refuse a selector that has an error, before anything is done.

    Raises:
        InvalidSelectorException: It has an error.
    """
    if text is not None:
        from jmsql.selectors import Selector

        Selector.parse(text)


def spark_settings(given: list[str] | None) -> dict[str, str]:
    """Return the settings of Spark by their names, as `SparkSettings` has read them."""
    pairs = (each.partition("=") for each in given or ())
    return {name.strip(): value for name, _, value in pairs}


def read_interval(text: str) -> timedelta:
    """Read an interval, as in 90s, 30min, 2h, 7d; a bare number is one of seconds.

    Raises:
        typer.BadParameter: It cannot be read.
    """
    found = _AGO.fullmatch(text.strip() if not text.strip().isdecimal() else f"{text.strip()}s")
    try:
        if found is not None:
            return timedelta(**{_UNITS[found[2]]: int(found[1])})
    except OverflowError:
        pass
    raise typer.BadParameter(f"{text!r} is not an interval; write 10s, 30min, 2h or 7d.")


_AGO = re.compile(r"(\d+)\s*(s|min|h|d)")
_UNITS = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days"}


def read_timestamp(text: str | None) -> datetime | None:
    """Read a date, a date with a time, or how long ago it was.

    Args:
        text: As in 2026-03-01, 2026-03-01T12:30, 2026-03-01T12:30:00+01:00, or 90s, 30min, 2h, 7d. Without a time zone,
            it is this computer's; in the hour that its clock repeats, the first.

    Raises:
        BadParameter: It is none of these.
    """
    if text is None:
        return None
    ago = _AGO.fullmatch(text.strip())
    try:
        if ago is not None:
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(
            f"{text!r} is not a time; write 2026-03-01, 2026-03-01T12:30, or how long ago, such as 30min, 2h or 7d."
        ) from error
