"""The report at the end of the demo: its messages and its pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotext
from rich.text import Text

from jmsql.cli.listing import Listing
from jmsql.cli.output import console, table
from jmsql.demo.crew import Casualty
from jmsql.demo.delays import Delay
from jmsql.demo.flights import airlines
from jmsql.demo.pipeline import Piped
from jmsql.demo.reconciliation import Discrepancy, Outcome, Reception
from jmsql.values.counting import counted

_FLIGHTS_SHOWN = 10
_WIDTH = 100


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
    screen.print(Text.from_ansi(_plot_rates(outcome, min(screen.width, _WIDTH))))
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


def _plot_rates(outcome: Outcome, width: int) -> str:
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
    figure.plot_size(width, 16)
    return str(figure.build())


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds else 0.0


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
    screen.print(Text.from_ansi(_plot_delays(piped.delays, min(screen.width, _WIDTH))))
    screen.print()
    screen.print(f"The plot is in {' and '.join(map(str, piped.plots))}.", markup=False)
    print_discrepancies(piped.discrepancies)
    if piped.is_reconciled:
        screen.print(
            Text(f"Archived: {piped.archived:,} messages in {piped.archive}, each flight once.", style="bold green")
        )
    else:
        screen.print("THE ARCHIVE IS NOT RECONCILED.", style="bold red")


def _plot_delays(delays: Sequence[Delay], width: int) -> str:
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
    figure.plot_size(width, 14)
    return str(figure.build())
