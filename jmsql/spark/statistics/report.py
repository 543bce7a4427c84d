"""The report: tables for people, also on a terminal, and one HTML file with all that it shows in it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from jinja2 import Environment, StrictUndefined

from jmsql.spark.statistics.plots import draw_plots, render
from jmsql.spark.statistics.results import Results, consumed_from

_TEMPLATE = "report.html.jinja"


class _Picture(NamedTuple):
    name: str
    title: str
    description: str
    light: str
    dark: str


def write_report(
    results: Results, directory: Path, top: int = 10, progress: Callable[[str, int, int], None] = lambda *_: None
) -> Path:
    """Write ``report.html``, and the plots as ``plots/NAME.png`` and ``plots/NAME.svg``.

    Returns:
        The path of the report.
    """
    place = directory / "plots"
    place.mkdir(parents=True, exist_ok=True)
    plots = draw_plots(results, top)
    pictures = []
    for done, plot in enumerate(plots):
        progress(f"Drawing {plot.title.lower()}", done, len(plots))
        light, png = render(plot, "light", "svg", "png")
        (dark,) = render(plot, "dark", "svg")
        (place / f"{plot.name}.svg").write_bytes(light)
        (place / f"{plot.name}.png").write_bytes(png)
        pictures.append(_Picture(plot.name, plot.title, plot.description, _as_url(light), _as_url(dark)))
    progress("Drawn", len(plots), len(plots))
    for former in place.iterdir():
        if former.suffix in {".png", ".svg"} and former.stem not in {plot.name for plot in plots}:
            former.unlink()
    path = directory / "report.html"
    path.write_text(_html(results, top, pictures), encoding="utf-8")
    return path


def _as_url(image: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(image).decode()}"


def _html(results: Results, top: int, pictures: list[_Picture]) -> str:
    zone = ZoneInfo(results.time_zone)
    hours = [row["hour"].astimezone(zone) for row in results.hours("expiries")]
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(files(__package__).joinpath(_TEMPLATE).read_text(encoding="utf-8"))
    return template.render(
        first=min(hours),
        last=max(hours),
        time_zone=results.time_zone,
        messages=results.messages,
        destinations=len(results.rows("expiries")),
        made_at=datetime.now(UTC),
        listings=list_statistics(results, top),
        pictures=pictures,
    )


class Listing(NamedTuple):
    """A table.

    Args:
        title: Its title.
        note: An explanation of its columns.
        columns: Their names.
        numbers: The columns that are aligned right.
        rows: The cells.
        left_out: How many rows there are besides.
    """

    title: str
    note: str
    columns: tuple[str, ...]
    numbers: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    left_out: int


def list_statistics(results: Results, top: int) -> list[Listing]:
    """Return the tables of the statistics, of all of the time, each with the rows that have the most messages."""
    found = (_destinations(results, top), _balance(results, top), _reasons(results, top), _groups(results, top))
    return [listing for listing in found if listing.rows]


def _destinations(results: Results, top: int) -> Listing:
    by_destination = {
        name: {row["destination"]: row for row in results.rows(name)}
        for name in ("throughput", "time_in_queue", "redeliveries", "expiries")
    }
    dead: dict[str, int] = {}
    for row in results.rows("dead_letters"):
        dead[row["destination"]] = dead.get(row["destination"], 0) + row["messages"]
    rows = []
    for name, expiries in _largest(by_destination["expiries"].values(), len(by_destination["expiries"]), "destination"):
        throughput = by_destination["throughput"].get(name, {"messages": 0, "bytes": 0})
        times = by_destination["time_in_queue"].get(name, {})
        rows.append(
            (
                name,
                f"{throughput['messages']:,}",
                _size(throughput["bytes"]),
                *(_duration(times.get(percentile)) for percentile in ("p50", "p95", "p99")),
                f"{by_destination['redeliveries'][name]['redeliveries']:,}",
                f"{expiries['expired']:,}",
                f"{dead.get(name, 0):,}",
                f"{expiries['purged']:,}",
            )
        )
    numbers = ("acknowledged", "size", "p50", "p95", "p99", "redeliveries", "expired", "dead letters", "purged")
    note = "p50, p95 and p99 are percentiles of the time in queue, of what was acknowledged."
    return Listing("Destinations", note, ("destination", *numbers), numbers, rows[:top], max(0, len(rows) - top))


def _balance(results: Results, top: int) -> Listing:
    consumers: dict[str, list[str]] = {}
    for row in sorted(results.rows("consumers"), key=lambda row: -row["messages"]):
        consumers.setdefault(consumed_from(row), []).append(f"{row['consumer'] or 'unknown'} {row['share']:.0%}")
    rows = [
        (
            consumed_from(row),
            f"{row['consumers']:,}",
            "" if row["imbalance"] is None else f"{row['imbalance']:.2f}",
            ", ".join(consumers[consumed_from(row)][:3]) + (", …" if row["consumers"] > 3 else ""),
        )
        for _, row in _largest(results.rows("consumer_balance"), top, "destination")
    ]
    return Listing(
        "Consumers",
        "Imbalance is how much more than an equal part the busiest consumer has had: 0 if all had the same, 1 if it "
        "had twice as much.",
        ("queue or subscription", "consumers", "imbalance", "shares of the busiest"),
        ("consumers", "imbalance"),
        rows,
        max(0, len(results.rows("consumer_balance")) - top),
    )


def _reasons(results: Results, top: int) -> Listing:
    rows = [
        (name, row["reason"], row["error"] or "", f"{row['messages']:,}")
        for name, row in _largest(results.rows("dead_letters"), top, "destination")
    ]
    return Listing(
        "Dead letters",
        "The error is the last line of the last one, as far as the dead letter is still there or in the history.",
        ("destination", "reason", "error", "messages"),
        ("messages",),
        rows,
        max(0, len(results.rows("dead_letters")) - top),
    )


def _groups(results: Results, top: int) -> Listing:
    rows = [
        (name, row["group_id"], f"{row['messages']:,}", _size(row["bytes"]))
        for name, row in _largest(results.rows("largest_groups"), top, "destination")
    ]
    return Listing(
        "Largest groups",
        "Groups are those of JMSXGroupID.",
        ("destination", "group", "messages", "size"),
        ("messages", "size"),
        rows,
        0,
    )


def _largest(rows: Iterable[dict[str, Any]], top: int, key: str) -> list[tuple[str, dict[str, Any]]]:
    return [(row[key], row) for row in sorted(rows, key=lambda row: (-row["messages"], row[key]))[:top]]


def _size(number: int) -> str:
    for factor, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if number >= factor:
            return f"{number / factor:,.1f} {unit}"
    return f"{number} B"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if abs(seconds) < 1:
        return f"{seconds * 1000:,.0f} ms"
    return (
        f"{seconds:,.1f} s"
        if seconds < 600
        else f"{seconds / 60:,.0f} min"
        if seconds < 36_000
        else f"{seconds / 3600:,.0f} h"
    )
