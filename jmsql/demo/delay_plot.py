"""The plot of when flights are late."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from jmsql.demo.delays import Delay

__all__ = ["plot_delays"]

_COLORS = ("#4477aa", "#ee6677", "#228833")  # most people can tell them apart
_MARKERS = ("o", "s", "^")
_LINES = ("-", "--", ":")


def plot_delays(delays: Sequence[Delay], output: Path) -> tuple[Path, ...]:
    """Plot the delays to ``delays.png`` and ``delays.svg`` in a directory, and return the files."""
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    axes = figure.subplots()
    origins = sorted({delay.origin for delay in delays})
    for number, origin in enumerate(origins):
        shown = [delay for delay in delays if delay.origin == origin and delay.mean_delay is not None]
        axes.plot(
            [delay.hour for delay in shown],
            [delay.mean_delay or 0.0 for delay in shown],
            _LINES[number % len(_LINES)],
            marker=_MARKERS[number % len(_MARKERS)],
            color=_COLORS[number % len(_COLORS)],
            label=f"{origin} ({sum(delay.flights for delay in delays if delay.origin == origin):,} flights)",
        )
    axes.set_title("Mean delay of departure by hour and airport", loc="left")
    axes.set_xlabel("hour of the scheduled departure (New York)")
    axes.set_ylabel("mean delay of departure (minutes)")
    axes.xaxis.set_major_locator(MultipleLocator(2))
    axes.grid(visible=True, color="#d8dee4", linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    output.mkdir(parents=True, exist_ok=True)
    files = (output / "delays.png", output / "delays.svg")
    for file in files:
        figure.savefig(file, dpi=144)
    return files
