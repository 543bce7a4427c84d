"""The option `--keep-days` of commands that list records which the database keeps for some days."""

from __future__ import annotations

from typing import Any

import typer

from jmsql.cli.output import answer


def keep_days_option(records: str, most: int, at_zero: str) -> Any:
    """Return the option; `at_zero` completes its help."""
    return typer.Option(
        min=0,
        max=most,
        metavar="DAYS",
        help=f"Keep {records} for so many days from now on, and list none. 0: {at_zero}.",
        show_default=False,
    )


def answer_kept(records: str, field: str, days: int, *, as_json: bool) -> None:
    """Print for how many days records are kept from now on."""
    text = f"{records.capitalize()} are " + (f"kept for {days:,} days." if days else "not noted any more.")
    answer({field: days}, text, as_json=as_json)
