"""What the demo shows at its end."""

from __future__ import annotations

from typing import Any

import plotext
from rich.text import Text

from jmsql.cli.demo.accident import Casualty
from jmsql.cli.demo.flights import airlines
from jmsql.cli.demo.reconciliation import Outcome
from jmsql.cli.output import console, counted, table

__all__ = ["outcome_document", "print_outcome"]

_FLIGHTS_SHOWN = 10
_PLOT_WIDTH = 100
_PLOT_HEIGHT = 16


def outcome_document(outcome: Outcome, casualty: Casualty) -> dict[str, Any]:
    """Describe the outcome in JSON's terms."""
    return {
        "reconciled": outcome.is_reconciled,
        "flights": outcome.flights,
        "handled": outcome.handled,
        "redelivered": outcome.redelivered,
        "left_in_queue": outcome.left_in_queue,
        "seconds": outcome.seconds,
        "sent_per_second": _rate(outcome.flights, outcome.sending_seconds),
        "handled_per_second": _rate(outcome.handled, outcome.seconds),
        "killed": casualty._asdict(),
        "discrepancies": {each.what: each.flight_ids for each in outcome.discrepancies},
        "workers": outcome.workers,
        "carriers": [carrier._asdict() for carrier in outcome.carriers],
    }


def print_outcome(outcome: Outcome, casualty: Casualty) -> None:
    """Print the outcome: a table of the airlines, a plot of the rates, and the verdict."""
    screen = console()
    names = airlines()
    numbers = ("flights", "handled", "redelivered", "delay desk", "mean delay")
    listing = table("carrier", "airline", *numbers, numbers=numbers)
    for each in outcome.carriers:
        listing.add_row(
            each.carrier,
            names.get(each.carrier, ""),
            f"{each.flights:,}",
            f"{each.handled:,}",
            f"{each.redelivered:,}",
            f"{each.at_the_delay_desk:,}",
            "" if each.mean_delay is None else f"{each.mean_delay:.1f} min",
        )
    at_desk = sum(each.at_the_delay_desk for each in outcome.carriers)
    listing.add_section()
    listing.add_row(
        "", "all", f"{outcome.flights:,}", f"{outcome.handled:,}", f"{outcome.redelivered:,}", f"{at_desk:,}"
    )
    screen.print(listing)
    screen.print()
    screen.print(Text.from_ansi(_plot(outcome, min(screen.width, _PLOT_WIDTH))))
    screen.print()
    screen.print(
        f"Sent {_rate(outcome.flights, outcome.sending_seconds):,.0f} messages per second, handled "
        f"{_rate(outcome.handled, outcome.seconds):,.0f} per second, in {outcome.seconds:.1f} s."
    )
    screen.print(f"Handled by {', '.join(f'{name}: {count:,}' for name, count in outcome.workers.items())}.")
    screen.print(
        f"{outcome.redelivered:,} were rolled back and delivered again. "
        f"{casualty.worker} was killed with {len(casualty.flight_ids)} received and not committed."
    )
    _print_verdict(outcome)


def _print_verdict(outcome: Outcome) -> None:
    screen = console()
    for each in outcome.discrepancies:
        shown = ", ".join(map(str, each.flight_ids[:_FLIGHTS_SHOWN]))
        more = ", …" if len(each.flight_ids) > _FLIGHTS_SHOWN else ""
        screen.print(f"{counted(len(each.flight_ids), 'flight')} {each.what}: {shown}{more}", style="bold red")
    if outcome.left_in_queue:
        verb = "is" if outcome.left_in_queue == 1 else "are"
        screen.print(f"{counted(outcome.left_in_queue, 'message')} {verb} left in the queue.", style="bold red")
    if outcome.is_reconciled:
        screen.print(
            f"Reconciled: {outcome.flights:,} flights, each handled exactly once; the queue is empty.",
            style="bold green",
        )
    else:
        screen.print("NOT RECONCILED.", style="bold red")


def _plot(outcome: Outcome, width: int) -> str:
    figure = plotext.figure
    figure.clear()
    figure.theme("simple")
    at = [step.at for step in outcome.steps]
    figure.draw(figure.signal(at, [step.stored_per_second for step in outcome.steps], marker="braille").lines())
    figure.draw(figure.signal(at, [step.handled_per_second for step in outcome.steps], marker="hd").lines())
    figure.line(outcome.killed_after, "vertical")
    top = max(max(step.stored_per_second, step.handled_per_second) for step in outcome.steps)
    ticks = [0.0, top / 2, top]
    figure.ruler("y").lim(0, top).ticks(ticks, [f"{tick:,.0f}" for tick in ticks])
    figure.title("Messages per second: sent ⢕, handled ▚; a worker is killed │")
    figure.label("seconds")
    figure.plot_size(width, _PLOT_HEIGHT)
    return str(figure.build())


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds else 0.0
