"""Clients of all kinds at a bounded rate, without faults, for long: what they and the tables take up is drawn.

``python -m tests.faults --endurance FOLDER --hours H`` runs it.
"""

from __future__ import annotations

import csv
import dataclasses
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Self

import psycopg

from tests.faults.faulty_server import faulty_server
from tests.faults.ledger import Ledger
from tests.faults.storm import ROUTES, Clients, Report, finish, subscribe

_INTERVAL = 10.0
_MEBIBYTE = 1024 * 1024
_MOST_GROWTH = 1.2
"""By how much the median of the last quarter may exceed that of the second; the first fills pools and caches."""

_MARGIN = 4.0
"""MiB that do not count: a page more of an almost empty table is no growth."""

_DRAWN = 0.5
"""MiB that a table has to have at some time to be drawn."""

_SIZES = """
    select c.relname::text, pg_catalog.pg_total_relation_size(c.oid) from pg_catalog.pg_class c
    where c.relnamespace = 'jmsql_internal'::regnamespace and c.relkind = 'r'"""


@dataclasses.dataclass(frozen=True)
class Sample:
    """What was taken up at a moment.

    Args:
        seconds: Since the beginning.
        done: How many messages had been done.
        sizes: In MiB: the memory of each process of clients, and each table with its indexes.
    """

    seconds: float
    done: int
    sizes: dict[str, float]


class Endurance:
    """Runs the clients, and looks at them now and then.

    Args:
        directory: Where logs go.
        output: Where the figures and the plot go.
    """

    def __init__(self, directory: Path, output: Path) -> None:
        self._directory = directory
        self._output = output
        self.samples: list[Sample] = []
        self.report = Report(0)

    def run(self, seconds: float) -> Self:
        """Run for so long, make up the accounts, and draw."""
        self._output.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            server = stack.enter_context(faulty_server())
            ledger = Ledger(server.url)
            ledger.create()
            subscribe(server.url)
            clients = Clients(dict.fromkeys(ROUTES, server.url), None, self._directory, 0)
            stack.callback(clients.close)
            clients.start_all()
            database = stack.enter_context(psycopg.connect(server.url, autocommit=True))
            started = time.monotonic()
            while (passed := time.monotonic() - started) < seconds and not clients.defects:
                self.samples.append(
                    Sample(passed, ledger.last_done(), _memory(clients.process_ids()) | _tables(database))
                )
                self._write()
                time.sleep(_INTERVAL)
                clients.look()
            self.report.seconds = time.monotonic() - started
            finish(clients, ledger, self.report)
        self._draw()
        return self

    @property
    def is_right(self) -> bool:
        """Whether every promise was kept, and nothing has grown."""
        return self.report.is_right and not self._growth()

    def __str__(self) -> str:
        grown = (
            f"{name} has grown from {before:.1f} to {after:.1f} MiB" for name, (before, after) in self._growth().items()
        )
        return "\n".join([str(self.report), *grown])

    def _growth(self) -> dict[str, tuple[float, float]]:
        """The medians of the second and of the last quarter, in MiB, of what has grown too much."""
        quarter = len(self.samples) // 4
        early, late = self.samples[quarter : 2 * quarter], self.samples[-quarter:]
        grown = {}
        for name in self.samples[-1].sizes:
            before, after = (median(sample.sizes.get(name, 0.0) for sample in part) for part in (early, late))
            if after > before * _MOST_GROWTH + _MARGIN:
                grown[name] = before, after
        return grown

    def _write(self) -> None:
        names = list(self.samples[0].sizes)
        with (self._output / "endurance.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["seconds", "done", *names])
            for sample in self.samples:
                sizes = (round(sample.sizes.get(name, 0.0), 2) for name in names)
                writer.writerow([round(sample.seconds), sample.done, *sizes])

    def _draw(self) -> None:
        """Draw what was noted."""
        import matplotlib as mpl

        mpl.use("svg")
        from matplotlib import pyplot as plt

        figure, (memory, tables) = plt.subplots(2, 1, figsize=(8, 7), sharex=True, layout="constrained")
        minutes = [sample.seconds / 60 for sample in self.samples]
        for name in self.samples[0].sizes:
            axes, label = (tables, name.removeprefix("table ")) if name.startswith("table ") else (memory, name)
            sizes = [sample.sizes.get(name, 0.0) for sample in self.samples]
            if max(sizes) >= _DRAWN:
                axes.plot(minutes, sizes, label=label)
        memory.set_ylabel("memory of a process, MiB")
        tables.set_ylabel("table with its indexes, MiB")
        tables.set_xlabel(f"minutes; {self.samples[-1].done:,} messages")
        for axes in (memory, tables):
            axes.set_ylim(bottom=0)
            axes.grid(alpha=0.3)
            axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
        figure.savefig(self._output / "endurance.svg")


def _memory(processes: dict[str, int]) -> dict[str, float]:
    """The resident memory of processes and of those that they have started, in MiB."""
    found = {}
    for name, process in processes.items():
        status = Path(f"/proc/{process}/status").read_text()
        [kibibytes] = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")]
        found[name] = int(kibibytes) / 1024
    return found


def _tables(database: psycopg.Connection) -> dict[str, float]:
    return {f"table {name}": size / _MEBIBYTE for name, size in database.execute(_SIZES).fetchall()}
