"""`jmsql rates`: destinations' rates, minute by minute."""

from __future__ import annotations

from typing import Annotated

import typer

from jmsql.admin import DestinationRate
from jmsql.cli.monitoring.keep_days import answer_kept, keep_days_option
from jmsql.cli.options import Json, Schema, Url, open_database
from jmsql.cli.output import print_rows


def rates(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="The queue, or the topic, whose subscriptions come with it. By default all destinations together.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The maximum number; the last ones.")] = 15,
    keep_days: Annotated[int | None, keep_days_option("rates", 366, "note none, and remove those there are")] = None,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """List past rates of destinations: messages in and out, failures, time in queue and time of handling.

    Rates of the last hour stand for a minute, older ones for ten. The last minute comes first. Times are means.

    Example: `jmsql rates orders --limit 60`
    """
    with open_database(url, schema).administration() as administration:
        if keep_days is not None:
            administration.keep_rates(keep_days)
            answer_kept("rates", "rates_days", keep_days, as_json=as_json)
            return
        found = administration.rates(name, limit=limit)
        days = 1 if found else administration.rates_days()
    nothing = "No rates are noted yet." if days else "Rates are not noted: --keep-days 7 keeps those of seven days."
    print_rows(
        found,
        lambda each: (
            *(f"{each.minute.astimezone():%Y-%m-%d %H:%M}", _name(each)),
            *(f"{number:,}" for number in (each.sent, each.acknowledged, each.rolled_back)),
            *(_seconds(each.time_in_queue), _seconds(each.handling_time)),
        ),
        *("minute", "destination", "in", "out", "back", "in queue", "handling"),
        numbers=("in", "out", "back", "in queue", "handling"),
        nothing=nothing,
        as_json=as_json,
    )


def _name(each: DestinationRate) -> str:
    if each.kind == "subscription":
        return f"{each.destination} → {each.subscription or 'not durable'}"
    return each.destination or "all"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:,.3f} s"
