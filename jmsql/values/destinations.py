"""Destinations: where messages are sent to and received from.

A destination is an administered object: immutable, hashable, picklable, and equal to any other of the same kind and
name. Source: JMS 1.1 chapter 4.2.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import isfunction
from typing import Any, Protocol, Self, TypeAlias

from jmsql.exceptions import IllegalStateException, InvalidDestinationException
from jmsql.public_names import set_module

_NAME_LIMIT = 255


@set_module("jmsql")
@dataclass(frozen=True, slots=True)
class Destination:
    """A queue or a topic.

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
        name = self.name
        if "\0" in name or not (name.isascii() or all(not "\ud800" <= character <= "\udfff" for character in name)):
            raise InvalidDestinationException(
                f"PostgreSQL cannot store the destination name {self.name!r}: it holds a NUL or half a surrogate pair."
            )

    @property
    def uri(self) -> str:
        """The destination as text, kind and name: ``queue://orders``."""
        return f"{_SCHEMES.get(type(self), 'destination')}://{self.name}"

    def __str__(self) -> str:
        return self.uri


@set_module("jmsql")
@dataclass(frozen=True, slots=True)
class Queue(Destination):
    """A queue: each message goes to one consumer."""

    @property
    def queue_name(self) -> str:
        """The name, as JMS's ``getQueueName`` calls it."""
        return self.name


@set_module("jmsql")
@dataclass(frozen=True, slots=True)
class Topic(Destination):
    """A topic: each message goes to every subscription."""

    @property
    def topic_name(self) -> str:
        """The name, as JMS's ``getTopicName`` calls it."""
        return self.name


class _Temporary:
    """Temporary destinations: the connection that has made them can delete them."""

    __slots__ = ()

    name: str
    _delete: Callable[[], Any] | None

    def delete(self) -> Any:
        """Delete the destination, and the messages in it.

        Returns:
            None, or an awaitable if a session of `jmsql.asyncio` has made the destination.

        Raises:
            IllegalStateException: It has a consumer; or the object is not the one that the session has made, but came
                in a message.
        """
        if self._delete is None:
            raise IllegalStateException(f"{self} is deleted through the object that the session has made.")
        return self._delete()

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        return type(self), (self.name,)


@set_module("jmsql")
@dataclass(frozen=True, slots=True)
class TemporaryQueue(_Temporary, Queue):
    """A queue that lives as long as the connection that has made it, which alone can receive from it."""

    _delete: Callable[[], Any] | None = field(default=None, repr=False, compare=False, kw_only=True)


@set_module("jmsql")
@dataclass(frozen=True, slots=True)
class TemporaryTopic(_Temporary, Topic):
    """A topic that lives as long as the connection that has made it, which alone can receive from it."""

    _delete: Callable[[], Any] | None = field(default=None, repr=False, compare=False, kw_only=True)


_KINDS: dict[str, type[Destination]] = {
    "queue": Queue,
    "topic": Topic,
    "temp-queue": TemporaryQueue,
    "temp-topic": TemporaryTopic,
}
_SCHEMES = {kind: scheme for scheme, kind in _KINDS.items()}


def parse_destination(uri: str) -> Destination:
    """Return the destination of a URI of [`Destination.uri`][jmsql.Destination.uri].

    Raises:
        InvalidDestinationException: The text is no destination.
    """
    kind, separator, name = uri.partition("://")
    if not separator or kind not in _KINDS:
        raise InvalidDestinationException(f"{uri!r} is not a destination; write queue://NAME or topic://NAME.")
    return _KINDS[kind](name)


class HasDestination(Protocol):
    """A registered handler, which stands for the destination of its messages."""

    @property
    def destination(self) -> Destination:
        """The destination of its messages."""


AnyDestination: TypeAlias = Destination | str | HasDestination
"""A queue, a topic, the name of a queue, ``queue://NAME``, ``topic://NAME``, or a registered handler."""
AnyQueue: TypeAlias = Queue | str | HasDestination
"""A queue, the name of one, ``queue://NAME``, or the registered handler of a queue."""
AnyTopic: TypeAlias = Topic | str | HasDestination
"""A topic, the name of one, ``topic://NAME``, or the registered handler of a topic's messages."""


def require_destination(destination: object) -> Destination:
    """Return a destination, which may be given as text, or as the handler of its messages.

    A text is a queue's name, ``queue://NAME`` or ``topic://NAME``.

    Raises:
        InvalidDestinationException: It is neither a queue nor a topic.
    """
    if isinstance(destination, Queue | Topic):
        return destination
    if isinstance(destination, str):
        return _named(destination, Queue)
    found = destination_of(destination)
    if isinstance(found, Queue | Topic):
        return found
    raise _refusal("a destination such as jmsql.Queue('orders')", destination)


def required_destination(destination: object) -> Queue | Topic:
    """Do the same, for type checkers that are to know that it is a queue or a topic."""
    found = require_destination(destination)
    assert isinstance(found, Queue | Topic)
    return found


def require_queue(destination: object) -> Queue:
    """Return a queue, which may be given as text, its name or ``queue://NAME``, or as the handler of its messages.

    Raises:
        InvalidDestinationException: It is not a queue.
    """
    found = _named(destination, Queue) if isinstance(destination, str) else destination_of(destination)
    if isinstance(found, Queue):
        return found
    raise _refusal("a queue such as jmsql.Queue('orders')", destination)


def require_topic(destination: object) -> Topic:
    """Return a topic, which may be given as text, its name or ``topic://NAME``, or as the handler of its messages.

    Raises:
        InvalidDestinationException: It is not a topic.
    """
    found = _named(destination, Topic) if isinstance(destination, str) else destination_of(destination)
    if isinstance(found, Topic):
        return found
    raise _refusal("a topic such as jmsql.Topic('prices')", destination)


def destination_of(given: object) -> object:
    """Return the destination of a registered handler, and any other object as it is."""
    return given if isinstance(given, Destination) else getattr(given, "destination", given)


def _refusal(expected: str, given: object) -> InvalidDestinationException:
    advice = " A function stands for its queue once @app.listener has registered it." if isfunction(given) else ""
    return InvalidDestinationException(f"Expected {expected}, got {given!r}.{advice}")


def _named(text: str, kind: type[Destination]) -> Destination:
    """Return the destination that a text names; `kind` is the class for a bare name."""
    return parse_destination(text) if "://" in text else kind(text)
