"""Where a message stands in its queue or subscription."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from jmsql.public_names import set_module

_WRITTEN = re.compile(r"([pd])(\d{1,18})\.(\d{1,18})", re.ASCII)

_LAST = 2**63 - 1


@set_module("jmsql.admin")
class Place(NamedTuple):
    """Where a message stands in its queue or subscription, which finds it at once however many there are.

    It is written ``p5.1234``, or ``d1700000000000.1234`` for a delayed message, by `str` and `Place.parse`. A message
    keeps its place until it leaves the queue; a delayed one gets another when it is due.
    """

    first: int
    """9 less its priority; of a delayed message its delivery time, in milliseconds since the epoch."""
    sequence: int
    delayed: bool = False

    def __str__(self) -> str:
        return f"{'d' if self.delayed else 'p'}{self.first}.{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> Place:
        """Read a place as `str` writes it.

        Raises:
            ValueError: The text is not a place.
        """
        found = _WRITTEN.fullmatch(text)
        if found is None or (found[1] == "p" and int(found[2]) > 9):
            raise ValueError(f"Expected the place of a message such as p5.1234, got {text!r}.")
        return cls(int(found[2]), int(found[3]), found[1] == "d")


BEGINNING = Place(-1, 0)
"""The place before all messages."""
BEGINNING_OF_DELAYED = Place(-1, 0, delayed=True)
"""The place before all delayed messages, which come behind all others."""


def require_place(value: object) -> Place:
    """Return a place that was given as an argument.

    Raises:
        TypeError: It is not a place.
        ValueError: No message can have it.
    """
    if not isinstance(value, Place):
        raise TypeError(f"Expected a place, as delivery.place or Place.parse('p5.1234') is one, got {value!r}.")
    last = _LAST if value.delayed else 9
    if not (-1 <= value.first <= last and 0 <= value.sequence <= _LAST):
        raise ValueError(f"No message can be at {value!r}: use the delivery.place of one that was browsed.")
    return value


def key_parameters(places: Sequence[Place]) -> dict[str, object]:
    """Return the parameters that name messages of one table."""
    return {"firsts": [each.first for each in places], "sequences": [each.sequence for each in places]}


def parts_of(places: Iterable[Place], at_once: int) -> Iterator[tuple[bool, list[Place]]]:
    """Yield the places of one table, as many as a statement takes at once, by whether they are delayed."""
    chosen = list(dict.fromkeys(places))
    for delayed in (False, True):
        some = [each for each in chosen if each.delayed is delayed]
        for start in range(0, len(some), at_once):
            yield delayed, some[start : start + at_once]
