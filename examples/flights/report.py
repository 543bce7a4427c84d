"""The report at the end of the demo: its messages and its pipeline."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import plotext
from rich.console import Console
from rich.table import Table
from rich.text import Text

from examples.flights.crew import Casualty
from examples.flights.delays import Delay
from examples.flights.flights import airlines
from examples.flights.pipeline import Piped
from examples.flights.reconciliation import Discrepancy, Outcome, Reception

_FLIGHTS_SHOWN = 10
_WIDTH = 100
_WIDTH_WITHOUT_TERMINAL = 65536


def screen(*, error: bool = False) -> Console:
    """Return a console on standard output or standard error. Where it is no terminal, no line is broken."""
    console = Console(stderr=error, highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    return console


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 flight``, ``2,000 flights``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document."""
    print(json.dumps(document, indent=2, default=str))


def _table(*columns: str, numbers: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left")
    return table


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
    output = screen()
    output.print(_airlines(outcome))
    output.print()
    output.print(_subscriptions(outcome.receptions))
    output.print()
    output.print(Text.from_ansi(_plot_rates(outcome, min(output.width, _WIDTH))))
    output.print()
    output.print(
        f"Sent {_rate(outcome.flights, outcome.sending_seconds):,.0f} flights per second to queue and topic, handled "
        f"{_rate(outcome.handled, outcome.seconds):,.0f} per second, in {outcome.seconds:.1f} s."
    )
    output.print(f"Handled by {_shares(outcome.workers)}.")
    for each in outcome.receptions:
        if len(each.workers) > 1:
            output.print(f"Received from {each.subscription!r} by {_shares(each.workers)}.")
    output.print(f"{outcome.redelivered:,} were rolled back and delivered again.")
    for casualty in casualties:
        output.print(f"{casualty.worker} was killed with {len(casualty.flight_ids)} received and not committed.")
    _print_verdict(outcome)


def print_discrepancies(discrepancies: Sequence[Discrepancy]) -> None:
    """Print what must not be."""
    for each in discrepancies:
        shown = ", ".join(map(str, each.flight_ids[:_FLIGHTS_SHOWN]))
        more = ", …" if len(each.flight_ids) > _FLIGHTS_SHOWN else ""
        screen().print(f"{counted(len(each.flight_ids), 'flight')} {each.what}: {shown}{more}", style="bold red")


def _airlines(outcome: Outcome) -> Table:
    names = airlines()
    numbers = ("flights", "handled", "redelivered", "delay desk", "mean delay")
    listing = _table("carrier", "airline", *numbers, numbers=numbers)
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


def _subscriptions(receptions: Sequence[Reception]) -> Table:
    numbers = ("by SQL", "received", "wrong", "left")
    listing = _table("subscription", "selector", *numbers, numbers=numbers)
    for each in receptions:
        wrong = len(each.missing) + len(each.unexpected) + len(each.received_twice)
        counts = (each.chosen, each.received, wrong, each.left)
        listing.add_row(each.subscription, each.selector or "(all)", *(f"{count:,}" for count in counts))
    return listing


def _print_verdict(outcome: Outcome) -> None:
    output = screen()
    print_discrepancies([*outcome.discrepancies, *_discrepancies(outcome.receptions)])
    left = {"the queue": outcome.left_in_queue} | {
        f"the subscription {each.subscription!r}": each.left for each in outcome.receptions
    }
    for place, number in left.items():
        if number:
            verb = "is" if number == 1 else "are"
            output.print(f"{counted(number, 'message')} {verb} left in {place}.", style="bold red")
    if outcome.is_reconciled:
        output.print(
            f"Reconciled: {outcome.flights:,} flights, each handled exactly once, and received exactly once by each of "
            f"{counted(len(outcome.receptions), 'subscription')} whose selector chooses it; nothing is left.",
            style="bold green",
        )
    else:
        output.print("NOT RECONCILED.", style="bold red")


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
    output = screen()
    output.print()
    if isinstance(piped, str):
        output.print(f"The flights were not archived, and no delays computed. {piped}", markup=False)
        return
    output.print(Text.from_ansi(_plot_delays(piped.delays, min(output.width, _WIDTH))))
    output.print()
    output.print(f"The plot is in {' and '.join(map(str, piped.plots))}.", markup=False)
    print_discrepancies(piped.discrepancies)
    if piped.is_reconciled:
        output.print(
            Text(f"Archived: {piped.archived:,} messages in {piped.archive}, each flight once.", style="bold green")
        )
    else:
        output.print("THE ARCHIVE IS NOT RECONCILED.", style="bold red")


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
