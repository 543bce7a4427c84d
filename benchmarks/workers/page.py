"""``python -m benchmarks.workers.page FIGURES``: write the figures of ``worker-peers`` into the documentation."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.plots import draw_workers
from benchmarks.workers import figures
from benchmarks.workers.figures import JMSQL, WorkerFigures
from benchmarks.workers.systems import BOUNDS

_BEGIN, _END = "<!-- figures -->\n", "<!-- end of figures -->\n"
_DOCUMENTATION = Path("docs")


def main() -> None:
    """Write the tables between the marks of the page, and draw the picture."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.workers.page",
        description="Write what `python -m benchmarks worker-peers --json FIGURES` has found into the documentation.",
    )
    parser.add_argument("figures", type=Path, metavar="FIGURES", help="the file of figures")
    parser.add_argument("--page", type=Path, metavar="FILE", default=_DOCUMENTATION / "worker-speed.md")
    parser.add_argument("--plots", type=Path, metavar="DIRECTORY", default=_DOCUMENTATION / "plots")
    arguments = parser.parse_args()
    document = json.loads(arguments.figures.read_text(encoding="utf-8"))
    page = arguments.page.read_text(encoding="utf-8")
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    arguments.page.write_text(f"{before}{_BEGIN}\n{tables(document)}\n{_END}{after}", encoding="utf-8")
    arguments.plots.mkdir(parents=True, exist_ok=True)
    for path in draw_workers(document["comparisons"], arguments.plots):
        print(path)


def tables(document: dict[str, Any]) -> str:
    """Return the tables, and what they were measured on, as Markdown."""
    found = WorkerFigures(document["comparisons"])
    return (
        "\n\n".join(
            [
                "Messages per second:",
                _rates(found),
                f"Rates of `{JMSQL}` as multiples of the others'; below 1, in bold, the other is faster:",
                _ratios(found),
                "Ten handlers at a time in one process; the time from send to handler with one that waits:",
                _costs(found),
                _conditions(document, found.rounds),
            ]
        )
        + "\n"
    )


def _headings(found: WorkerFigures) -> list[str]:
    return [
        f"{concurrency}" if processes == 1 else f"{processes} \N{MULTIPLICATION SIGN} {concurrency}"
        for concurrency, processes in found.arrangements
    ]


def _rates(found: WorkerFigures) -> str:
    rows = []
    for worker in found.workers:
        rates = [found.median(figures.RATE + figures.arrangement(*each), worker) for each in found.arrangements]
        rows.append([worker, *(_number(rate) for rate in rates)])
    return _table(["worker", *_headings(found)], rows)


def _ratios(found: WorkerFigures) -> str:
    rows = []
    for subject, reference, _ in figures.pairs(found.workers, BOUNDS):
        row = [reference if subject == JMSQL else f"{subject}, beside {reference}"]
        for each in found.arrangements:
            ratio = found.ratio(figures.RATE + figures.arrangement(*each), subject, reference)
            row.append("" if ratio is None else f"{ratio:.2f}" if ratio >= 1 else f"**{ratio:.2f}**")
        rows.append(row)
    return _table(["beside", *_headings(found)], rows)


def _costs(found: WorkerFigures) -> str:
    usual = figures.arrangement(*figures.USUAL)
    rows = [
        [
            worker,
            _number(found.median(figures.CLIENT + usual, worker)),
            _number(found.median(figures.SERVER + usual, worker)),
            _number(found.median(f"{figures.LATENCY} p50", worker), 1),
            _number(found.median(f"{figures.LATENCY} p95", worker), 1),
            found.counted(figures.MISSING, worker),
            found.counted(figures.DOUBLED, worker),
        ]
        for worker in found.workers
    ]
    headings = ["worker", "worker, µs a message", "PostgreSQL and broker, µs a message", "send to handler, ms: median"]
    return _table([*headings, "95th percentile", "`kill -9`: not handled", "handled twice"], rows)


def _conditions(document: dict[str, Any], count: int) -> str:
    machine, effort = document["machine"], document["effort"]
    rounds = "one round" if count == 1 else f"{count} rounds by turns"
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    lines = [
        f"Measured on {document['started'][:10]}: {rounds} of {effort['handled']:,} messages, and of fewer with one",
        f"handler at a time; {machine['processor']},",
        f"{machine['cores']} cores, {machine['fsync_microseconds']} µs for a write of 8 KiB and its fsync;",
        f"PostgreSQL {machine['postgresql']['server_version']}, Python {machine['python']}, {packages}.",
    ]
    if document["skipped"]:
        lines.append(f"Skipped: {'; '.join(document['skipped'])}.")
    return "\n".join(lines)


def _number(figure: float | None, digits: int = 0) -> str:
    return "" if figure is None else f"{figure:,.{digits}f}"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    marks = ["---", *["--:"] * (len(headings) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [headings, marks, *rows])


if __name__ == "__main__":
    main()
