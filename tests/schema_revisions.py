"""Schemas as earlier releases have made them."""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

from jmsql.store.connections.engine import open_engine
from jmsql.store.schema.version import migrations_directory


def alembic_configuration(connection: Connection, schema: str) -> Config:
    """Return what Alembic takes to bring a schema to any revision."""
    config = Config()
    config.set_main_option("script_location", str(migrations_directory()))
    config.set_main_option("jmsql_schema", schema)
    config.attributes["connection"] = connection
    return config


def migrate_to(revision: str, url: str, schema: str) -> None:
    """Bring a schema to a revision, from nothing or from an earlier one."""
    engine = open_engine(url)
    try:
        with engine.begin() as connection:
            command.upgrade(alembic_configuration(connection, schema), revision)
    finally:
        engine.dispose()
