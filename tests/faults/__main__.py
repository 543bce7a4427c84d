"""``python -m tests.faults --hours H``: a long storm of faults, and the account of it."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.failover import Failovers
from tests.faults.spark_storm import SparkReport, SparkStorm
from tests.faults.storm import Report, Storm


def main() -> int:
    """Run the storm that the arguments describe; return 0 if every promise was kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--hours", type=float, default=0.1, help="how long faults come (default: 0.1)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="repeats the choices of a run")
    parser.add_argument(
        "--pause", type=float, help="mean seconds between two faults (default: 2, with Spark 20, of failovers 5)"
    )
    parser.add_argument("--spark", action="store_true", help="run streams of Spark, and kill what runs them")
    parser.add_argument("--failover", action="store_true", help="kill primaries, and promote their standbys")
    parser.add_argument(
        "--longest",
        type=float,
        default=60.0,
        help="the most seconds of a frozen client, of swallowed packets, or without a primary (default: 60)",
    )
    parser.add_argument("--quiet", action="store_true", help="do not tell of each fault")
    arguments = parser.parse_args()
    started = time.monotonic()

    def tell(what: str) -> None:
        if not arguments.quiet:
            print(f"{time.monotonic() - started:8.1f} s  {what}", flush=True)

    report: Report | SparkReport
    with tempfile.TemporaryDirectory(prefix="jmsql-storm-") as directory:
        tell(f"seed {arguments.seed}")
        seconds = 3600 * arguments.hours
        if arguments.spark:
            report = SparkStorm(arguments.seed, Path(directory), tell).run(seconds, arguments.pause or 20.0)
        elif arguments.failover:
            failovers = Failovers(arguments.seed, Path(directory), tell)
            report = failovers.run(seconds, arguments.pause or 5.0, arguments.longest)
        else:
            storm = Storm(arguments.seed, Path(directory), tell)
            report = storm.run(seconds, arguments.pause or 2.0, arguments.longest)
    print(report)
    return 0 if report.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
