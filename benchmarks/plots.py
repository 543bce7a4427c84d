"""``python -m benchmarks.plots FIGURES… DIRECTORY``: draw results, a picture a question, for light and dark ground."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from benchmarks.workers.figures import RATE, WorkerFigures, arrangement

_THEMES = {
    "light": {"ground": "#ffffff", "ink": "#1f2328", "grid": "#d8dee4"},
    "dark": {"ground": "#161b22", "ink": "#e6edf3", "grid": "#3a424c"},
}
_MARKS = {True: ("#228833", "o"), False: ("#ee6677", "X"), None: ("#4477aa", "D")}
"""Colour and shape, by whether the target is met; None: there is no target."""
_OURS, _OTHERS = "#228833", "#4477aa"
_SHIFTS = {1: -0.19, 2: 0.19}
"""Where the bar of so many processes stands beside the name."""


class Question(NamedTuple):
    """What a picture answers.

    Args:
        name: The name of its files.
        title: The question.
        benchmarks: How the names of its benchmarks begin.
    """

    name: str
    title: str
    benchmarks: tuple[str, ...]


_QUESTIONS = (
    Question(
        "floor",
        "How close is jmsql to SQL written by hand?",
        ("transacted-", "acknowledged-", "single-", "non-persistent-", "automatic-", "idle-latency", "connecting"),
    ),
    Question("peers", "Is jmsql faster than its peers?", ("peers",)),
    Question("queues", "How does it hold out under load, beside pgmq and PgQ?", ("queues",)),
    Question("asyncio", "What does asyncio cost?", ("awaited-", "waiting-", "enlisted-", "fastapi-")),
    Question(
        "options", "What do options cost?", ("redelivery", "history", "groups", "row-security", "fan-out", "delayed-")
    ),
    Question("endurance", "Does it stay fast?", ("backlog", "selector", "pinned-snapshot", "consumer-memory", "hour")),
    Question("spark", "How fast is Spark?", ("spark-",)),
)


class _Row(NamedTuple):
    label: str
    ratio: float
    lower: float
    upper: float
    bound: float | None
    met: bool | None


def main() -> None:
    """Draw what the files of figures have."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.plots",
        description="Draw the figures that `python -m benchmarks --json` has written.",
    )
    parser.add_argument("figures", nargs="+", type=Path, metavar="FIGURES", help="files of figures")
    parser.add_argument("directory", type=Path, metavar="DIRECTORY", help="where the pictures go, as SVG")
    arguments = parser.parse_args()
    comparisons = [
        comparison
        for path in arguments.figures
        for comparison in json.loads(path.read_text(encoding="utf-8"))["comparisons"]
    ]
    arguments.directory.mkdir(parents=True, exist_ok=True)
    for question in _QUESTIONS:
        rows = [_row(each) for each in comparisons if each["benchmark"].startswith(question.benchmarks)]
        for theme in _THEMES if rows else ():
            path = arguments.directory / f"{question.name}-{theme}.svg"
            _draw(question.title, rows, theme, path)
            print(path)
    for path in draw_workers(comparisons, arguments.directory):
        print(path)


def draw_workers(comparisons: Sequence[dict[str, Any]], directory: Path) -> list[Path]:
    """Draw how fast workers are, if that was measured; return the files."""
    found = WorkerFigures(comparisons)
    paths = []
    for theme, colors in _THEMES.items() if found.arrangements else ():
        path = directory / f"worker-{theme}.svg"
        with _style(colors):
            figure = _worker_figure(found, colors)
            figure.savefig(path, metadata={"Date": None})
        paths.append(path)
    return paths


