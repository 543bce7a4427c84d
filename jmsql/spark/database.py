"""What Spark needs of the database, looked at before it plans a read or a write."""

from __future__ import annotations

from jmsql.exceptions import JMSSecurityException
from jmsql.store.driver import Driver
from jmsql.store.global_transactions import MOST_PREPARED, require_prepared_transactions
from jmsql.store.identifier import Schema
from jmsql.store.migration import check_version

__all__ = ["check_database", "check_prepared_transactions", "check_rights"]


def check_database(driver: Driver, schema_name: str) -> None:
    """Make sure that the schema is there, and of the right version.

    Args:
        driver: Runs the statements.
        schema_name: The plain name of the schema.

    Raises:
        JMSException: The schema is missing, or of another version; the message says what to do.
    """
    schema = Schema(schema_name)
    version = None
    if driver.execute("select to_regclass(%(table)s)", {"table": f"{schema}.schema_version"}).rows[0][0] is not None:
        version = driver.execute(f"select version_num from {schema}.schema_version").rows[0][0]
    check_version(version, schema_name)


def check_rights(driver: Driver, schema_name: str) -> None:
    """Make sure that this role may do what streams and writes of Spark need.

    Args:
        driver: Runs the statement.
        schema_name: The plain name of the schema.

    Raises:
        JMSSecurityException: It may not.
    """
    schema = Schema(schema_name)
    allowed, role = driver.execute(f"select {schema.internal}.may_administer(current_user), current_user").rows[0]
    if not allowed:
        raise JMSSecurityException(
            f"The role {role!r} lacks the right to administer the schema {schema_name!r}. Streams and writes of Spark "
            "need it: they pass through tables that all destinations share. The owner of the schema has it, and so has "
            "the role jmsql_admin of `jmsql roles create`.",
            "42501",
        )


def check_prepared_transactions(driver: Driver) -> None:
    """Make sure that the server can prepare transactions.

    Raises:
        ResourceAllocationException: It cannot.
    """
    require_prepared_transactions(driver.execute(MOST_PREPARED).rows[0][0])
