"""`jmsql send`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Annotated, BinaryIO

import typer

from jmsql.cli.messages.composition import BodyType, compose, read_properties
from jmsql.cli.options import Json, Schema, Url, check_duration, open_database, read_destination
from jmsql.cli.terminal.output import console, counted, print_json, progress
from jmsql.messages import DeliveryMode, Message

__all__ = ["send"]

_CHUNK = 65536
_SENT_AT_ONCE = 1000


def send(
    destination: Annotated[
        str,
        typer.Argument(
            metavar="DESTINATION", help="A queue's name, or queue://NAME or topic://NAME.", show_default=False
        ),
    ],
    body: Annotated[
        str | None,
        typer.Argument(metavar="BODY", help="The body; without it and --file, standard input.", show_default=False),
    ] = None,
    file: Annotated[typer.FileBinaryRead | None, typer.Option("--file", help="A file with the body.")] = None,
    kind: Annotated[
        BodyType, typer.Option("--type", help="Text in UTF-8, bytes, or JSON that becomes a map or an object.")
    ] = BodyType.text,
    lines: Annotated[bool, typer.Option("--lines", help="Make each line of the input a message.")] = False,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Send the body so many times.")] = 1,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property", "-p", metavar="NAME[:TYPE]=VALUE", help="A property; a string, if no type is given."
        ),
    ] = None,
    priority: Annotated[int, typer.Option(min=0, max=9, help="0 (lowest) to 9.")] = 4,
    time_to_live: Annotated[
        float, typer.Option(callback=check_duration, metavar="SECONDS", help="It expires so much later; 0: never.")
    ] = 0.0,
    correlation_id: Annotated[str | None, typer.Option(help="JMSCorrelationID.")] = None,
    reply_to: Annotated[str | None, typer.Option(help="JMSReplyTo, like DESTINATION.")] = None,
    jms_type: Annotated[str | None, typer.Option(help="JMSType.")] = None,
    non_persistent: Annotated[
        bool, typer.Option("--non-persistent", help="A crash of the server may lose the message.")
    ] = False,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    r"""Send messages to a queue, which is made if need be, or to the subscriptions of a topic.

    The body is taken as it is, with its last end of line. With --lines, each line without its end becomes a message;
    what is read at once is committed at once.

    Examples:
    - `jmsql send orders hello -p color=blue -p weight:int=2600 --priority 7`
    - `jmsql send orders '{"order": 1}' --type object`
    - `grep ERROR log | jmsql send errors --lines`
    - `jmsql send topic://prices 17.5`
    """
    if body is not None and (file is not None or lines):
        raise typer.BadParameter("The body is an argument, or it comes from --file or the standard input with --lines.")
    if lines and count > 1:
        raise typer.BadParameter("--count repeats one body; it does not go together with --lines.")
    property_setters = read_properties(properties or [])
    target = read_destination(destination)
    reply_destination = None if reply_to is None else read_destination(reply_to)

    def message_with(each: bytes) -> Message:
        message = compose(each, kind)
        message.jms_correlation_id, message.jms_type = correlation_id, jms_type
        message.jms_reply_to = reply_destination
        for set_property in property_setters:
            set_property(message)
        return message

    source = sys.stdin.buffer if file is None else file
    batches: Iterator[list[Message]]
    if lines:
        batches = ([message_with(line) for line in batch] for batch in _lines(source))
    else:
        batches = _repeated(message_with(source.read() if body is None else os.fsencode(body)), count)

    sent, last_message_id = 0, None
    with (
        open_database(url, schema).factory().create_connection() as connection,
        connection.create_session(transacted=True) as session,
        progress() as display,
    ):
        task = display.add_task("Sending", total=None if lines else count)
        producer = session.create_producer(target)
        producer.priority, producer.time_to_live = priority, time_to_live
        producer.delivery_mode = DeliveryMode.NON_PERSISTENT if non_persistent else DeliveryMode.PERSISTENT
        for batch in batches:
            for message in batch:
                producer.send(message)
                last_message_id = message.jms_message_id
            session.commit()
            sent += len(batch)
            display.update(task, completed=sent)
    if as_json:
        print_json({"destination": target.uri, "sent": sent, "last_message_id": last_message_id})
    else:
        identity = f" ({last_message_id})" if sent == 1 else ""
        console().print(f"Sent {counted(sent, 'message')} to {target}{identity}.", markup=False)


def _repeated(message: Message, count: int) -> Iterator[list[Message]]:
    """Yield the message so many times, in batches."""
    while count > 0:
        yield [message] * min(count, _SENT_AT_ONCE)
        count -= _SENT_AT_ONCE


def _lines(source: BinaryIO) -> Iterator[list[bytes]]:
    """Yield the lines of the input, as many at a time as can be read without waiting for more."""
    rest = b""
    while chunk := source.read1(_CHUNK):  # type: ignore[attr-defined]
        *complete, rest = (rest + chunk).split(b"\n")
        if complete:
            yield [line.removesuffix(b"\r") for line in complete]
    if rest:
        yield [rest]
