"""The report: one HTML file with all that it shows in it, and the plots as files beside it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

from jinja2 import Environment, StrictUndefined

from jmsql.spark.statistics.listings import list_statistics
from jmsql.spark.statistics.plots import draw_plots, render
from jmsql.spark.statistics.results import Results

__all__ = ["write_report"]

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

    Args:
        results: The statistics, which are not empty.
        directory: Where to.
        top: How many rows and destinations are shown.
        progress: Is told how far it is.

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
