"""What is archived, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jmsql.exceptions import JMSException
from jmsql.spark.connection import DatabaseReference
from jmsql.spark.options.options import Options
from jmsql.spark.options.property_format import PropertyFormat
from jmsql.values.destinations import Destination, Queue, Topic, named_destination

__all__ = ["ArchiveSettings"]


@dataclass(frozen=True, slots=True)
class ArchiveSettings:
    """The settings of a run, checked.

    Args:
        database: Where the history is.
        schema: The PostgreSQL schema of jmsql.
        destinations: Whose history; none named: that of all.
        properties: How the properties of messages are stored.
        partitions: Over how many connections each batch is read.
        max_messages_per_batch: The most messages in a batch.
        keep_days: How many days, before today, stay in the history.
        file_size: The bytes from which on a file takes no more messages.
    """

    database: DatabaseReference
    schema: str
    destinations: tuple[Destination, ...]
    properties: PropertyFormat
    partitions: int
    max_messages_per_batch: int
    keep_days: int
    file_size: int

    @classmethod
    def check(
        cls,
        database: DatabaseReference,
        schema: str,
        destinations: Sequence[Destination | str],
        properties: PropertyFormat | str,
        partitions: int,
        max_messages_per_batch: int,
        keep_days: int,
        file_size: int,
    ) -> ArchiveSettings:
        """Check the settings.

        Raises:
            InvalidDestinationException: One of them is not a destination.
            JMSException: A number is too small, or properties are not stored so.
        """
        for name, number, least in (
            ("partitions", partitions, 1),
            ("max_messages_per_batch", max_messages_per_batch, 1),
            ("keep_days", keep_days, 0),
            ("file_size", file_size, 1),
        ):
            if number < least:
                raise JMSException(f"{name} is a whole number from {least} on, not {number}.")
        if properties not in list(PropertyFormat):
            raise JMSException(f"Properties are stored as {' or as '.join(PropertyFormat)}, not as {properties!r}.")
        chosen = {named.uri: named for named in map(named_destination, destinations)}
        return cls(
            database,
            schema,
            tuple(chosen[uri] for uri in sorted(chosen)),
            PropertyFormat(properties),
            partitions,
            max_messages_per_batch,
            keep_days,
            file_size,
        )

    @property
    def uris(self) -> list[str] | None:
        """The destinations as text; None: all."""
        return [destination.uri for destination in self.destinations] or None

    def origins(self) -> list[Options]:
        """Return the options of the reads that together bring the history."""
        return [self.source(destination) for destination in self.destinations] or [self.source(None)]

    def source(self, destination: Destination | None, **more: Any) -> Options:
        """Return the options of a read."""
        queue = destination if isinstance(destination, Queue) else None
        topic = destination if isinstance(destination, Topic) else None
        return Options(self.database, self.schema, queue=queue, topic=topic, **more)
