"""`jmsql doctor`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from jmsql.cli.advice import advice
from jmsql.cli.options import Json, Schema, Url, open_database
from jmsql.cli.output import console, in_lines, print_json, table, working
from jmsql.client._sync.link.opening import open_runner
from jmsql.doctor import Finding, Health, Thresholds, examine
from jmsql.values.counting import counted

UNHEALTHY = 1
_STYLES = {Health.ok: "green", Health.note: "yellow", Health.problem: "bold red"}


def doctor(
    oldest_snapshot: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="For how long a transaction may hold vacuum back.")
    ] = 60.0,
    longest_transaction: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="For how long a transaction may hold messages.")
    ] = 60.0,
    longest_claim: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="For how long a client may hold a message.")
    ] = 600.0,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """Examine the database: the schema, who holds messages, who receives, and all that keeps vacuum from its work.

    It gives advice for each problem, and changes nothing. A note is worth knowing, and may well be intended.

    Exits with 1 if there is a problem.

    Example: `jmsql doctor --oldest-snapshot 10`
    """
    database = open_database(url, schema)
    with open_runner(database.url, schema, requires_schema=False) as runner, working("Examining ..."):
        findings = [
            finding._replace(advice=None if finding.advice is None else advice(finding.advice))
            for finding in examine(runner, Thresholds(oldest_snapshot, longest_transaction, longest_claim))
        ]
    problems = sum(finding.health is Health.problem for finding in findings)
    if as_json:
        print_json({"healthy": not problems, "findings": [finding._asdict() for finding in findings]})
    else:
        _print(findings, problems)
    if problems:
        raise typer.Exit(UNHEALTHY)


def _print(findings: list[Finding], problems: int) -> None:
    listing = table("check", "", "finding")
    for finding in findings:
        says = in_lines(finding.says)
        if finding.advice is not None:
            says.append(f"\n→ {finding.advice}", "bold")
        listing.add_row(finding.check, Text(finding.health.value, _STYLES[finding.health]), says)
    screen = console()
    screen.print(listing)
    screen.print()
    if problems:
        screen.print(f"{counted(problems, 'problem')} found.", style="bold red")
    elif notes := sum(finding.health is Health.note for finding in findings):
        screen.print(f"No problem, and {counted(notes, 'note')}.", style="bold yellow")
    else:
        screen.print("All is well.", style="bold green")
