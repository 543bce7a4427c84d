"""The database that is written to, made sure of before any task starts."""

from __future__ import annotations

from jmsql.exceptions import ResourceAllocationException
from jmsql.spark.database import check_database, check_prepared_transactions, check_rights
from jmsql.spark.options import Options
from jmsql.spark.writing.maintenance import request_maintenance
from jmsql.store.driver import PsycopgDriver

__all__ = ["check_target"]


def check_target(options: Options) -> None:
    """Make sure that the database takes what is written, and have its clients look after what a dead task leaves.

    Raises:
        JMSException: It cannot be reached, its schema is missing or of another version, the role may not write, or the
            server prepares no transactions and is to.
    """
    with options.database.connect("planning a write") as connection:
        driver = PsycopgDriver(connection)
        check_database(driver, options.schema)
        check_rights(driver, options.schema)
        if options.two_phase_commit:
            try:
                check_prepared_transactions(driver)
            except ResourceAllocationException as error:
                raise ResourceAllocationException(f"Option 'twoPhaseCommit': {error}", error.error_code) from error
        request_maintenance(driver, options.schema, two_phase_commit=options.two_phase_commit)
