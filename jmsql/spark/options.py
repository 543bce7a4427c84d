"""The options of the data source, and of tables: a wrong one fails when the source is made, before any task starts."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Self, TypeVar

from jmsql import Destination, InvalidDestinationException, InvalidSelectorException, JMSException, Queue, Topic
from jmsql.extension.scanning import Selector
from jmsql.spark.connection import DatabaseReference

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class PropertyFormat(StrEnum):
    """As JSON text, with the types that it does not tell in a column beside it, or as a map of typed values."""

    json = "json"
    map = "map"


OPTIONS = (
    *("queue", "topic", "subscription", "clientId", "history", "selector", "columns", "properties", "bodySchema"),
    *("partitions", "minPartitions", "snapshotTimeout", "startingOffsets", "endingOffsets"),
    *("maxMessagesPerTrigger", "maxBytesPerTrigger", "claimConnections", "failOnDataLoss", "writeId", "writeIdDays"),
    *("automaticCreation", "badRecords"),
    *("connection", "url", "jmsqlSchema", "queryTimeout"),
)
"""The names of all options, in which letter case does not count."""


class Use(Enum):
    """The uses of options."""

    BATCH_READ = "a batch read"
    HISTORY_READ = "a batch read of the history"
    STREAM_READ = "a streaming read"
    WRITE = "a write"


_OF_READS = (
    *("subscription", "clientId", "history", "selector", "columns", "properties", "bodySchema"),
    *("partitions", "minPartitions"),
)
_OF_STREAMS = ("maxMessagesPerTrigger", "maxBytesPerTrigger", "claimConnections", "failOnDataLoss")
_USES = {
    **dict.fromkeys(_OF_READS, (Use.BATCH_READ, Use.HISTORY_READ, Use.STREAM_READ)),
    **dict.fromkeys(_OF_STREAMS, (Use.STREAM_READ,)),
    "startingOffsets": (Use.STREAM_READ, Use.HISTORY_READ),
    "endingOffsets": (Use.HISTORY_READ,),
    "snapshotTimeout": (Use.BATCH_READ, Use.HISTORY_READ),
    "writeId": (Use.WRITE,),
    "writeIdDays": (Use.WRITE,),
    "automaticCreation": (Use.WRITE,),
    "badRecords": (Use.WRITE,),
}
"""The uses of those options that are not for all."""

_NAMES = {name.lower(): name for name in OPTIONS}
_OF_SPARK = {"checkpointlocation", "queryname"}
"""Options that Spark itself reads, and hands on."""

_MOST_MESSAGES = 250_000
"""The most messages for a task, where the options leave the number of tasks open."""

_OF_OTHERS = {
    **dict.fromkeys(
        ("maxoffsetspertrigger", "maxrowspertrigger", "maxrecordspertrigger", "maxfilespertrigger"),
        "maxMessagesPerTrigger",
    ),
    **dict.fromkeys(("startingtimestamp", "startingposition", "startingoffset"), "startingOffsets"),
    **dict.fromkeys(("endingtimestamp", "endingoffset"), "endingOffsets"),
    "numpartitions": "partitions",
    "kafka.bootstrap.servers": "connection",
    "subscribe": "queue",
}
"""The names of options in other data sources, and their names here."""


ADVICE_ON_TABLES = (
    "(Of a table that is made with a list of columns, with AS SELECT or by saveAsTable() Spark forgets the options: "
    "make it by CREATE TABLE with option 'columns' instead of the list, then INSERT INTO it.)"
)
"""The use of a table's options."""

_WRITE_DAYS = 365

_MOST_TASKS = 2**31 - 1
"""The most tasks that Spark can number."""

_MOST_COUNTED = 2**63 - 1
"""The most messages or bytes that PostgreSQL can count."""

_LONGEST_TIMEOUT = 2_000_000.0
"""The longest time-out that PostgreSQL surely takes, in seconds."""

_MOST_DAYS = 1_000_000
"""The most days that PostgreSQL surely can add to a time."""

