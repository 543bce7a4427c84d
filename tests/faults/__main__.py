"""``python -m tests.faults --hours H``: a long storm of faults, and the account of it."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.spark_storm import SparkStorm
from tests.faults.storm import Storm


def main() -> int:
    """Run the storm that the arguments describe; return 0 if every promise was kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--hours", type=float, default=0.1, help="how long faults come (default: 0.1)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="repeats the choices of a run")
    parser.add_argument("--pause", type=float, help="mean seconds between two faults (default: 2, with Spark 20)")
    parser.add_argument("--spark", action="store_true", help="run streams of Spark, and kill what runs them")
    parser.add_argument("--quiet", action="store_true", help="do not tell of each fault")
    arguments = parser.parse_args()
    started = time.monotonic()

    def tell(what: str) -> None:
        if not arguments.quiet:
            print(f"{time.monotonic() - started:8.1f} s  {what}", flush=True)

    with tempfile.TemporaryDirectory(prefix="jmsql-storm-") as directory:
        tell(f"seed {arguments.seed}")
        storm = (SparkStorm if arguments.spark else Storm)(arguments.seed, Path(directory), tell)
        pause = arguments.pause or (20.0 if arguments.spark else 2.0)
        report = storm.run(3600 * arguments.hours, pause)
    print(report)
    return 0 if report.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
