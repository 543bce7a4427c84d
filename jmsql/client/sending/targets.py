"""Targets of a send: which of them are awaited."""

from __future__ import annotations

import sys

import psycopg

_AWAITED = {
    "sqlalchemy.ext.asyncio": ("AsyncConnection", "AsyncSession", "async_scoped_session"),
    "asyncpg": ("Connection",),
    "jmsql.client._async.connection.connection": ("Connection",),
    "jmsql.client._async.connection.context": ("JMSContext",),
    "jmsql.client._async.session.session": ("Session",),
}
"""The classes by their modules; an application that has not imported a module has no object of it."""


def is_awaited(target: object) -> bool:
    """Return True if work in a transaction, or over a session or connection, is awaited.

    Args:
        target: A session, context or connection of jmsql, or a transaction as the two functions `enlist` take them.
    """
    if isinstance(target, psycopg.AsyncConnection):
        return True
    modules = ((sys.modules.get(name), names) for name, names in _AWAITED.items())
    return any(
        isinstance(target, getattr(module, name)) for module, names in modules if module is not None for name in names
    )
