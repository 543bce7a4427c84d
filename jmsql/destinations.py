"""Destinations: where messages are sent to and received from.

A destination is an administered object: immutable, hashable, picklable, and equal to any other of the same kind and
name. Source: JMS 1.1 chapter 4.2.
"""

from __future__ import annotations

from dataclasses import dataclass

from jmsql.exceptions import InvalidDestinationException

__all__ = ["Destination", "Queue", "Topic", "parse_destination", "require_queue"]

_NAME_LIMIT = 255


@dataclass(frozen=True, slots=True)
class Destination:
    """What queues and topics have in common.

    Args:
        name: 1 to 255 characters; letter case counts.

    Raises:
        InvalidDestinationException: The name is empty, too long, or holds a character that PostgreSQL cannot store.
    """

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InvalidDestinationException(
                f"A destination's name is a str of at least one character, not {self.name!r}."
            )
        if len(self.name) > _NAME_LIMIT:
            raise InvalidDestinationException(
                f"The destination name has {len(self.name)} characters; at most {_NAME_LIMIT} are allowed."
            )
        if "\0" in self.name or any("\ud800" <= character <= "\udfff" for character in self.name):
            raise InvalidDestinationException(
                f"PostgreSQL cannot store the destination name {self.name!r}: it holds a NUL or half a surrogate pair."
            )

    @property
    def uri(self) -> str:
        """The destination as text, kind and name: ``queue://orders``."""
        return f"{type(self).__name__.lower()}://{self.name}"

    def __str__(self) -> str:
        return self.uri


@dataclass(frozen=True, slots=True)
class Queue(Destination):
    """A queue: each message goes to one consumer."""

    @property
    def queue_name(self) -> str:
        """The name, as JMS's ``getQueueName`` calls it."""
        return self.name


@dataclass(frozen=True, slots=True)
class Topic(Destination):
    """A topic: each message goes to every subscription."""

    @property
    def topic_name(self) -> str:
        """The name, as JMS's ``getTopicName`` calls it."""
        return self.name


_KINDS: dict[str, type[Destination]] = {"queue": Queue, "topic": Topic}


def parse_destination(uri: str) -> Destination:
    """Read back what [`Destination.uri`][jmsql.Destination.uri] wrote.

    Raises:
        InvalidDestinationException: The text is no destination.
    """
    kind, separator, name = uri.partition("://")
    if not separator or kind not in _KINDS:
        raise InvalidDestinationException(f"{uri!r} is no destination; write queue://NAME or topic://NAME.")
    return _KINDS[kind](name)


def require_queue(destination: object) -> Queue:
    """Return `destination`, which must be a queue.

    Raises:
        InvalidDestinationException: It is none.
    """
    if isinstance(destination, Queue):
        return destination
    if isinstance(destination, Destination):
        raise InvalidDestinationException(f"{destination} is no queue; this version of jmsql has queues only.")
    raise InvalidDestinationException(f"A destination is wanted, such as jmsql.Queue('orders'), not {destination!r}.")
