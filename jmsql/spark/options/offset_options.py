"""Where a read begins and ends, as the options `startingOffsets` and `endingOffsets` say it."""

from __future__ import annotations

import datetime as dt

from jmsql.exceptions import JMSException

__all__ = ["check_offset_options", "read_timestamp"]

_ID = "ID:"
_EXAMPLE = "2026-11-21T08:00:00+00:00"


def check_offset_options(starting: str, ending: str, *, history: bool) -> None:
    """Make sure that the options make sense, of a read of the history or another.

    Raises:
        JMSException: They do not.
    """
    if starting not in {"earliest", "latest"} and not starting.startswith(_ID):
        _check_timestamp(
            "startingOffsets", starting, f"earliest, latest, a time such as {_EXAMPLE}, or the id of a message"
        )
    if ending != "latest":
        _check_timestamp("endingOffsets", ending, f"latest, or a time such as {_EXAMPLE}")
        if not history:
            raise JMSException("Option 'endingOffsets' needs option 'history'.")
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
