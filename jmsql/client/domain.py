"""What the interfaces of one domain, point-to-point or publish/subscribe, leave out of the unified ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from jmsql.exceptions import IllegalStateException

__all__ = ["belongs_to_other_domain"]


def belongs_to_other_domain(method: str) -> Callable[..., NoReturn]:
    """Return a method that raises IllegalStateException, whatever its arguments (JMS 1.1, chapter 4.11)."""

    def refuse(self: object, *_: object, **__: object) -> NoReturn:
        raise IllegalStateException(
            f"{type(self).__name__} has no {method}(). Connections that ConnectionFactory.create_connection makes, "
            "and their sessions, are for queues and topics alike."
        )

    refuse.__name__ = method
    return refuse
