"""`jmsql send`: messages made from the words of a command line, or from its input."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any, BinaryIO

import typer

from jmsql.cli.options import (
    DatabaseAddress,
    DestinationName,
    Json,
    Priority,
    Properties,
    Schema,
    Url,
    check_duration,
    open_database,
    read_destination,
)
from jmsql.cli.output import answer, progress
from jmsql.client.sending.steps import steps_as_text
from jmsql.exceptions import InvalidDestinationException, MessageFormatException
from jmsql.messages import BytesMessage, DeliveryMode, MapMessage, Message, ObjectMessage, TextMessage
from jmsql.messages.properties import COALESCE, DEDUPLICATION_ID, THEN
from jmsql.store.control.counters import Counts, meters
from jmsql.values.counting import counted
from jmsql.values.destinations import Destination, Queue


class BodyType(StrEnum):
    """The type of message that the body becomes."""

    text = "text"
    bytes = "bytes"
    map = "map"
    object = "object"


Property = Callable[[Message], None]
"""Sets a property on a message."""


def compose(body: bytes, kind: BodyType) -> Message:
    """Make a message.

    Raises:
        typer.BadParameter: The body does not fit the type.
    """
    if kind is BodyType.bytes:
        message = BytesMessage()
        message.write_bytes(body)
        return message
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"The body is not text in UTF-8 ({error}). Send it with --type bytes.") from error
    return TextMessage(text) if kind is BodyType.text else _from_json(text, kind)


def _from_json(text: str, kind: BodyType) -> Message:
    try:
        value = json.loads(text)
        if kind is BodyType.object:
            return ObjectMessage(value)
        message = MapMessage()
        if not isinstance(value, dict):
            raise typer.BadParameter('The body of a map is a JSON object, such as {"color": "blue"}.')
        message.update(value)
    except json.JSONDecodeError as error:
        raise typer.BadParameter(f"The body is not JSON: {error}.") from error
    except RecursionError as error:
        raise typer.BadParameter("The body has too many levels of brackets.") from error
    except (MessageFormatException, ValueError) as error:
        advice = " Send it with --type object." if kind is BodyType.map else ""
        raise typer.BadParameter(f"The body does not fit the type {kind.value}: {error}{advice}") from error
    return message


def _boolean(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError("A boolean is true or false.")
    return text == "true"


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise ValueError("An integer has digits alone, after a sign.") from error


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ValueError("A number is written as 2.5, 1e-3, Infinity or NaN.") from error


_PROPERTY_TYPES: dict[str, Callable[[str], Any]] = {
    "boolean": _boolean,
    "byte": _integer,
    "short": _integer,
    "int": _integer,
    "long": _integer,
    "float": _number,
    "double": _number,
    "string": str,
}


def read_properties(texts: list[str]) -> list[Property]:
    """Read properties written as ``name=value`` or ``name:type=value``.

    Raises:
        typer.BadParameter: One of them is not.
    """
    return [_read_property(text) for text in texts]


def _read_property(text: str) -> Property:
    declaration, equals, value = text.partition("=")
    name, _, kind = declaration.partition(":")
    kind = kind or "string"
    if not equals or kind not in _PROPERTY_TYPES:
        types = ", ".join(_PROPERTY_TYPES)
        raise typer.BadParameter(
            f"{text!r} is not a property: write name=value or name:type=value, the type one of {types}."
        )

    return _property(name, kind, value)


def _property(name: str, kind: str, text: str) -> Property:
    """Return what sets a property.

    Raises:
        typer.BadParameter: It cannot have the value, or be set.
    """

    def set_property(message: Message) -> None:
        getattr(message, f"set_{kind}_property")(name, value)

    try:
        value = _PROPERTY_TYPES[kind](text)
        set_property(Message())
    except (MessageFormatException, ValueError) as error:
        raise typer.BadParameter(f"'{name}={text}' is not a property: {error}") from error
    return set_property


_CHUNK = 65536
_SENT_AT_ONCE = 1000


def send(
    destination: DestinationName,
    body: Annotated[
        str | None,
        typer.Argument(metavar="BODY", help="The body; without it and --file, standard input.", show_default=False),
    ] = None,
    file: Annotated[typer.FileBinaryRead | None, typer.Option("--file", help="A file with the body.")] = None,
    kind: Annotated[
        BodyType, typer.Option("--type", help="Text in UTF-8, bytes, or JSON that becomes a map or an object.")
    ] = BodyType.text,
    lines: Annotated[bool, typer.Option("--lines", help="Make each line of the input a message.")] = False,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many times to send the body.")] = 1,
    properties: Properties = None,
    priority: Priority = 4,
    time_to_live: Annotated[
        float,
        typer.Option(
            callback=check_duration, metavar="SECONDS", help="How long after it is sent it expires; 0: never."
        ),
    ] = 0.0,
    delivery_delay: Annotated[
        float,
        typer.Option(callback=check_duration, metavar="SECONDS", help="How long after it is sent it is delivered."),
    ] = 0.0,
    correlation_id: Annotated[str | None, typer.Option(help="JMSCorrelationID.")] = None,
    reply_to: Annotated[str | None, typer.Option(help="JMSReplyTo, like DESTINATION.")] = None,
    jms_type: Annotated[str | None, typer.Option(help="JMSType.")] = None,
    group: Annotated[str | None, typer.Option(help="The group, whose messages are delivered in order.")] = None,
    deduplication_id: Annotated[
        str | None, typer.Option(metavar="NAME", help="Send nothing if a message of this name was sent lately.")
    ] = None,
    coalesce: Annotated[
        str | None, typer.Option(metavar="KEY", help="Send nothing while a message of this key waits.")
    ] = None,
    then: Annotated[
        list[str] | None,
        typer.Option(metavar="DESTINATION", help="The next step of a chain; may be given several times."),
    ] = None,
    non_persistent: Annotated[
        bool, typer.Option("--non-persistent", help="A crash of the server may lose the message.")
    ] = False,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    r"""Send messages to a queue, created if missing, or to the subscriptions of a topic.

    The body is taken as it is, with its last end of line. With --lines, each line without its end becomes a message;
    lines that are read at once are committed at once.

    Examples:
    - `jmsql send orders hello -p color=blue -p weight:int=2600 --priority 7`
    - `jmsql send orders '{"order": 1}' --type object`
    - `jmsql send invoices 17 --deduplication-id "invoice 17" --then print --then mail`
    - `grep ERROR log | jmsql send errors --lines`
    - `jmsql send topic://prices 17.5`
    """
    if body is not None and (file is not None or lines):
        raise typer.BadParameter("The body is an argument, or it comes from --file or the standard input with --lines.")
    if lines and count > 1:
        raise typer.BadParameter("--count repeats one body; it does not go together with --lines.")
    property_setters = read_properties(properties or [])
    steps = [read_destination(step) for step in then or ()]
    options = {
        "JMSXGroupID": group,
        DEDUPLICATION_ID: deduplication_id,
        COALESCE: coalesce,
        THEN: steps_as_text(steps),
    }
    property_setters += [_property(name, "string", value) for name, value in options.items() if value is not None]
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
        batches = _messages(_lines(source), message_with)
    else:
        batches = _repeated(message_with(source.read() if body is None else os.fsencode(body)), count)

    given, last_message_id = 0, None
    unsent: list[int] = []
    database = open_database(url, schema)
    is_new = not _is_there(database, target)
    new_steps = [step for step in dict.fromkeys(steps) if step != target and not _is_there(database, step)]
    with (
        database.factory().create_connection() as connection,
        connection.create_session(transacted=True) as session,
        _naming_sent_ones(lambda: given),
        progress() as display,
        _counting_unsent(unsent),
    ):
        task = display.add_task("Sending", total=None if lines else count)
        producer = session.create_producer(target)
        producer.priority, producer.time_to_live, producer.delivery_delay = priority, time_to_live, delivery_delay
        producer.delivery_mode = DeliveryMode.NON_PERSISTENT if non_persistent else DeliveryMode.PERSISTENT
        for batch in batches:
            for message in batch:
                producer.send(message)
                last_message_id = message.jms_message_id
            session.commit()
            given += len(batch)
            display.update(task, completed=given)
    sent = given - sum(unsent)
    last_message_id = last_message_id if sent else None
    identity = f" ({last_message_id})" if sent == given == 1 else ""
    document = {"destination": target.uri, "sent": sent, "last_message_id": last_message_id}
    text = f"Sent {counted(sent, 'message')} to {target}{identity}, in {database}."
    answer(database.place._asdict() | document, text, as_json=as_json)
    if sent < given:
        reason = "the deduplication id was used before, or a message of the key waits"
        verb = "was" if given - sent == 1 else "were"
        typer.echo(f"{counted(given - sent, 'message')} {verb} not sent: {reason}.", err=True)
    if sent:
        _warn_of_new(target if is_new else None, new_steps)


def _warn_of_new(target: Destination | None, steps: list[Destination]) -> None:
    """Name the destination that a send has made, and the next steps that do not exist yet."""
    unsubscribed = "without a subscription it keeps no message"
    if target is not None:
        kept = "this send has made it" if isinstance(target, Queue) else unsubscribed
        typer.echo(f"{target} is new: {kept}.", err=True)
    for step in steps:
        kept = "the step before makes it" if isinstance(step, Queue) else unsubscribed
        typer.echo(f"There is no {step} yet: {kept}.", err=True)


@contextmanager
def _naming_sent_ones(given: Callable[[], int]) -> Iterator[None]:
    """If sending ends early, say how many messages were sent, so that they are not sent once more."""
    try:
        yield
    except BaseException:
        if number := given():
            typer.echo(f"{counted(number, 'message')} {'was' if number == 1 else 'were'} sent before.", err=True)
        raise


@contextmanager
def _counting_unsent(unsent: list[int]) -> Iterator[None]:
    """Note how many messages the store drops, since their deduplication ids or keys are known."""

    def note(_: Destination, counts: Counts) -> None:
        unsent.append(counts.duplicates + counts.coalesced)

    meters.add(note)
    try:
        yield
    finally:
        meters.discard(note)


def _is_there(database: DatabaseAddress, destination: Destination) -> bool:
    """Return False for a destination that the first send makes: its name may be misspelt."""
    with database.administration() as administration:
        try:
            administration.destination(destination)
        except InvalidDestinationException:
            return False
    return True


def _repeated(message: Message, count: int) -> Iterator[list[Message]]:
    """Yield the message so many times, in batches."""
    while count > 0:
        yield [message] * min(count, _SENT_AT_ONCE)
        count -= _SENT_AT_ONCE


def _messages(batches: Iterator[list[bytes]], message_with: Callable[[bytes], Message]) -> Iterator[list[Message]]:
    """Yield the messages of lines, as many at a time as there are lines; an error of one names its number."""
    number = 0
    for batch in batches:
        messages = []
        for line in batch:
            number += 1
            try:
                messages.append(message_with(line))
            except typer.BadParameter as error:
                raise typer.BadParameter(f"Line {number}: {error.message}") from error
        yield messages


def _lines(source: BinaryIO) -> Iterator[list[bytes]]:
    """Yield the lines of the input, as many at a time as can be read without waiting for more."""
    rest = b""
    while chunk := source.read1(_CHUNK):  # type: ignore[attr-defined]
        *complete, rest = (rest + chunk).split(b"\n")
        if complete:
            yield [line.removesuffix(b"\r") for line in complete]
    if rest:
        yield [rest]
