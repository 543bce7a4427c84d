"""`manage.py jmsql`: the command `jmsql` with the database of the settings."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from jmsql.django.configuration import connection_factory

_WORKER = "jmsql.django.worker:app"
_NAME = "manage.py jmsql"


class Command(BaseCommand):
    """Runs the command `jmsql` with the database and the schema of the settings."""

    help = (
        "Runs the command jmsql with the database of the settings: `manage.py jmsql worker` handles messages with the "
        "listeners of the installed apps, `manage.py jmsql doctor` examines the database. `manage.py jmsql commands` "
        "lists all that it can do."
    )
    requires_system_checks: tuple[str, ...] = ()  # it has to run with a broken database, to mend it

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("command", help="A subcommand of jmsql, such as worker, doctor, top, queues or retry.")
        parser.add_argument("arguments", nargs=argparse.REMAINDER, help="What follows after it.")

    def handle(self, *_: Any, command: str, arguments: list[str], **__: Any) -> None:
        try:
            from jmsql.cli.application import app, run
        except ImportError as error:
            if (error.name or "").partition(".")[0] not in {"typer", "rich"}:
                raise
            raise CommandError(
                "The command needs packages that are not installed: pip install 'jmsql[worker]'"
            ) from error
        try:
            factory = connection_factory()
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from error
        assert factory.url is not None
        # In the environment, which others cannot read, and where the processes of a worker find it.
        added = {
            "JMSQL_URL": factory.url,
            "JMSQL_SCHEMA": factory.schema,
            "PYTHONPATH": os.pathsep.join(filter(None, [sys.path[0], os.environ.get("PYTHONPATH")])),
        }
        words = ["--help"] if command == "commands" else [command, *arguments]
        if command == "worker":
            words.insert(1, _WORKER)
        if getattr(self, "_called_from_command_line", False):
            os.environ.update(added)
            run(words, _NAME)
        former = os.environ.copy()
        os.environ.update(added)
        try:
            # The signals and the logging of the process are another program's, and perhaps this is not its main thread.
            app(args=words, prog_name=_NAME)
        except SystemExit as ended:
            if ended.code:
                raise CommandError(f"jmsql {command} has ended with {ended.code}.", returncode=ended.code) from ended
        finally:
            for name in added:
                if name in former:
                    os.environ[name] = former[name]
                else:
                    del os.environ[name]
