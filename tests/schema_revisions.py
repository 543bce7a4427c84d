"""Schemas as earlier releases have made them."""

from __future__ import annotations

from alembic import command
from alembic.config import Config

from jmsql.store.engine import open_engine
from jmsql.store.schema_version import migrations_directory

__all__ = ["migrate_to"]


def migrate_to(revision: str, url: str, schema: str = "jmsql") -> None:
    """Bring a schema to a revision, from nothing or from an earlier one."""
    config = Config()
    config.set_main_option("script_location", str(migrations_directory()))
    config.set_main_option("jmsql_schema", schema)
    engine = open_engine(url)
    try:
        with engine.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, revision)
    finally:
        engine.dispose()
