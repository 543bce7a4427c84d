"""`jmsql receive`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

import typer

from jmsql.cli.advice import advice
from jmsql.cli.messages.documents import body_as_output, message_as_text, message_document, stored_body_as_output
from jmsql.cli.messages.sources import ClientId, Shared, Source, SubscriptionName
from jmsql.cli.options import (
    DestinationName,
    Schema,
    Selector,
    Url,
    check_optional_duration,
    check_selector,
    open_database,
)
from jmsql.cli.output import json_text, write
from jmsql.client._sync.session.consumer import MessageConsumer
from jmsql.exceptions import MessageFormatException
from jmsql.messages import Message

NOTHING_FOUND = 1
_ACKNOWLEDGED_AT_ONCE = 100


class Format(StrEnum):
    """How messages are printed."""

    text = "text"
    json = "json"
    full = "full"


def _body(message: Message) -> bytes:
    try:
        return body_as_output(message)
    except MessageFormatException as error:
        typer.echo(f"The body of {message.jms_message_id} cannot be read. This is what is stored: {error}", err=True)
        return stored_body_as_output(message)


_FORMATS: dict[Format, Callable[[Message], bytes]] = {
    Format.text: _body,
    Format.json: lambda message: json_text(message_document(message)).encode() + b"\n",
    Format.full: message_as_text,
}


def receive(
    destination: DestinationName,
    selector: Selector = None,
    subscription: SubscriptionName = None,
    client_id: ClientId = None,
    shared: Shared = False,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="The maximum number of messages.")] = 1,
    everything: Annotated[bool, typer.Option("--all", help="All messages that are there.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="All messages, also those that arrive later, until Ctrl-C.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            "-t",
            callback=check_optional_duration,
            metavar="SECONDS",
            help="How long to wait for each message; without it not at all, or for ever on a topic without "
            "--subscription.",
        ),
    ] = None,
    form: Annotated[
        Format, typer.Option("--format", help="The body alone, JSON lines, or headers and body.")
    ] = Format.text,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    r"""Dequeue messages of a queue, or of a subscription to a topic, and print them.

    A message is acknowledged after it was printed: if that fails, it stays in the queue. Text and JSON bodies end with
    an end of line; the body of a BytesMessage is written as it is.

    On a topic alone, it prints messages that are published from now on. With --subscription, it prints the messages
    that a durable subscription has collected. The subscription is made if it is not there, and collects on when the
    command ends. It belongs to
    the client --client-id, or is shared.

    Exits with 1 if no message came.

    Examples:
    - `jmsql receive orders`
    - `jmsql receive orders --all --json | jq .body`
    - `jmsql receive orders --follow --selector "color = 'blue'"`
    - `jmsql receive topic://prices --follow`
    - `jmsql receive topic://prices --subscription audit --client-id warehouse --all`
    """
    source = Source.read(destination, subscription, client_id, shared=shared)
    source.require_owner()
    check_selector(selector)
    database = open_database(url, schema)
    limit = sys.maxsize if everything or follow else count
    with database.factory().create_connection() as connection:
        with database.administration() as administration:
            consumer = source.consume(administration, connection, selector)
            is_paused = source.is_paused(administration)
        connection.start()
        if is_paused:
            command = f"jmsql resume {shlex.quote(destination)}"
            goes_on = advice(f"`{command}` goes on with its delivery.")
            typer.echo(f"{source.destination} is paused: no message comes. {goes_on}", err=True)
        if source.ends_with_its_consumer:
            typer.echo(f"Subscribed to {source.destination}.", err=True)
        elif timeout is None:
            timeout = 0.0
        received = _print_messages(
            consumer, limit, None if follow else timeout, _FORMATS[Format.json if as_json else form]
        )
    if not received:
        typer.echo("No message came.", err=True)
        raise typer.Exit(NOTHING_FOUND)


def _print_messages(
    consumer: MessageConsumer, limit: int, timeout: float | None, form: Callable[[Message], bytes]
) -> int:
    """Print up to `limit` messages, acknowledge them once they are out, and return how many there were."""
    received = 0
    unacknowledged: Message | None = None
    while received < limit:
        message = consumer.receive(timeout if unacknowledged is None else 0)
        if message is not None:
            write(form(message))
            received += 1
            unacknowledged = message
        elif unacknowledged is None:
            break
        if unacknowledged is not None and (message is None or received % _ACKNOWLEDGED_AT_ONCE == 0):
            _acknowledge(unacknowledged)
            unacknowledged = None
    if unacknowledged is not None:
        _acknowledge(unacknowledged)
    return received


def _acknowledge(message: Message) -> None:
    """Acknowledge all messages up to this one, after they have left the process."""
    sys.stdout.buffer.flush()
    message.acknowledge()
