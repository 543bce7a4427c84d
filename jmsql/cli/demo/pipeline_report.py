"""What the demo shows of its pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotext
from rich.text import Text

from jmsql.cli.demo.report import print_discrepancies
from jmsql.cli.terminal.output import console
from jmsql.demo.delays import Delay
from jmsql.demo.pipeline import Piped

__all__ = ["pipeline_document", "print_pipeline"]

_WIDTH = 100
_HEIGHT = 14
_MARKERS = ("hd", "braille", "dot")
_SIGNS = ("▚", "⢕", "•")


def pipeline_document(piped: Piped | str) -> dict[str, Any]:
    """Describe the outcome, or why the pipeline was left out, in JSON's terms."""
    if isinstance(piped, str):
        return {"left_out": piped}
    return {
        "archive": str(piped.archive),
        "archived": piped.archived,
        "reconciled": piped.is_reconciled,
        "discrepancies": {each.what: each.flight_ids for each in piped.discrepancies},
        "delays": [delay._asdict() for delay in piped.delays],
        "plots": [str(path) for path in piped.plots],
    }


def print_pipeline(piped: Piped | str) -> None:
    """Print the outcome: a plot of the delays, where the files are, and the verdict; or why it was left out."""
    screen = console()
    screen.print()
    if isinstance(piped, str):
        screen.print(f"The flights were not archived, and no delays computed. {piped}", markup=False)
        return
    screen.print(Text.from_ansi(_plot(piped.delays, min(screen.width, _WIDTH))))
    screen.print()
    screen.print(f"The plot is in {' and '.join(map(str, piped.plots))}.", markup=False)
    print_discrepancies(piped.discrepancies)
    if piped.is_reconciled:
        screen.print(
            Text(f"Archived: {piped.archived:,} messages in {piped.archive}, each flight once.", style="bold green")
        )
    else:
        screen.print("THE ARCHIVE IS NOT RECONCILED.", style="bold red")


def _plot(delays: Sequence[Delay], width: int) -> str:
    figure = plotext.figure
    figure.clear()
    figure.theme("simple")
    origins = sorted({delay.origin for delay in delays})
    for origin, marker in zip(origins, _MARKERS, strict=False):
        shown = [delay for delay in delays if delay.origin == origin and delay.mean_delay is not None]
        at = [delay.hour for delay in shown]
        figure.draw(figure.signal(at, [delay.mean_delay for delay in shown], marker=marker).lines())
    signs = ", ".join(f"{origin} {sign}" for origin, sign in zip(origins, _SIGNS, strict=False))
    figure.title(f"Mean delay of departure in minutes: {signs}")
    figure.label("hour of the scheduled departure")
    figure.plot_size(width, _HEIGHT)
    return str(figure.build())