Kind = TypeVar("Kind", Queue, Topic)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one read or write.

    Args:
        database: Where the messages are.
        schema: The PostgreSQL schema of jmsql.
        queue: The queue to read from or write to.
        topic: The topic, likewise.
        subscription: The name of the subscription to read from.
        client_id: The client identifier that the subscription belongs to, if any.
        history: Whether to read messages that have left the destination, instead of those that wait in it.
        selector: Which messages are wanted.
        columns: Which columns are wanted; None: all.
        properties: How the properties of messages are returned.
        body_schema: How JSON bodies are parsed, as Spark's DDL.
        partitions: In how many tasks to read.
        minimum_partitions: The fewest tasks to read in, where there are more if one would have too much; None: see
            `partitions`.
        snapshot_timeout: Seconds for which the snapshot of a batch read is kept when no task uses it; 0: none is taken.
        starting_offsets: The start of a new stream, or of a batch read of the history.
        ending_offsets: Where a batch read of the history ends.
        maximum_messages: The most messages in a micro-batch; None: all there are.
        maximum_bytes: The bytes from which on a micro-batch takes no more; None: any number.
        claim_connections: How many connections of the driver claim and acknowledge a large micro-batch side by side.
        fail_on_data_loss: Whether a read fails when messages are gone that it has promised.
        write_id: Identifies a batch write, which has no further effect when it is run again.
        write_days: For how many days the database knows that a write was done.
        automatic_creation: Whether a write makes a destination that does not exist.
        bad_records: The queue that takes rows that are no messages; None: they fail the write.
        given: The names of the options that were given.
    """

    database: DatabaseReference
    schema: str = "jmsql"
    queue: Queue | None = None
    topic: Topic | None = None
    subscription: str | None = None
    client_id: str | None = None
    history: bool = False
    selector: Selector | None = None
    columns: tuple[str, ...] | None = None
    properties: PropertyFormat = PropertyFormat.json
    body_schema: str | None = None
    partitions: int = 1
    minimum_partitions: int | None = None
    snapshot_timeout: float = 60.0
    starting_offsets: str = "earliest"
    ending_offsets: str = "latest"
    maximum_messages: int | None = None
    maximum_bytes: int | None = None
    claim_connections: int = 4
    fail_on_data_loss: bool = True
    write_id: str | None = None
    write_days: int = _WRITE_DAYS
    automatic_creation: bool = True
    bad_records: Queue | None = None
    given: frozenset[str] = frozenset()

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Self:
        """Check the options of a read or a write.

        Raises:
            JMSException: One is unknown or has a value that makes no sense; the message names it.
        """
        options = {name.lower(): value for name, value in given.items()}
        for name in options.keys() - _OF_SPARK:
            if name not in _NAMES:
                raise JMSException(_unknown(name))
        options = {_NAMES[name]: value for name, value in options.items() if name in _NAMES}
        selector = options.get("selector")
        columns = options.get("columns")
        read = cls(
            database=DatabaseReference(
                options.get("connection"),
                options.get("url"),
                None if "queryTimeout" not in options else _seconds("queryTimeout", options, 0.0, _LONGEST_TIMEOUT),
            ),
            schema=options.get("jmsqlSchema", "jmsql"),
            queue=_destination(Queue, "queue", options),
            topic=_destination(Topic, "topic", options),
            subscription=options.get("subscription"),
            client_id=options.get("clientId"),
            history=_boolean("history", options, default=False),
            selector=_selector(selector),
            columns=None if columns is None else tuple(name.strip() for name in columns.split(",")),
            properties=_property_format(options.get("properties")),
            body_schema=options.get("bodySchema"),
            partitions=_integer("partitions", options, _MOST_TASKS) or 1,
            minimum_partitions=_integer("minPartitions", options, _MOST_TASKS),
            snapshot_timeout=_seconds("snapshotTimeout", options, 60.0),
            starting_offsets=options.get("startingOffsets", "earliest"),
            ending_offsets=options.get("endingOffsets", "latest"),
            maximum_messages=_integer("maxMessagesPerTrigger", options, _MOST_COUNTED),
            maximum_bytes=_integer("maxBytesPerTrigger", options, _MOST_COUNTED),
            claim_connections=_integer("claimConnections", options, _MOST_TASKS) or 4,
            fail_on_data_loss=_boolean("failOnDataLoss", options, default=True),
            write_id=options.get("writeId"),
            write_days=_integer("writeIdDays", options, _MOST_DAYS) or _WRITE_DAYS,
            automatic_creation=_boolean("automaticCreation", options, default=True),
            bad_records=_destination(Queue, "badRecords", options),
            given=frozenset(options),
        )
        _check_offsets(read.starting_offsets, read.ending_offsets, history=read.history)
        if read.history and read.write_id is not None:
            raise JMSException("Option 'writeId' is for writes, and option 'history' for reads: give one of them.")
        if read.queue is not None and read.topic is not None:
            raise JMSException("Give option 'queue' or option 'topic', not both.")
        if read.subscription is not None and read.topic is None:
            raise JMSException("Option 'subscription' needs option 'topic', the topic that it belongs to.")
        if read.minimum_partitions is not None and "partitions" in options:
            raise JMSException("Give option 'partitions' or option 'minPartitions', not both.")
        if read.client_id is not None and read.subscription is None:
            raise JMSException("Option 'clientId' needs option 'subscription', the one that belongs to the client.")
        return read

    @property
    def destination(self) -> Destination | None:
        """The queue or the topic that is named, if one is."""
        return self.queue or self.topic

    def count_partitions(self, messages: int) -> int:
        """Return in how many tasks to read some number of messages."""
        if self.minimum_partitions is None:
            return self.partitions
        return max(self.minimum_partitions, -(-messages // _MOST_MESSAGES))

    def require_use(self, use: Use) -> None:
        """Make sure that each given option applies to the operation.

        Raises:
            JMSException: One does not; the message names it.
        """
        for name in sorted(self.given):
            uses = _USES.get(name, tuple(Use))
            if use not in uses:
                raise JMSException(
                    f"Option '{name}' has no meaning for {use.value}; it is for {' and '.join(u.value for u in uses)}."
                )

    def require_source(self) -> None:
        """Make sure that the options name a source; without one, a read of the history covers all destinations.

        Raises:
            JMSException: They do not.
        """
        if self.history:
            return
        if self.destination is None:
            raise JMSException(
                f"Name what to read: option 'queue', or options 'topic' and 'subscription'. {ADVICE_ON_TABLES}"
            )
        if self.topic is not None and self.subscription is None:
            raise JMSException(
                "Option 'topic' needs option 'subscription': a topic itself keeps no messages. (What its subscriptions "
                "had is read with option 'history'.)"
            )


def _unknown(name: str) -> str:
    if name == "path":
        return "A path was given to load() or save(); jmsql has options instead, such as 'queue'."
    near = _OF_OTHERS.get(name) or next((_NAMES[each] for each in get_close_matches(name, _NAMES, 1)), None)
    advice = f"there are: {', '.join(OPTIONS)}." if near is None else f"did you mean '{near}'?"
    return f"There is no option '{name}'; {advice}"


def _destination(kind: type[Kind], name: str, options: Mapping[str, str]) -> Kind | None:
    if name not in options:
        return None
    try:
        return kind(options[name])
    except InvalidDestinationException as error:
        raise InvalidDestinationException(f"Option '{name}': {error}") from error


def _selector(text: str | None) -> Selector | None:
    try:
        return Selector.parse(text)
    except InvalidSelectorException as error:
        raise InvalidSelectorException(f"Option 'selector': {error}") from error


def _property_format(text: str | None) -> PropertyFormat:
    try:
        return PropertyFormat.json if text is None else PropertyFormat(text.lower())
    except ValueError as error:
        raise JMSException(f"Option 'properties' is {' or '.join(PropertyFormat)}, not {text!r}.") from error


def _integer(name: str, options: Mapping[str, str], most: int) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    digits = text.lstrip("0")
    if not text.isascii() or not text.isdigit() or not digits:
        raise JMSException(f"Option '{name}' is a whole number from 1 on, not {text!r}.")
    if len(digits) > len(str(most)) or int(digits) > most:
        raise JMSException(f"Option '{name}' is at most {most:,}, not {text!r}.")
    return int(digits)


def _seconds(name: str, options: Mapping[str, str], default: float, most: float = math.inf) -> float:
    try:
        seconds = float(options.get(name, default))
    except ValueError:
        seconds = -1.0
    if seconds > most:
        raise JMSException(f"Option '{name}' is at most {most:,.0f} seconds, not {options[name]!r}.")
    if not seconds >= 0.0:
        raise JMSException(f"Option '{name}' is a number of seconds, not {options[name]!r}.")
    return seconds


def _boolean(name: str, options: Mapping[str, str], *, default: bool) -> bool:
    text = options.get(name)
    if text is None:
        return default
    if text.lower() not in {"true", "false"}:
        raise JMSException(f"Option '{name}' is true or false, not {text!r}.")
    return text.lower() == "true"


_ID = "ID:"
_EXAMPLE = "2026-11-21T08:00:00+00:00"


def _check_offsets(starting: str, ending: str, *, history: bool) -> None:
    """Make sure that the options make sense, of a read of the history or another.

    Raises:
        JMSException: They do not.
    """
    if starting not in {"earliest", "latest"} and not starting.startswith(_ID):
        time = f"or a time such as {_EXAMPLE}" if history else f"a time such as {_EXAMPLE}, or the id of a message"
        _check_timestamp("startingOffsets", starting, f"earliest, latest, {time}")
    if ending != "latest":
        _check_timestamp("endingOffsets", ending, f"latest, or a time such as {_EXAMPLE}")
        if not history:
            end = read_timestamp(ending)
            assert end is not None
            raise JMSException(
                "Option 'endingOffsets' needs option 'history'. To end a read of a queue there, use a selector: "
                f"JMSTimestamp < {int(end.timestamp() * 1000)}."
            )
    if history:
        if starting.startswith(_ID):
            raise JMSException(
                "Option 'startingOffsets': the history begins where a message has left its destination, not at a "
                f"message's id; give a time such as {_EXAMPLE}."
            )
        first, end = read_timestamp(starting), read_timestamp(ending)
        if first is not None and end is not None and first > end:
            raise JMSException(f"Option 'endingOffsets': {ending} is before {starting}, where the read starts.")


def read_timestamp(text: str) -> dt.datetime | None:
    """Return the time that an option names, None if it names none."""
    return None if text in {"earliest", "latest"} or text.startswith(_ID) else dt.datetime.fromisoformat(text)


def _check_timestamp(name: str, text: str, choices: str) -> None:
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise JMSException(f"Option '{name}' is {choices}, not {text!r}.") from error
    if time.tzinfo is None:
        raise JMSException(f"Option '{name}': the time {text!r} has no time zone; write +00:00 after it.")


# The options of a table in Spark's catalog, which Spark itself tells the data source only when it makes the table. So
# the comment of the table's first column keeps them: of a table Spark knows the schema, and gives it to each read and
# write. There is no password in them, as in no option.
_MARK = "A table of jmsql with the options "
_OPTION = "option."


def options_of_new_table(properties: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of CREATE TABLE, by their names in lower case; None if no table is made.

    Spark gives each option of a table besides with a prefix, and properties of its own.
    """
    names = {name.lower(): value for name, value in properties.items()}
    if "provider" not in names:
        return None
    return {name.removeprefix(_OPTION): value for name, value in names.items() if name.startswith(_OPTION)}


def table_comment(options: Mapping[str, str]) -> str:
    """Return the comment, in DDL, of the first column of a table that has these options."""
    text = _MARK + json.dumps(options, sort_keys=True)
    return "COMMENT '" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def options_of_table(schema: StructType, use: Use) -> dict[str, str]:
    """Return a table's options that apply to the operation, if the schema belongs to a table."""
    comment = str(schema.fields[0].metadata.get("comment", "")) if schema.fields else ""
    if not comment.startswith(_MARK):
        return {}
    options: dict[str, str] = json.loads(comment.removeprefix(_MARK))
    if use is Use.BATCH_READ and options.get("history", "").lower() == "true":
        use = Use.HISTORY_READ
    # The history option counts for a write, too, which is refused because of it.
    return {name: text for name, text in options.items() if name == "history" or use in _USES.get(_NAMES[name], (use,))}
