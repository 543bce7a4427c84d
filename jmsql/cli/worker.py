"""`jmsql worker`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from jmsql.cli.options import OptionalSchema, WorkerUrl, check_duration
from jmsql.cli.output import print_json, print_table, table
from jmsql.logs import contained_logger
from jmsql.store.destinations.subscriptions import SubscriptionChange
from jmsql.values.policies import DEFAULT_DEAD_LETTER_QUEUE
from jmsql.worker.loading import RefusalError, split_reference
from jmsql.worker.logs import LogFormat, LogLevel, start_log
from jmsql.worker.metrics import are_available, exposition
from jmsql.worker.settings import Settings
from jmsql.worker.supervisor import SourceFiles, Supervisor
from jmsql.worker.timings import WorkerTimings

_USAGE_ERROR = 2
_NUMBER = re.compile(r"-?[0-9]*\.?[0-9]+")

logger = contained_logger("jmsql.worker")


def _check_reference(reference: str) -> str:
    """Refuse a mistaken form before a process starts and imports."""
    try:
        split_reference(reference)
    except RefusalError as error:
        raise typer.BadParameter(str(error)) from error
    return reference


def worker(
    application: Annotated[
        str,
        typer.Argument(
            callback=_check_reference,
            metavar="MODULE:NAME",
            help="Where the jmsql.worker.Application is.",
            show_default=False,
        ),
    ],
    concurrency: Annotated[
        int,
        typer.Option(
            "--concurrency", "-c", min=1, help="How many messages each listener of a process handles at a time."
        ),
    ] = 1,
    processes: Annotated[int, typer.Option("--processes", "-p", min=1, help="The number of processes.")] = 1,
    max_messages: Annotated[
        int | None,
        typer.Option(min=1, help="Replace a process once it has received so many messages.", show_default=False),
    ] = None,
    max_memory: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="MIB", help="Replace a process once it has so many MiB of memory.", show_default=False
        ),
    ] = None,
    drain_timeout: Annotated[
        float,
        typer.Option(
            callback=check_duration, metavar="SECONDS", help="How long handlers may run on when the worker ends."
        ),
    ] = 30.0,
    warn_transaction_after: Annotated[
        float,
        typer.Option(
            callback=check_duration, metavar="SECONDS", help="Warn of handlers that hold a transaction for longer."
        ),
    ] = 10.0,
    reload: Annotated[
        bool, typer.Option("--reload", help="Restart when Python files below this directory change.")
    ] = False,
    health_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Answer /health, /ready and /metrics there, over HTTP.", show_default=False
        ),
    ] = None,
    health_host: Annotated[str, typer.Option(help="The address for HTTP; 0.0.0.0 for all.")] = "127.0.0.1",
    log_format: Annotated[
        LogFormat | None,
        typer.Option(
            help="Lines for people, or JSON for programs; overrides the application's own configuration.",
            show_default="text",
        ),
    ] = None,
    log_level: Annotated[
        LogLevel | None,
        typer.Option(
            help="The level of the log; overrides the application's own. debug adds each handled message.",
            show_default="info",
        ),
    ] = None,
    on_subscription_change: Annotated[
        SubscriptionChange,
        typer.Option(
            help="Where a listener's durable subscription has another selector: do not start, keep its "
            "messages, or drop them."
        ),
    ] = SubscriptionChange.REFUSE,
    timing: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=SECONDS", help="One of the fields of jmsql.worker.WorkerTimings; may be repeated."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DESTINATIONS",
            help="Handle messages of these queues and topics alone, such as orders,mail*; may be repeated.",
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option("--except", metavar="DESTINATIONS", help="Leave out these queues and topics; may be repeated."),
    ] = None,
    list_listeners: Annotated[
        bool, typer.Option("--list", help="List the listeners, and handle nothing; it needs no database.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --list: print JSON, with the JSON schema of each body.")
    ] = False,
    url: WorkerUrl = None,
    schema: OptionalSchema = None,
) -> None:
    r"""Handle messages with the listeners of an application.

    Plain functions run in threads, coroutine functions in an event loop for each process.

    --url and --schema override the application's own factory. SIGTERM and Ctrl-C end the worker: no more
    messages are taken, and handlers that run have --drain-timeout seconds; a second signal ends it at once. SIGHUP has
    new processes, with new code, take the places of the old.

    With --max-messages and --max-memory a process that reaches a limit ends in order: it takes no more messages,
    handlers that run finish, and another process takes its place at once. The limits of processes differ by up to a
    tenth, so that not all end together.

    --only and --except choose listeners by their destinations: names, separated by commas, in which * stands for any
    characters, perhaps with queue:// or topic:// before them. So an application has a worker for its mail and others
    for the rest; --list shows the choice.

    Exits with 0 when all handlers have finished, 1 when some were cut off, 2 or 3 if it cannot begin.

    Example: `jmsql worker shop.messaging:app --concurrency 4 --processes 2`

    Example: `jmsql worker shop.messaging:app --only orders,mail* --except mail.bulk`

    Example: `jmsql worker shop.messaging:app --list`
    """
    if list_listeners:
        _list(application, concurrency, only or (), without or (), as_json=as_json)
        return
    if as_json:
        raise typer.BadParameter("It goes with --list; the log has --log-format json.", param_hint="--json")
    start_log(log_format, "supervisor", log_level)
    has_metrics = health_port is not None and are_available()
    settings = Settings(
        *(application, url is not None, schema, log_format, log_level, has_metrics, max_messages, max_memory),
        concurrency=concurrency,
        drain_timeout=drain_timeout,
        warn_transaction_after=warn_transaction_after,
        on_subscription_change=on_subscription_change,
        timings=_timings(timing or []),
        only=tuple(only or ()),
        without=tuple(without or ()),
    )
    supervisor = Supervisor(
        settings, processes, url, SourceFiles(Path.cwd(), settings.timings.reload_interval) if reload else None
    )
    metrics = partial(exposition, supervisor.metrics) if has_metrics else None
    with ExitStack() as exits:
        if health_port is not None:
            from jmsql.worker.health import health_endpoint  # loads a server of HTTP

            try:
                port = exits.enter_context(health_endpoint(health_host, health_port, supervisor.document, metrics))
            except RefusalError as error:
                typer.echo(f"jmsql: {error}", err=True)
                raise typer.Exit(_USAGE_ERROR) from error
            logger.info("Health is shown on http://%s:%d/health.", health_host, port)
        exit_code = supervisor.run()
    raise typer.Exit(exit_code)


def _list(application: str, concurrency: int, only: Sequence[str], without: Sequence[str], *, as_json: bool) -> None:
    """Print an application's listeners."""
    from jmsql.worker.listing import listeners_of  # imports modules that a supervisor does not need

    try:
        listeners = listeners_of(application, concurrency, only, without)
    except RefusalError as error:
        if error.traceback is not None:
            typer.echo(error.traceback, err=True)
        typer.echo(f"jmsql: {error}", err=True)
        raise typer.Exit(_USAGE_ERROR) from error
    if as_json:
        print_json(listeners)
        return
    further = [column for column in _FURTHER if any(each[column[0]] for each in listeners)]
    listing = table(
        *("Listener", "Destination", "Subscription", "Selector", "Body", "Concurrency", "Transacted", "Timeout"),
        "Reply to",
        *(title for _, title, _ in further),
        numbers=("Timeout",),
        spare=("Selector", "Reply to", "Body"),
    )
    for each in listeners:
        subscription = each["subscription"]
        if subscription is not None and not each["durable"]:
            subscription += " (not durable)"
        listing.add_row(
            *(each["listener"], each["destination"], subscription, each["selector"], each["body"]),
            str(each["concurrency"]) + (" (--concurrency)" if each["own_concurrency"] is None else ""),
            "yes" if each["transacted"] else "no",
            None if each["timeout"] is None else _seconds(each["timeout"]),
            each["reply_to"],
            *(None if each[name] is None else written(each[name]) for name, _, written in further),
        )
    print_table(listing)


