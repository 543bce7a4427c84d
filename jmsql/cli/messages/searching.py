"""`jmsql search`: messages of all queues and subscriptions by identifier, group, type, property or selector."""

from __future__ import annotations

from typing import Annotated

import typer

from jmsql.cli.messages.documents import body_preview, delivery_document, message_document, properties_preview
from jmsql.cli.options import Json, Schema, Selector, Url, check_selector, open_database
from jmsql.cli.output import json_text, print_table, remark_unseen, table, working, write
from jmsql.store.administration.inspection import FoundMessage
from jmsql.store.administration.searching import Position

NOTHING_FOUND = 1


def _parse_position(text: str) -> Position:
    try:
        return Position.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _parse_properties(given: list[str]) -> dict[str, str]:
    properties = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"Expected a property such as customer=7, got {each!r}.")
        properties[name.strip()] = value
    return properties


def search(
    message_id: Annotated[str | None, typer.Option("--id", metavar="ID", help="The JMSMessageID.")] = None,
    correlation_id: Annotated[
        str | None, typer.Option("--correlation-id", metavar="ID", help="The JMSCorrelationID.")
    ] = None,
    group: Annotated[str | None, typer.Option("--group", help="The group, the property JMSXGroupID.")] = None,
    jms_type: Annotated[str | None, typer.Option("--jms-type", help="The JMSType.")] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", "-p", metavar="NAME=VALUE", help="A property; may be given several times."),
    ] = None,
    selector: Selector = None,
    after: Annotated[
        Position | None,
        typer.Option(metavar="POSITION", parser=_parse_position, help="Go on where a search ended that says so."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The maximum number of messages.")] = 20,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """Search the messages of all queues and subscriptions, by identifier, group, type, property or selector.

    A message is shown that meets all given conditions, for each queue and subscription that holds it: ready, claimed,
    waiting, expired, delayed, or a dead letter. A value such as 7 or true stands for the number or boolean and for the
    text. No index helps: messages are read in the order of their keys until enough are found. A last line says how to
    go on. Messages that have left their destination are in the history: `jmsql history show`.

    With --json, each message is a line. Exits with 1 if there is none.

    Examples:
    - `jmsql search -p customer=C-7 --jms-type order`
    - `jmsql search --correlation-id 7d3a1c5e -n 5`
    """
    check_selector(selector)
    given = _parse_properties(properties or [])
    if not any((message_id, correlation_id, group, jms_type, given, selector)):
        raise typer.BadParameter("Give --id, --correlation-id, --group, --jms-type, --property or --selector.")
    found: list[FoundMessage] = []
    position = after
    with open_database(url, schema).administration() as administration:
        with working("Searching ..."):
            while True:
                result = administration.search(
                    selector,
                    message_id=message_id,
                    correlation_id=correlation_id,
                    group=group,
                    jms_type=jms_type,
                    properties=given,
                    after=position,
                    limit=limit - len(found),
                )
                found += result.messages
                position = result.next
                if position is None or len(found) >= limit:
                    break
        sees_all = administration.sees_all_messages()
    if as_json:
        for each in found:
            write(json_text(_document(each)).encode() + b"\n")
    elif found:
        listing = table(
            *("message", "destination", "state", "type", "correlation id", "properties", "body"),
            cut=("properties", "body"),
            spare=("correlation id", "type", "properties"),
        )
        for each in found:
            message = each.message
            listing.add_row(
                message.jms_message_id or "",
                _place(each),
                each.delivery.state,
                message.jms_type or "",
                message.jms_correlation_id or "",
                properties_preview(message),
                body_preview(message),
            )
        print_table(listing)
    if position is not None:
        typer.echo(f"There may be more: the same with --after {position} goes on.", err=True)
    remark_unseen(sees_all=sees_all)
    if not found:
        typer.echo("No message found.", err=True)
        raise typer.Exit(NOTHING_FOUND)


def _place(found: FoundMessage) -> str:
    name = "" if found.message.jms_destination is None else found.message.jms_destination.uri
    return name if found.subscription is None else f"{name} -> {found.subscription}"


def _document(found: FoundMessage) -> dict[str, object]:
    document = message_document(found.message)
    del document["redelivered"]
    destination = found.message.jms_destination
    where = {
        "destination": None if destination is None else destination.uri,
        "subscription": found.subscription,
        "client_id": found.client_id,
        "position": str(Position(found.number, found.delivery.place)),
    }
    return document | where | delivery_document(found.delivery)
