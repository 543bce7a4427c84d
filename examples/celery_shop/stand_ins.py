"""Stand-ins for the mail server and the accounts of both programs."""

from __future__ import annotations

sent: list[tuple[str, str]] = []
discarded: list[str] = []


class Busy(Exception):
    """Raised by a mail server that takes no letter now."""

    seconds = 30.0


def deliver(address: str, text: str) -> None:
    """Send a letter."""
    if address.startswith("busy@"):
        raise Busy
    sent.append((address, text))


def add_up(month: str) -> dict[str, int]:
    """Return the orders of a month."""
    return {"orders": int(month.rpartition("-")[2])}


def discard(month: str) -> None:
    """Remove what is half done."""
    discarded.append(month)
