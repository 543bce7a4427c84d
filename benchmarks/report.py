"""The result: a table for people, and JSON with every figure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from benchmarks.measurement import BenchmarkResult

_VERDICTS = {True: "[green]met[/green]", False: "[red]not met[/red]", None: ""}


def table(comparisons: Sequence[BenchmarkResult]) -> Table:
    """Lay the comparisons out."""
    result = Table(title="Medians of rounds taken by turns")
    for heading in ("benchmark", "subject"):
        result.add_column(heading)
    result.add_column("value", justify="right")
    result.add_column("reference")
    result.add_column("value", justify="right")
    result.add_column("ratio (middle half)", justify="right", no_wrap=True)
    result.add_column("target", justify="right")
    result.add_column("")
    previous = None
    for comparison in comparisons:
        if previous not in {None, comparison.benchmark}:
            result.add_section()
        lower, upper = comparison.spread
        result.add_row(
            "" if comparison.benchmark == previous else comparison.benchmark,
            comparison.subject,
            _figure(comparison.figure, comparison.unit),
            comparison.reference,
            _figure(comparison.reference_figure, comparison.unit),
            f"{comparison.ratio:.2f} ({lower:.2f}-{upper:.2f})",
            "" if comparison.target is None else str(comparison.target),
            _VERDICTS[comparison.is_met],
        )
        previous = comparison.benchmark
    return result


def _figure(figure: float, unit: str) -> str:
    return f"{figure:,.0f}/s" if unit == "messages/s" else f"{figure:.2f} {unit}"


def write_json(
    path: Path,
    comparisons: Sequence[BenchmarkResult],
    *,
    machine: dict[str, object],
    effort: dict[str, object],
    skipped: Sequence[str],
    started: str,
) -> None:
    """Write every figure of every round, and what they were measured on."""
    document = {
        "started": started,
        "machine": machine,
        "effort": effort,
        "skipped": list(skipped),
        "comparisons": [
            {
                "benchmark": comparison.benchmark,
                "subject": comparison.subject,
                "reference": comparison.reference,
                "unit": comparison.unit,
                "value": comparison.figure,
                "reference_value": comparison.reference_figure,
                "ratio": comparison.ratio,
                "target": None if comparison.target is None else str(comparison.target),
                "met": comparison.is_met,
                "figures": list(comparison.figures),
                "reference_figures": list(comparison.reference_figures),
            }
            for comparison in comparisons
        ],
    }
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
