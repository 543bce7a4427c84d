"""Objects that have a destination, such as registered handlers."""

from __future__ import annotations

from typing import Protocol

from jmsql.values.destinations import Destination


class HasDestination(Protocol):
    """A registered handler, or another object with a destination."""

    @property
    def destination(self) -> Destination:
        """The destination of its messages."""