def _seconds(value: float) -> str:
    return f"{value:g} s"


def _policy(policy: dict[str, Any]) -> str:
    """Return a redelivery policy for people, as in "3 deliveries, after 1 s, times 2 up to 60 s, then to DLQ"."""
    most = policy["maximum_deliveries"]
    parts = ["no limit of deliveries" if most is None else "1 delivery" if most == 1 else f"{most:,} deliveries"]
    if policy["delay"]:
        further = "" if policy["multiplier"] == 1 else f", times {policy['multiplier']:g}"
        if further and policy["maximum_delay"] is not None:
            further += f" up to {_seconds(policy['maximum_delay'])}"
        parts.append(f"after {_seconds(policy['delay'])}{further}")
    if most is not None:
        parts.append(f"then to {policy['dead_letter_queue'] or DEFAULT_DEAD_LETTER_QUEUE}")
    return ", ".join(parts)


def _classes(names: Sequence[str]) -> str:
    return ", ".join(name.removeprefix("builtins.") for name in names)


def _schedules(schedules: Sequence[dict[str, Any]]) -> str:
    return "; ".join(f"every {_seconds(each['every'])}" if each["cron"] is None else each["cron"] for each in schedules)


_FURTHER: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("chunk", "Chunk", str),
    ("rate", "Rate", str),
    ("at_most", "At most", str),
    ("redelivery", "Redelivery", _policy),
    ("no_retry_for", "No retry for", _classes),
    ("visibility_timeout", "Visibility timeout", _seconds),
    ("keep_result", "Result kept", _seconds),
    ("schedules", "Schedules", _schedules),
)
"""Columns that are shown where a listener has the option: its name, the title, and its text for people."""


def _timings(given: Sequence[str]) -> WorkerTimings:
    pairs = [text.partition("=") for text in given]
    known = {field.name for field in fields(WorkerTimings)}
    for text, (name, _, seconds) in zip(given, pairs, strict=True):
        if name not in known:
            raise typer.BadParameter(
                f"Expected one of {', '.join(sorted(known))}, got {name!r}.", param_hint="--timing"
            )
        if not _NUMBER.fullmatch(seconds):
            raise typer.BadParameter(f"Expected seconds such as {name}=0.5, got {text!r}.", param_hint="--timing")
    try:
        return WorkerTimings(**{name: float(seconds) for name, _, seconds in pairs})
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--timing") from error
