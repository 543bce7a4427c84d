"""The rights to send to a destination, receive from it, and browse it: a thin cover of SQL functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from jmsql.exceptions import JMSException
from jmsql.public_names import set_module
from jmsql.store.statement import Query, SqlFile, Steps, column, nothing, records
from jmsql.values.destinations import Destination, Topic

Action = Literal["send", "receive", "browse"]


@set_module("jmsql.admin")
class AccessSummary(NamedTuple):
    """A row of the view ``grants``; without a destination, it is about all of them."""

    kind: str | None
    destination: str | None
    role: str
    send: bool
    receive: bool
    browse: bool
    administer: bool


_ATTEMPTS = 5
_DEADLOCK_DETECTED = "40P01"

_sql = SqlFile("administration")
_grant = _sql.statement("grant", "changing the access to {destination}", nothing)
_revoke = _sql.statement("revoke", "changing the access to {destination}", nothing)
_create_roles = _sql.statement("create_roles", "making roles", column)
_grants = _sql.statement("grants", "looking at who has access", records(AccessSummary._make))


def grant(destination: Destination, role: str, actions: Sequence[Action]) -> Steps[None]:
    """Let a role do something with a destination, on a connection in autocommit mode.

    The first grant of a schema locks its tables one after the other, as a client may that uses them in another order:
    PostgreSQL ends one of the two. Nothing has been granted then, and it is done again.
    """
    granting = _grant.bind(destination=destination, uri=destination.uri, role=role, actions=list(actions))
    for _ in range(_ATTEMPTS - 1):
        try:
            return (yield from granting)
        except JMSException as error:
            if error.error_code != _DEADLOCK_DETECTED:
                raise
    return (yield from granting)


def revoke(destination: Destination, role: str, actions: Sequence[Action]) -> Query[None]:
    """Let a role do something with a destination no more."""
    return _revoke.bind(destination=destination, uri=destination.uri, role=role, actions=list(actions))


def create_roles() -> Query[list[str]]:
    """Make the roles that have access to all destinations, and return those that were not there."""
    return _create_roles.bind()


def access_summaries(destination: Destination | None = None) -> Query[list[AccessSummary]]:
    """Return the roles with access to a destination, or to all and each of them, by destination and role."""
    if destination is None:
        return _grants.bind(kind=None, name=None)
    return _grants.bind(kind="topic" if isinstance(destination, Topic) else "queue", name=destination.name)
