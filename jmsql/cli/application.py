"""The command as a whole: its subcommands, its exit codes, how it reports errors, and how a signal ends it."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from jmsql.cli.advice import advice, advising
from jmsql.cli.commands import COMMANDS, load_command
from jmsql.cli.help import explain_plainly
from jmsql.cli.options import GlobalSchema, GlobalUrl
from jmsql.cli.parameters import convert_only_what_needs_it
from jmsql.cli.streams import BROKEN_PIPE, discard_output, end_after, prepare_streams
from jmsql.exceptions import InvalidSelectorException, JMSException

USAGE_ERROR = 2
JMS_ERROR = 3


class Commands(typer.core.TyperGroup):
    """The subcommands: one is loaded when it is called. They report JMS errors in a line, not a traceback."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, listed in COMMANDS.items():
            self.add_command(typer.core.TyperCommand(name, help=listed.summary))
        convert_only_what_needs_it(self)
        explain_plainly(self)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, listed, rest = super().resolve_command(ctx, args)
        return name, None if listed is None else load_command(listed.name), rest

    def invoke(self, ctx: Any) -> Any:
        with advising(ctx):
            return self._invoke(ctx)

    def _invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except JMSException as error:
            _report(error, verbose=ctx.params["verbose"])
            raise typer.Exit(USAGE_ERROR if isinstance(error, InvalidSelectorException) else JMS_ERROR) from error
        except BrokenPipeError as error:
            # The process that read the output has gone. Typer would exit with 1.
            discard_output()
            raise typer.Exit(BROKEN_PIPE) from error
        return result


def _report(error: BaseException, *, verbose: bool) -> None:
    typer.echo(f"jmsql: {advice(str(error))}", err=True)
    cause = error.__cause__
    while verbose and cause is not None:
        typer.echo(f"  caused by {type(cause).__module__}.{type(cause).__qualname__}: {str(cause).strip()}", err=True)
        cause = cause.__cause__


def _show_version(wanted: bool) -> None:
    if wanted:
        from jmsql import __version__

        typer.echo(f"jmsql {__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def jmsql(
    version: Annotated[  # noqa: ARG001 - its callback has done it all
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the log, and the causes of errors.")] = False,
    url: GlobalUrl = None,  # noqa: ARG001 - its callback has noted it
    schema: GlobalSchema = None,  # noqa: ARG001 - so has this one's
) -> None:
    """Inspect and manage the messages of jmsql, a JMS provider inside PostgreSQL.

    The database is the one that --url or the environment variable JMSQL_URL names, else the embedded server, unless
    JMSQL_EMBEDDED is off. --url and --schema may stand before the subcommand or after it. A password
    comes from JMSQL_URL, PGPASSWORD or ~/.pgpass, and does not belong on a command line, which all users can read.

    Environment variables: JMSQL_URL and JMSQL_SCHEMA stand for --url and --schema; JMSQL_CONTROL_URL leads past a
    pooler; JAVA_HOME is the Java of `archive` and `statistics`; libpq's (PGPASSWORD, PGSSLMODE, ...) apply.

    Exit codes: 0 done; 1 nothing found, not healthy, or not confirmed; 2 wrong usage, or an error in a selector;
    3 PostgreSQL or jmsql refused; 74 the output cannot be written; 130 interrupted; 141 its reader has ended.
    """
    if verbose:
        logging.getLogger().setLevel(logging.INFO)


def run(arguments: Sequence[str] | None = None, name: str = "jmsql") -> NoReturn:
    """Run the command, and exit.

    Args:
        arguments: The command line after the command; None: this process's.
        name: The command's name there.
    """
    prepare_streams()
    for stream in (sys.stdout, sys.stderr):
        # A name or a text may have characters that the locale's encoding lacks.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    logging.basicConfig(level=logging.WARNING, format="jmsql: %(message)s")
    # Where Ctrl-C interrupts a statement, the pool would show a traceback for the connection that it throws away.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    end_by_signals()
    try:
        try:
            app(args=arguments, prog_name=name)
        except SystemExit:
            sys.stdout.flush()
            raise
    except OSError as error:
        end_after(error)
    sys.exit()


_AGAIN_AFTER = 0.05
"""Seconds; code that swallowed the exception has returned by then."""


def end_by_signals() -> None:
    """Have SIGTERM end the process as Ctrl-C does: by an exception, so that files and connections are closed.

    The exception is raised wherever the main thread is. In a destructor, or in a callback of garbage collection, Python
    reports it and goes on. Then the signal is sent again.
    """
    signal.signal(signal.SIGTERM, _exit)
    sys.unraisablehook = _send_again


def _exit(number: int, _: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def _send_again(ignored: sys.UnraisableHookArgs) -> None:
    if issubclass(ignored.exc_type, SystemExit):
        number = signal.SIGTERM
    elif issubclass(ignored.exc_type, KeyboardInterrupt):
        number = signal.SIGINT
    else:
        sys.__unraisablehook__(ignored)
        return
    timer = threading.Timer(_AGAIN_AFTER, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()
