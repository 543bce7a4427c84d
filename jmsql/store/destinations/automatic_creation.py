"""Whether the first use of a queue or topic makes it."""

from __future__ import annotations

from jmsql.exceptions import InvalidDestinationException
from jmsql.store.statement import Query, SqlFile, Steps, nothing, value
from jmsql.values.destinations import Destination, Topic

__all__ = ["automatic_creation", "refusal", "set_automatic_creation"]

_sql = SqlFile("destinations")
automatic_creation = _sql.statement("automatic_creation", "looking at the configuration", value(bool)).bind()
"""Whether the first use of a queue or topic makes it."""
_set = _sql.statement("set_automatic_creation", "changing the configuration", nothing)


def set_automatic_creation(*, enabled: bool) -> Query[None]:
    """Say whether the first use of a queue or topic makes it."""
    return _set.bind(enabled=enabled)


def refusal(destination: Destination, *, by_client: bool) -> Steps[InvalidDestinationException]:
    """Return what to raise for a destination that is not there and was not made.

    Args:
        destination: The destination.
        by_client: Whether the client does not want it made.
    """
    kind = "topic" if isinstance(destination, Topic) else "queue"
    if not by_client and (yield from automatic_creation):
        return InvalidDestinationException(f"The {kind} {destination.name!r} was deleted as fast as it was created.")
    name = destination.uri if kind == "topic" else destination.name
    return InvalidDestinationException(
        f"There is no {kind} {destination.name!r}, and its use does not make it: automatic creation is off. "
        f"`jmsql destination create {name}` makes it."
    )
