"""`jmsql browse` and `jmsql show`: messages are looked at, and left where they are."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from jmsql.cli.advice import advice
from jmsql.cli.messages.documents import (
    body_preview,
    delivery_document,
    message_as_text,
    message_document,
    past_document,
    past_message_as_text,
    properties_preview,
)
from jmsql.cli.messages.sources import ClientId, Source, SubscriptionName
from jmsql.cli.options import (
    DestinationName,
    Json,
    Schema,
    Selector,
    Url,
    check_selector,
    open_database,
)
from jmsql.cli.output import age, json_text, print_table, remark_more, remark_unseen, table, working, write
from jmsql.store.administration.inspection import FoundMessage
from jmsql.store.administration.places import Place

NOTHING_FOUND = 1


def _parse_place(text: str) -> Place:
    try:
        return Place.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def browse(
    destination: DestinationName,
    selector: Selector = None,
    subscription: SubscriptionName = None,
    client_id: ClientId = None,
    after: Annotated[
        Place | None,
        typer.Option(
            metavar="PLACE",
            parser=_parse_place,
            help="Start after this position, which --json shows for each message.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The maximum number of messages.")] = 20,
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
    database = open_database(url, schema)
    now = database.clock()
    with database.administration() as administration:
        for message, delivery in source.browse(administration, selector, after, limit + 1):
            shown += 1
            if shown > limit:
                break
            if as_json:
                document = message_document(message)
                del document["redelivered"]
                write(json_text(document | delivery_document(delivery)).encode() + b"\n")
                continue
            sent = datetime.fromtimestamp(message.jms_timestamp / 1000, UTC) if message.jms_timestamp else None
            cells = (
                message.jms_message_id or "",
                delivery.state,
                str(message.jms_priority),
                age(sent, now),
                str(delivery.delivery_count),
                properties_preview(message),
                body_preview(message),
            )
            listing.add_row(*cells)
    if shown and not as_json:
        print_table(listing)
    remark_more(shown, limit)
    if not shown:
        typer.echo("No message found.", err=True)
        raise typer.Exit(NOTHING_FOUND)


def show(
    message_id: Annotated[str, typer.Argument(metavar="MESSAGE_ID", help="Its JMSMessageID.", show_default=False)],
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """Show one message whole: its headers, properties and body, where it is, and where its delivery stands.

    A message that was published is shown for each subscription that holds it. Messages that have left destinations with
    history is shown from there. The whole table of messages is read for it:
    identifiers have no index. A dead letter has the properties JMS_jmsql_..., which
    say where it comes from.

    With --json, each is a line. Exits with 1 if no message was found.

    Example: `jmsql show ID:7d3a1c5e-3f0b-4c55-9a35-2a5b6c7d8e9f`
    """
    with open_database(url, schema).administration() as administration, working("Looking for it ..."):
        found = administration.message(message_id)
        past = administration.history.message(message_id)
        sees_all = administration.sees_all_messages()
    for each in found:
        write(json_text(_document(each)).encode() + b"\n" if as_json else _text(each))
    for entry in past:
        write(json_text(past_document(entry)).encode() + b"\n" if as_json else past_message_as_text(entry))
    remark_unseen(sees_all=sees_all)
    if not found and not past:
        typer.echo(f"There is no message {message_id} in a queue or a subscription, and none in the history.", err=True)
        if open_database(url, schema).result(message_id).state != "unknown":
            typer.echo(advice(f"Its result is stored: `jmsql result show {message_id}`."), err=True)
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
    return document | _place(found) | delivery_document(found.delivery)


def _text(found: FoundMessage) -> bytes:
    return message_as_text(found.message, _place(found) | delivery_document(found.delivery) | {"redelivered": None})
