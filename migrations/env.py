"""Alembic's environment for the schema of jmsql.

Run by ``jmsql migrate``, which hands over an open connection and the schema's name. The versions can also join an
application's own Alembic: name this folder's ``versions`` in its ``version_locations``, and give the schema, if it is
another than ``jmsql``, as the main option ``jmsql_schema``.
"""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

from jmsql.store.schema.migration import create_schemas
from jmsql.store.schema.version import DEFAULT_SCHEMA, VERSION_TABLE


def run() -> None:
    """Bring the schema to the version that was asked for, on the connection that was handed over."""
    connection: Connection = context.config.attributes["connection"]
    schema = context.config.get_main_option("jmsql_schema", DEFAULT_SCHEMA)
    connection.exec_driver_sql(create_schemas(schema))
    context.configure(connection=connection, version_table=VERSION_TABLE, version_table_schema=schema)
    with context.begin_transaction():
        context.run_migrations()


run()
