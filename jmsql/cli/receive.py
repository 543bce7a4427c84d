"""`jmsql receive`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

import typer

from jmsql.cli.documents import body_as_output, message_as_text, message_document
from jmsql.cli.options import QueueName, Schema, Selector, Url, check_duration, open_database, parse_selector
from jmsql.cli.output import json_text, write
from jmsql.client.acknowledge_mode import AcknowledgeMode
from jmsql.client.consumer import MessageConsumer
from jmsql.messages import Message

__all__ = ["receive"]

NOTHING_FOUND = 1
_ACKNOWLEDGED_AT_ONCE = 100


class Format(StrEnum):
    """How messages are printed."""

    text = "text"
    json = "json"
    full = "full"


_FORMATS: dict[Format, Callable[[Message], bytes]] = {
    Format.text: body_as_output,
    Format.json: lambda message: json_text(message_document(message)).encode() + b"\n",
    Format.full: message_as_text,
}


def receive(
    queue: QueueName,
    selector: Selector = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="So many messages at most.")] = 1,
    everything: Annotated[bool, typer.Option("--all", help="All messages that there are.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="All messages, those to come too, until Ctrl-C.")
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", "-t", callback=check_duration, metavar="SECONDS", help="How long to wait for each message."
        ),
    ] = 0.0,
    form: Annotated[
        Format, typer.Option("--format", help="The body alone, JSON lines, or headers and body.")
    ] = Format.text,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    r"""Take messages off a queue and print them.

    A message is acknowledged after it was printed: if that fails, it stays in the queue. Text and JSON bodies end with
    an end of line; those of a BytesMessage are written as they are.

    Exits with 1 if no message came.

    Examples:
    - `jmsql receive orders`
    - `jmsql receive orders --all --json | jq .body`
    - `jmsql receive orders --follow --selector "color = 'blue'"`
    """
    parse_selector(selector)
    database = open_database(url, schema)
    with database.administration() as administration:
        administration.destination(queue)
    limit = sys.maxsize if everything or follow else count
    with database.factory().create_connection() as connection:
        session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        consumer = session.create_consumer(session.create_queue(queue), selector)
        connection.start()
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
