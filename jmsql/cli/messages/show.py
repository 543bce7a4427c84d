"""`jmsql show`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from jmsql.cli.messages.documents import message_as_text, message_document, past_document, past_message_as_text
from jmsql.cli.options import Json, Schema, Url, open_database
from jmsql.cli.terminal.output import json_text, working, write
from jmsql.store.administration.inspection import FoundMessage

__all__ = ["show"]

NOTHING_FOUND = 1


def show(
    message_id: Annotated[str, typer.Argument(metavar="MESSAGE_ID", help="Its JMSMessageID.", show_default=False)],
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """Show one message whole: its headers, properties and body, where it is, and where its delivery stands.

    A message that was published is shown for each subscription that holds it. What has left destinations that keep
    history is shown from there. All messages are read for it. A dead letter has the properties JMS_jmsql_..., which
    say where it comes from.

    With --json, each is a line. Exits with 1 if there is none.

    Example: `jmsql show ID:7d3a1c5e-3f0b-4c55-9a35-2a5b6c7d8e9f`
    """
    with open_database(url, schema).administration() as administration, working("Looking for it ..."):
        found = administration.message(message_id)
        past = administration.history.message(message_id)
    for each in found:
        write(json_text(_document(each)).encode() + b"\n" if as_json else _text(each))
    for entry in past:
        write(json_text(past_document(entry)).encode() + b"\n" if as_json else past_message_as_text(entry))
    if not found and not past:
        typer.echo(f"There is no message {message_id} in a queue or a subscription, and none in the history.", err=True)
        raise typer.Exit(NOTHING_FOUND)


def _place(found: FoundMessage) -> dict[str, Any]:
    destination = found.message.jms_destination
    return {
        "destination": None if destination is None else destination.uri,
        "subscription": found.subscription,
        "client_id": found.client_id,
    }


def _document(found: FoundMessage) -> dict[str, Any]:
    document = message_document(found.message)
    del document["redelivered"]
    return document | _place(found) | found.delivery._asdict()


def _text(found: FoundMessage) -> bytes:
    return message_as_text(found.message, _place(found) | found.delivery._asdict() | {"redelivered": None})
