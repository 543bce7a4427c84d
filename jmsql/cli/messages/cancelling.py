"""`jmsql cancel`: messages that are not to be handled any more."""

from __future__ import annotations

from typing import Annotated

import typer

from jmsql.cli.options import Json, Schema, Url, open_database
from jmsql.cli.output import console, print_json

_NOT_ALL = 1


def cancel(
    message_ids: Annotated[
        list[str], typer.Argument(metavar="ID...", help="The messages' identifiers.", show_default=False)
    ],
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """Cancel messages, which are given by their identifiers, also while they are handled.

    It shows the outcome of each: removed, if it waited; asked, if a client has received it: it is removed, its handler
    is ended, and uncommitted work is rolled back; locked, if an open transaction of another session has received it,
    and it stays (a topic's message: in that subscription); gone, if it was handled, has expired or is a dead letter.
    If one is locked or gone, the exit code is 1.

    Example: `jmsql cancel ID:0189c2f0-3c4b-4d5e-8f60-718293a4b5c6`
    """
    with open_database(url, schema).administration() as administration:
        outcomes = {message_id: administration.cancel(message_id) for message_id in dict.fromkeys(message_ids)}
    if as_json:
        print_json(outcomes)
    else:
        for message_id, outcome in outcomes.items():
            console().print(f"{message_id}: {outcome}", markup=False)
    if not {"removed", "asked"}.issuperset(outcomes.values()):
        raise typer.Exit(_NOT_ALL)
