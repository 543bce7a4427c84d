"""Bodies for registered handlers, which stand for their destinations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def body_for(destination: object, body: object) -> object:
    """Return the message that carries a body to a handler, as its own `send` makes it; the body for other destinations.

    Raises:
        MessageFormatException: The handler would refuse the body, or it cannot be encoded.
    """
    [checked] = bodies_for(destination, [body])
    return checked


def bodies_for(destination: object, bodies: Iterable[object]) -> Iterable[object]:
    """Do the same with many bodies; those for a handler are all checked here.

    Raises:
        MessageFormatException: As for `body_for`.
    """
    checked: Any = getattr(destination, "checked_message", None)
    return bodies if checked is None else [checked(body) for body in bodies]
