"""Targets of a send: which of them are awaited."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import psycopg

_AWAITED = {
    "sqlalchemy.ext.asyncio": ("AsyncConnection", "AsyncSession", "async_scoped_session"),
    "asyncpg": ("Connection",),
    "jmsql.client._async.connection.connection": ("Connection",),
    "jmsql.client._async.connection.context": ("JMSContext",),
    "jmsql.client._async.session.session": ("Session",),
}
"""The classes by their modules; an application that has not imported a module has no object of it."""


_BLOCKING = {
    "sqlalchemy": ("Connection",),
    "sqlalchemy.orm": ("Session", "scoped_session"),
    "jmsql.client._sync.connection.connection": ("Connection",),
    "jmsql.client._sync.connection.context": ("JMSContext",),
    "jmsql.client._sync.session.session": ("Session",),
}
"""The same for those that block."""


def is_target(value: object) -> bool:
    """Return True if a value is a target, and no body: a session, context, connection or transaction."""
    return isinstance(value, psycopg.Connection) or is_awaited(value) or _is_of(value, _BLOCKING)


def is_awaited(target: object) -> bool:
    """Return True if work in a transaction, or over a session or connection, is awaited.

    Args:
        target: A session, context or connection of jmsql, or a transaction as the two functions `enlist` take them.
    """
    if isinstance(target, psycopg.AsyncConnection):
        return True
    return _is_of(target, _AWAITED)


def _is_of(value: object, classes: Mapping[str, Sequence[str]]) -> bool:
    modules = ((sys.modules.get(name), names) for name, names in classes.items())
    return any(
        isinstance(value, getattr(module, name)) for module, names in modules if module is not None for name in names
    )
