"""What is archived, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jmsql.destinations import Destination, Queue, named_destination
from jmsql.exceptions import JMSException
from jmsql.spark.archiving.archive_format import ArchiveFormat
from jmsql.spark.connection import DatabaseReference

__all__ = ["ArchiveSettings"]


@dataclass(frozen=True, slots=True)
class ArchiveSettings:
    """The settings of a run, checked.

    Args:
        database: Where the history is.
        schema: The PostgreSQL schema of jmsql.
        destinations: Whose history; none named: that of all.
        format: How the archive is stored.
        partitions: In how many tasks each batch is read.
        max_messages_per_batch: The most messages in a batch.
        keep_days: How many days, before today, stay in the history.
    """

    database: DatabaseReference
    schema: str
    destinations: tuple[Destination, ...]
    format: ArchiveFormat
    partitions: int
    max_messages_per_batch: int
    keep_days: int

    @classmethod
    def check(
        cls,
        database: DatabaseReference,
        schema: str,
        destinations: Sequence[Destination | str],
        kind: ArchiveFormat | str,
        partitions: int,
        max_messages_per_batch: int,
        keep_days: int,
    ) -> ArchiveSettings:
        """Check the settings.

        Raises:
            InvalidDestinationException: One of them is not a destination.
            JMSException: A number is too small, or there is no such format.
        """
        for name, number, least in (
            ("partitions", partitions, 1),
            ("max_messages_per_batch", max_messages_per_batch, 1),
            ("keep_days", keep_days, 0),
        ):
            if number < least:
                raise JMSException(f"{name} is a whole number from {least} on, not {number}.")
        if kind not in list(ArchiveFormat):
            raise JMSException(f"There is no format {kind!r}; there are {', '.join(ArchiveFormat)}.")
        chosen = {named.uri: named for named in map(named_destination, destinations)}
        return cls(
            database,
            schema,
            tuple(chosen[uri] for uri in sorted(chosen)),
            ArchiveFormat(kind),
            partitions,
            max_messages_per_batch,
            keep_days,
        )

    @property
    def uris(self) -> list[str] | None:
        """The destinations as text; None: all."""
        return [destination.uri for destination in self.destinations] or None

    def reads(self) -> list[dict[str, str]]:
        """Return the options of the reads that together bring the history."""
        options = {**self.connection_options(), "history": "true", "partitions": str(self.partitions)}
        return [options | _choice(destination) for destination in self.destinations] or [options]

    def connection_options(self) -> dict[str, str]:
        """Return the options that name the database."""
        named = {"connection": self.database.connection, "url": self.database.url, "jmsqlSchema": self.schema}
        return {name: value for name, value in named.items() if value is not None}


def _choice(destination: Destination) -> dict[str, str]:
    return {"queue" if isinstance(destination, Queue) else "topic": destination.name}
