"""What the demo shows at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotext
from rich.text import Text

from jmsql.cli.terminal.listing import Listing
from jmsql.cli.terminal.output import console, counted, table
from jmsql.demo.accident import Casualty
from jmsql.demo.flights import airlines
from jmsql.demo.reconciliation import Discrepancy, Outcome
from jmsql.demo.subscription_reconciliation import Reception

__all__ = ["outcome_document", "print_discrepancies", "print_outcome"]

_FLIGHTS_SHOWN = 10
_PLOT_WIDTH = 100
_PLOT_HEIGHT = 16


def outcome_document(outcome: Outcome, casualties: Sequence[Casualty]) -> dict[str, Any]:
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
        "killed": [casualty._asdict() for casualty in casualties],
        "discrepancies": {each.what: each.flight_ids for each in outcome.discrepancies},
        "workers": outcome.workers,
        "carriers": [carrier._asdict() for carrier in outcome.carriers],
        "subscriptions": [reception._asdict() for reception in outcome.receptions],
    }


def print_outcome(outcome: Outcome, casualties: Sequence[Casualty]) -> None:
    """Print the outcome: tables of the airlines and the subscriptions, a plot of the rates, and the verdict."""
    screen = console()
    screen.print(_airlines(outcome))
    screen.print()
    screen.print(_subscriptions(outcome.receptions))
    screen.print()
    screen.print(Text.from_ansi(_plot(outcome, min(screen.width, _PLOT_WIDTH))))
    screen.print()
    screen.print(
        f"Sent {_rate(outcome.flights, outcome.sending_seconds):,.0f} flights per second to queue and topic, handled "
        f"{_rate(outcome.handled, outcome.seconds):,.0f} per second, in {outcome.seconds:.1f} s."
    )
    screen.print(f"Handled by {_shares(outcome.workers)}.")
    for each in outcome.receptions:
        if len(each.workers) > 1:
            screen.print(f"Received from {each.subscription!r} by {_shares(each.workers)}.")
    screen.print(f"{outcome.redelivered:,} were rolled back and delivered again.")
    for casualty in casualties:
        screen.print(f"{casualty.worker} was killed with {len(casualty.flight_ids)} received and not committed.")
    _print_verdict(outcome)


def print_discrepancies(discrepancies: Sequence[Discrepancy]) -> None:
    """Print what must not be."""
    for each in discrepancies:
        shown = ", ".join(map(str, each.flight_ids[:_FLIGHTS_SHOWN]))
        more = ", …" if len(each.flight_ids) > _FLIGHTS_SHOWN else ""
        console().print(f"{counted(len(each.flight_ids), 'flight')} {each.what}: {shown}{more}", style="bold red")


def _airlines(outcome: Outcome) -> Listing:
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
    listing.add_row(
        "", "all", f"{outcome.flights:,}", f"{outcome.handled:,}", f"{outcome.redelivered:,}", f"{at_desk:,}"
    )
    return listing


def _subscriptions(receptions: Sequence[Reception]) -> Listing:
    numbers = ("by SQL", "received", "wrong", "left")
    listing = table("subscription", "selector", *numbers, numbers=numbers)
    for each in receptions:
        wrong = len(each.missing) + len(each.unexpected) + len(each.received_twice)
        counts = (each.chosen, each.received, wrong, each.left)
        listing.add_row(each.subscription, each.selector or "(all)", *(f"{count:,}" for count in counts))
    return listing


def _print_verdict(outcome: Outcome) -> None:
    screen = console()
    print_discrepancies([*outcome.discrepancies, *_discrepancies(outcome.receptions)])
    left = {"the queue": outcome.left_in_queue} | {
        f"the subscription {each.subscription!r}": each.left for each in outcome.receptions
    }
    for place, number in left.items():
        if number:
            verb = "is" if number == 1 else "are"
            screen.print(f"{counted(number, 'message')} {verb} left in {place}.", style="bold red")
    if outcome.is_reconciled:
        screen.print(
            f"Reconciled: {outcome.flights:,} flights, each handled exactly once, and received exactly once by each of "
            f"{counted(len(outcome.receptions), 'subscription')} whose selector chooses it; nothing is left.",
            style="bold green",
        )
    else:
        screen.print("NOT RECONCILED.", style="bold red")


def _discrepancies(receptions: Sequence[Reception]) -> list[Discrepancy]:
    """Name what must not be in the subscriptions."""
    found = []
    for each in receptions:
        of = f"the subscription {each.subscription!r}"
        found += [
            Discrepancy(f"missing in {of}", each.missing),
            Discrepancy(f"received from {of} and not chosen by its selector", each.unexpected),
            Discrepancy(f"received twice from {of}", each.received_twice),
        ]
    return [each for each in found if each.flight_ids]


def _shares(workers: Mapping[str, int]) -> str:
    return ", ".join(f"{name}: {count:,}" for name, count in workers.items())


def _plot(outcome: Outcome, width: int) -> str:
    figure = plotext.figure
    figure.clear()
    figure.theme("simple")
    at = [step.at for step in outcome.steps]
    figure.draw(figure.signal(at, [step.stored_per_second for step in outcome.steps], marker="braille").lines())
    figure.draw(figure.signal(at, [step.handled_per_second for step in outcome.steps], marker="hd").lines())
    for moment in outcome.killed_after:
        figure.line(moment, "vertical")
    top = max(max(step.stored_per_second, step.handled_per_second) for step in outcome.steps)
    ticks = [0.0, top / 2, top]
    figure.ruler("y").lim(0, top).ticks(ticks, [f"{tick:,.0f}" for tick in ticks])
    figure.title("Messages per second: sent ⢕, handled ▚; a worker is killed │")
    figure.label("seconds")
    figure.plot_size(width, _PLOT_HEIGHT)
    return str(figure.build())


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds else 0.0
