"""`jmsql browse`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from jmsql.cli.messages.documents import body_preview, message_document
from jmsql.cli.messages.sources import ClientId, DestinationName, Source, SubscriptionName
from jmsql.cli.options import Json, Schema, Selector, Url, check_selector, open_database
from jmsql.cli.terminal.output import age, json_text, print_table, table, write

__all__ = ["browse"]

NOTHING_FOUND = 1


def browse(
    destination: DestinationName,
    selector: Selector = None,
    subscription: SubscriptionName = None,
    client_id: ClientId = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many messages.")] = 20,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """Show the messages of a queue, or of a durable subscription to a topic, in the order of their delivery.

    They are left there. Those that clients have claimed, that wait or that have expired are shown too, and at last
    those that are delayed.
    With --json, each message is a line with all that is known of it; `jmsql show` shows a single one whole.

    Exits with 1 if there is none.

    Examples:
    - `jmsql browse orders --selector "weight > 2500" --limit 5`
    - `jmsql browse topic://prices --subscription audit --client-id warehouse`
    """
    source = Source.read(destination, subscription, client_id)
    if source.ends_with_its_consumer:
        raise typer.BadParameter("A topic holds no messages, its subscriptions do: give --subscription.")
    check_selector(selector)
    shown = 0
    listing = table(
        *("message", "state", "priority", "age", "delivered", "properties", "body"),
        numbers=("priority", "age", "delivered"),
        cut=("properties", "body"),
        spare=("delivered", "priority", "properties", "age", "state"),
    )
    with open_database(url, schema).administration() as administration:
        for message, delivery in source.browse(administration, selector, limit):
            shown += 1
            document = message_document(message)
            if as_json:
                del document["redelivered"]
                write(json_text(document | delivery._asdict()).encode() + b"\n")
                continue
            sent = datetime.fromtimestamp(message.jms_timestamp / 1000, UTC) if message.jms_timestamp else None
            cells = (
                message.jms_message_id or "",
                delivery.state,
                str(message.jms_priority),
                age(sent),
                str(delivery.delivery_count),
                " ".join(f"{name}={message.get_string_property(name)}" for name in document["properties"]),
                body_preview(message),
            )
            listing.add_row(*cells)
    if shown and not as_json:
        print_table(listing)
    if not shown:
        typer.echo("No message found.", err=True)
        raise typer.Exit(NOTHING_FOUND)
