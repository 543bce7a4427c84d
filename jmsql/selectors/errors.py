"""Telling where a selector is wrong."""

from __future__ import annotations

import unicodedata

from jmsql.exceptions import InvalidSelectorException

_CONTEXT = 36
"""How many columns are shown on either side of the place, so that they fit into a terminal together."""


class SelectorError(Exception):
    """Something is wrong at a place of the selector that is being parsed.

    Args:
        reason: The error, as a sentence without its full stop.
        position: The place, counted in characters from 0.
    """

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position


def invalid_selector(text: str, error: SelectorError) -> InvalidSelectorException:
    """Make the exception that shows the place in the selector with a caret."""
    before = _last_columns(_printable(text[: error.position].rpartition("\n")[2]))
    after = _last_columns(_printable(text[error.position :].partition("\n")[0])[::-1])[::-1]
    return InvalidSelectorException(
        f"The selector is wrong at position {error.position + 1}: {error.reason}.\n"
        f"    {before}{after}\n"
        f"    {' ' * sum(map(_width, before))}^"
    )


def _last_columns(text: str) -> str:
    """Return as much of the end of a text as fits."""
    columns = 0
    for number, character in enumerate(reversed(text)):
        columns += _width(character)
        if columns > _CONTEXT:
            return text[len(text) - number :]
    return text


def _width(character: str) -> int:
    """Return how many columns of a terminal a character takes."""
    if unicodedata.category(character) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)
