"""Telling where a selector is wrong."""

from __future__ import annotations

from jmsql.exceptions import InvalidSelectorException

__all__ = ["SelectorError", "invalid_selector"]

_CONTEXT = 60


class SelectorError(Exception):
    """Something is wrong at a place of the selector that is being parsed.

    Args:
        reason: What is wrong, as a sentence without its full stop.
        position: The place, counted in characters from 0.
    """

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position


def invalid_selector(text: str, error: SelectorError) -> InvalidSelectorException:
    """Make the exception that shows the place in the selector with a caret."""
    before = text[: error.position].rpartition("\n")[2][-_CONTEXT:]
    after = text[error.position :].partition("\n")[0][:_CONTEXT]
    return InvalidSelectorException(
        f"The selector is wrong at position {error.position + 1}: {error.reason}.\n"
        f"    {_printable(before)}{_printable(after)}\n"
        f"    {' ' * len(before)}^"
    )


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)
