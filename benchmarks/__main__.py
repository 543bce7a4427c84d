"""``python -m benchmarks``: run the benchmarks and show how they stand to their targets."""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.status import Status

from benchmarks import queues
from benchmarks.client import awaiting, batches, connecting, handlers, latency, processor_time, singles, web
from benchmarks.database import database_on, server
from benchmarks.features import (
    batch_callbacks,
    counting_deliveries,
    fan_out,
    keeping_history,
    message_groups,
    restricted_roles,
    sending_later,
)
from benchmarks.machine import describe_machine
from benchmarks.measurement import BenchmarkResult
from benchmarks.peers import comparison
from benchmarks.report import table, write_json
from benchmarks.scale import console_pages, crowds, endurance, looks, memory, partitions
from benchmarks.setting import FULL, HOUR, QUICK, Benchmark, Setting
from benchmarks.spark import spark_history, spark_memory, spark_read, spark_stream, spark_write
from benchmarks.workers import comparison as workers

_BENCHMARKS: dict[str, Benchmark] = {
    "transacted-send": batches.transacted_send,
    "transacted-receive": batches.transacted_receive,
    "acknowledged-receive": batches.acknowledged_receive,
    "single-send": singles.single_send,
    "non-persistent-send": singles.non_persistent_send,
    "automatic-receive": singles.automatic_receive,
    "idle-latency": latency.idle_latency,
    "fastapi-latency": web.fastapi_latency,
    "worker-rate": handlers.worker_rate,
    "client-time": processor_time.client_time,
    "worker-peers": workers.worker_peers,
    "connecting": connecting.connecting,
    "awaited-send": awaiting.awaited_send,
    "awaited-receive": awaiting.awaited_receive,
    "awaited-single-send": awaiting.awaited_single_send,
    "awaited-single-receive": awaiting.awaited_single_receive,
    "awaited-requests": awaiting.awaited_requests,
    "waiting-consumers": awaiting.waiting_consumers,
    "idle-consumers": crowds.idle_consumers,
    "many-consumers": crowds.many_consumers,
    "crowded-queue": crowds.crowded_queue,
    "many-queues": crowds.many_queues,
    "processes": crowds.processes,
    "backlog": endurance.backlog,
    "long-run": endurance.long_run,
    "long-run-history": endurance.long_run_with_history,
    "selector": endurance.selector,
    "pinned-snapshot": endurance.pinned_snapshot,
    "fan-out": fan_out.fan_out,
    "fan-out-selectors": fan_out.selected_fan_out,
    "delayed-backlog": sending_later.delayed_backlog,
    "asynchronous-send": sending_later.asynchronous_send,
    "batch-callback": batch_callbacks.batch_callback,
    "groups": message_groups.groups,
    "history": keeping_history.history,
    "redelivery-policy": counting_deliveries.redelivery_policy,
    "row-security": restricted_roles.row_security,
    "partitions": partitions.partitions,
    "console-pages": console_pages.console_pages,
    "looks": looks.looks,
    "consumer-memory": memory.consumer_memory,
    "spark-read": spark_read,
    "spark-history": spark_history,
    "spark-write": spark_write,
    "spark-memory": spark_memory,
    "spark-stream": spark_stream,
    "peers": comparison.peers,
    "queues-sweep": queues.sweep,
    "queues-held-transaction": queues.held_transaction,
    "queues-chaos": queues.chaos,
}

_WIDTH_OF_FILES = 132


def main() -> None:
    """Run the benchmarks that are named on the command line. A missed target is a result, not an error."""
    arguments = _arguments()
    console = Console(width=None if sys.stdout.isatty() else _WIDTH_OF_FILES)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    effort = QUICK if arguments.quick else HOUR if arguments.hour else FULL
    comparisons: list[BenchmarkResult] = []
    skipped: list[str] = []
    machine: dict[str, object] = {}

    def keep(found: list[BenchmarkResult]) -> None:
        """Write the figures, each time that there are more: an interrupted run keeps what it has."""
        if arguments.json is not None:
            write_json(
                arguments.json,
                comparisons + found,
                machine=machine,
                effort=dataclasses.asdict(effort),
                skipped=skipped,
                started=started,
            )

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with server(arguments.url) as url, console.status("starting") as status:
        for name in arguments.names or _BENCHMARKS:
            # A database each: what one leaves behind is no burden to the next.
            with database_on(url) as database:
                machine = machine or describe_machine(database)
                setting = Setting(database, effort, partial(_tell, status, name), skipped, keep)
                found = _BENCHMARKS[name](setting)
            comparisons += found
            for comparison in found:
                console.print(f"{name}: {comparison.subject} / {comparison.reference} = {comparison.ratio:.2f}")
            keep([])
    console.print(table(comparisons))
    for line in skipped:
        console.print(f"Skipped {line}.")


def _arguments() -> argparse.Namespace:
    names = "\n".join(f"  {name:22} {(run.__doc__ or '').partition(chr(10))[0]}" for name, run in _BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure jmsql beside the same work in bare psycopg, and beside its peers, by turns.",
        epilog=f"benchmarks:\n{names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to run; default: all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    parser.add_argument("--quick", action="store_true", help="about a minute: to see that all runs, not to judge")
    parser.add_argument("--hour", action="store_true", help="10,000,000 messages in an hour for each long run")
    parser.add_argument("--url", metavar="URL", help="use this PostgreSQL server instead of an embedded one of its own")
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in _BENCHMARKS:
            parser.error(f"there is no benchmark {name!r}; --help lists them")
    return arguments


def _tell(status: Status, name: str, line: str) -> None:
    status.update(f"{name}: {line}")


if __name__ == "__main__":
    main()
