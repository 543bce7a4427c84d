"""The dead letters of the last hour by their origins: the sentence with which the console and the doctor begin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from jmsql.store.administration.lists import Origin
from jmsql.store.administration.looks import DeadLetterGroup, DestinationLook, dead_letters, destinations, located
from jmsql.store.statement import Steps
from jmsql.values.counting import counted
from jmsql.values.destinations import Queue

_LONGEST_CAUSE = 160


class DeadLetters(NamedTuple):
    """Dead letters that have the same origin and error, in a queue."""

    queue: DestinationLook
    group: DeadLetterGroup
    has_more: bool
    """True if the queue has more letters than were looked at, some of which may be of the group."""


class Incident(NamedTuple):
    """The dead letters of the last hour that come from one queue or subscription."""

    messages: int
    has_more: bool
    largest: DeadLetters
    """The group with the most of these letters."""

    @property
    def number(self) -> str:
        """The letters with their number, of which there may be more."""
        return f"{self.messages:,}+ messages" if self.has_more else counted(self.messages, "message")

    @property
    def origin(self) -> str:
        """The queue, or the topic with the subscription."""
        group = self.largest.group
        origin = group.origin or "unknown"
        if group.subscription:
            origin += f" → {group.subscription}" + (f" of {group.client_id}" if group.client_id else "")
        return origin + (" (gone)" if group.is_homeless else "")

    @property
    def share(self) -> str:
        """The number of them that the largest group has."""
        recent = self.largest.group.recent
        return "all" if recent == self.messages and not self.has_more else f"{recent:,}"

    @property
    def cause(self) -> str:
        """The error of the largest group, or the reason if there is none."""
        group = self.largest.group
        cause = group.error or group.reason
        return cause if len(cause) <= _LONGEST_CAUSE else f"{cause[:_LONGEST_CAUSE]}…"

    @property
    def has_alike(self) -> bool:
        """True if the largest group has other errors, too, that differ by numbers alone."""
        return bool(self.largest.group.error) and self.largest.group.errors > 1

    @property
    def says(self) -> str:
        """The sentence, without a full stop."""
        alike = " and others like it" if self.has_alike else ""
        return f"{self.number} of {self.origin} died within the last hour, {self.share} of {self.cause}{alike}"


def incidents(letters: Iterable[DeadLetters]) -> list[Incident]:
    """Return the dead letters of the last hour by their origins, the most first."""
    found: dict[Origin, list[DeadLetters]] = {}
    for each in letters:
        if each.group.recent:
            origin = Origin(each.group.origin or "", each.group.subscription, each.group.client_id)
            found.setdefault(origin, []).append(each)
    recent = [
        Incident(
            sum(each.group.recent for each in groups),
            any(each.has_more for each in groups),
            max(groups, key=lambda each: each.group.recent),
        )
        for groups in found.values()
    ]
    return sorted(recent, key=lambda each: -each.messages)


def incidents_in(queues: Iterable[str]) -> Steps[list[Incident]]:
    """Return the incidents whose dead letters are in some queues.

    Raises:
        InvalidDestinationException: There is no such queue.
        JMSSecurityException: The role may not browse one of them.
    """
    letters = []
    for name in queues:
        queue_id, _ = yield from located(Queue(name))
        (queue,) = yield from destinations([queue_id])
        groups, has_more = yield from dead_letters(queue_id)
        letters += [DeadLetters(queue, group, has_more) for group in groups]
    return incidents(letters)
