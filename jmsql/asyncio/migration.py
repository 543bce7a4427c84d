"""Bringing the schema up to date, awaited."""

from __future__ import annotations

from jmsql.concurrency.tasks import in_thread
from jmsql.public_names import set_module
from jmsql.store.schema import migration
from jmsql.store.schema.version import DEFAULT_SCHEMA

__all__ = ["migrate"]


@set_module("jmsql.asyncio")
async def migrate(url: str, schema: str = DEFAULT_SCHEMA) -> str | None:
    """Run [`jmsql.migrate`][] in a thread.

    A caller that is cancelled meanwhile waits for its end all the same: it is one transaction.

    Args:
        url: Where the database is, as for [`ConnectionFactory`][jmsql.asyncio.ConnectionFactory].
        schema: The schema's name.

    Returns:
        The version that it had; None if it was not there.

    Raises:
        JMSSecurityException: The role lacks a right; the message says which, and who can give it.
        JMSException: The database cannot be reached, or the migration failed; then nothing has changed. Or the name
            has a character that cannot be in it, or the schema is of a release after the next one.
    """
    return await in_thread(migration.migrate, url, schema)