def _worker_figure(found: WorkerFigures, colors: Mapping[str, str]) -> Figure:
    """Draw a bar for each worker and each number of processes, in a panel for so many handlers at a time."""
    concurrencies = sorted({concurrency for concurrency, _ in found.arrangements})
    workers = found.workers
    figure = Figure(figsize=(9.0, 1.4 + 0.4 * len(workers)), facecolor=colors["ground"], layout="constrained")
    panels = figure.subplots(1, len(concurrencies), sharey=True, squeeze=False)[0]
    for axes, concurrency in zip(panels, concurrencies, strict=True):
        for processes, shift in _SHIFTS.items():
            for place, worker in enumerate(workers):
                rate = found.median(f"{RATE}{arrangement(concurrency, processes)}", worker)
                if rate is not None:
                    color = _OURS if worker.startswith("jmsql") else _OTHERS
                    alpha = 1.0 if processes == 1 else 0.55
                    axes.barh(place + shift, rate, 0.36, color=color, alpha=alpha)
                    axes.annotate(
                        f"{rate:,.0f}",
                        (rate, place + shift),
                        (3, 0),
                        textcoords="offset points",
                        va="center",
                        fontsize=7,
                    )
        axes.set_facecolor(colors["ground"])
        axes.set_yticks(range(len(workers)), workers, fontsize=8, color=colors["ink"])
        axes.set_ylim(len(workers) - 0.4, -0.6)
        axes.margins(x=0.2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.xaxis.set_major_locator(MaxNLocator(3))
        axes.tick_params(colors=colors["ink"], labelsize=8)
        axes.grid(axis="x", color=colors["grid"], linewidth=0.6)
        axes.set_axisbelow(True)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.set_title(f"{concurrency} at a time", color=colors["ink"], loc="left", fontsize=9)
    figure.suptitle("How fast is the worker?", color=colors["ink"], x=0.01, ha="left")
    figure.supxlabel("messages a second; pale: two processes", color=colors["ink"], fontsize=8)
    return figure


def _style(colors: Mapping[str, str]) -> AbstractContextManager[None]:
    # Without a date and with names that depend on nothing, the same figures make the same file.
    return mpl.rc_context({"svg.hashsalt": "jmsql", "svg.fonttype": "none", "text.color": colors["ink"]})


def _row(comparison: dict[str, Any]) -> _Row:
    ratios = [
        figure / reference
        for figure, reference in zip(comparison["figures"], comparison["reference_figures"], strict=True)
    ]
    lower, _, upper = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    target = comparison["target"]
    label = f"{comparison['benchmark']}\n{comparison['subject']} / {comparison['reference']}"
    bound = None if target is None else float(target.split()[1])
    return _Row(label, statistics.median(ratios), lower, upper, bound, comparison["met"])


def _draw(title: str, rows: Sequence[_Row], theme: str, path: Path) -> None:
    colors = _THEMES[theme]
    with _style(colors):
        figure = Figure(figsize=(9.0, 1.0 + 0.42 * len(rows)), facecolor=colors["ground"], layout="constrained")
        axes = figure.add_subplot(facecolor=colors["ground"])
        axes.set_xscale("log")
        axes.axvline(1.0, color=colors["ink"], linewidth=1)
        for place, row in enumerate(rows):
            color, shape = _MARKS[row.met]
            axes.plot(
                [row.lower, row.upper], [place, place], color=color, linewidth=4, alpha=0.5, solid_capstyle="butt"
            )
            axes.plot(row.ratio, place, shape, color=color)
            if row.bound is not None:
                axes.plot(row.bound, place, "|", color=colors["ink"], markersize=14)
            axes.annotate(
                f"{row.ratio:.2f}", (row.ratio, place), (0, 6), textcoords="offset points", ha="center", fontsize=8
            )
        axes.set_yticks(range(len(rows)), [row.label for row in rows], fontsize=8, color=colors["ink"])
        axes.set_ylim(len(rows) - 0.4, -0.7)
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.tick_params(colors=colors["ink"])
        axes.grid(axis="x", color=colors["grid"], linewidth=0.6)
        axes.set_axisbelow(True)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.set_title(title, color=colors["ink"], loc="left")
        axes.set_xlabel(
            "ratio and its middle half; bar: target; circle: met, cross: not met, diamond: no target",
            color=colors["ink"],
            fontsize=8,
        )
        figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
