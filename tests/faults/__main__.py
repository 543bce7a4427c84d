"""``python -m tests.faults --hours H``: a long storm of faults, and the account of it."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.clock import JumpingClocks
from tests.faults.endurance import Endurance
from tests.faults.failover import Failovers
from tests.faults.full_disk import FullDisks
from tests.faults.pooled import Poolers
from tests.faults.spark_storm import SparkReport, SparkStorm
from tests.faults.storm import Report, Storm
from tests.faults.trial import Trial

_TRIALS: dict[str, type[Trial]] = {
    "clock": JumpingClocks,
    "failover": Failovers,
    "full-disk": FullDisks,
    "pooler": Poolers,
}
"""The faults that come alone."""


def main() -> int:
    """Run the storm that the arguments describe; return 0 if every promise was kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--hours", type=float, default=0.1, help="how long faults come (default: 0.1)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="repeats the choices of a run")
    parser.add_argument("--pause", type=float, help="mean seconds between two faults (default: 2, with Spark 20)")
    parser.add_argument("--spark", action="store_true", help="run streams of Spark, and kill what runs them")
    parser.add_argument("--endurance", type=Path, metavar="FOLDER", help="no faults; draw memory and tables there")
    parser.add_argument("--fault", choices=_TRIALS, help="faults of one kind alone, each of which has to be overcome")
    parser.add_argument(
        "--longest",
        type=float,
        default=60.0,
        help="the most seconds that a client is frozen, packets are swallowed, or another fault lasts (default: 60)",
    )
    parser.add_argument("--quiet", action="store_true", help="do not tell of each fault")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what runs is ended, as with Ctrl-C
    started = time.monotonic()

    def tell(what: str) -> None:
        if not arguments.quiet:
            print(f"{time.monotonic() - started:8.1f} s  {what}", flush=True)

    report: Report | SparkReport | Endurance
    with tempfile.TemporaryDirectory(prefix="jmsql-storm-") as directory:
        tell(f"seed {arguments.seed}")
        seconds = 3600 * arguments.hours
        if arguments.spark:
            report = SparkStorm(arguments.seed, Path(directory), tell).run(seconds, arguments.pause or 20.0)
        elif arguments.endurance:
            report = Endurance(Path(directory), arguments.endurance).run(seconds)
        elif arguments.fault:
            trial = _TRIALS[arguments.fault](arguments.seed, Path(directory), tell, longest=arguments.longest)
            report = trial.run(seconds)
        else:
            storm = Storm(arguments.seed, Path(directory), tell)
            report = storm.run(seconds, arguments.pause or 2.0, arguments.longest)
    print(report)
    return 0 if report.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
