"""`jmsql metrics`."""

from __future__ import annotations

import signal
import threading
from typing import Annotated

import typer

from jmsql.cli.options import Schema, Url, open_database
from jmsql.cli.output import write

_USAGE_ERROR = 2


def metrics(
    port: Annotated[int, typer.Option(min=0, max=65535, help="The HTTP port; 0: any free port.")] = 9187,
    host: Annotated[str, typer.Option(help="The address for HTTP; 0.0.0.0 for all.")] = "127.0.0.1",
    once: Annotated[bool, typer.Option("--once", help="Print the metrics and exit.")] = False,
    max_destinations: Annotated[
        int,
        typer.Option(min=1, help="Maximum number of destinations; if there are more, those with the oldest messages."),
    ] = 500,
    count_limit: Annotated[
        int, typer.Option(min=1, help="Count the messages of each destination up to this number.")
    ] = 1000,
    exact: Annotated[
        bool, typer.Option("--exact", help="Count all messages of all destinations, which reads them.")
    ] = False,
    url: Url = None,
    schema: Schema = "jmsql",
) -> None:
    """Show the metrics of the store to Prometheus: those that need no connected client.

    Messages are counted up to 1,000 in each destination, so that a scrape costs little for any depth: the metric
    jmsql_count_limit says how far. After a scrape that took long, as with --exact, the next get its figures until four
    times as long has passed.
    It needs the extra `metrics`, and sees the transactions of other roles with the rights of pg_read_all_stats.

    With --once, exits with 3 if the database cannot be reached.

    Example: `jmsql metrics --host 0.0.0.0 --port 9187`
    """
    try:
        from prometheus_client import CollectorRegistry, generate_latest, start_http_server

        from jmsql.metrics import StoreCollector
    except ImportError as error:
        typer.echo(f'jmsql: {error.name} is missing: pip install "jmsql[metrics]".', err=True)
        raise typer.Exit(_USAGE_ERROR) from error
    collector = StoreCollector(
        open_database(url, schema).url,
        schema,
        count_limit=None if exact else count_limit,
        max_destinations=max_destinations,
    )
    registry = CollectorRegistry()
    registry.register(collector)
    try:
        if once:
            collector.require()
            write(generate_latest(registry))
            return
        try:
            server, thread = start_http_server(port, host, registry)
        except (OSError, OverflowError, UnicodeError) as error:
            typer.echo(f"jmsql: Metrics cannot be shown on {host}:{port}: {error}", err=True)
            raise typer.Exit(_USAGE_ERROR) from error
        typer.echo(f"Metrics are shown on http://{host}:{server.server_port}/metrics.", err=True)
        _wait_for_the_end()
        server.shutdown()
        server.server_close()
        thread.join()
    finally:
        collector.close()


def _wait_for_the_end() -> None:
    """Wait for Ctrl-C or SIGTERM, which here is an end like any other."""
    ended = threading.Event()
    former = {number: signal.signal(number, lambda *_: ended.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        ended.wait()
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
