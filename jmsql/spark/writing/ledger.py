"""Writing what Spark's tasks have staged: in one transaction, once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from jmsql.exceptions import JMSException
from jmsql.postgresql_text import to_postgresql
from jmsql.spark.writing.staging import Attempt, StagedMessages, total
from jmsql.store.driver import Driver
from jmsql.store.errors import jms_errors
from jmsql.store.identifier import Schema
from jmsql.store.runner import Runner
from jmsql.store.traffic import add_traffic

__all__ = ["SparkWrites", "WriteLedger"]

_KEPT_BATCHES = 100
"""How many batches of a streaming query stay in the ledger. Spark repeats the last one alone."""


class LedgerStatements:
    """The statements for one schema.

    Args:
        schema_name: The plain name of the schema.
    """

    def __init__(self, schema_name: str) -> None:
        schema = Schema(schema_name)
        self.enter = f"""
            insert into {schema.internal}.spark_write (write_id, batch_id, messages)
            values (%(write_id)s, %(batch_id)s, %(messages)s) on conflict do nothing"""
        self.forget = f"""
            delete from {schema.internal}.spark_write where write_id = %(write_id)s and batch_id < %(batch_id)s"""


@cache
def _statements(schema_name: str) -> LedgerStatements:
    return LedgerStatements(schema_name)


class WriteLedger:
    """The writes of Spark that are done, seen through one connection and its open transaction.

    Args:
        driver: Runs the statements.
        schema: The name of the schema.
    """

    def __init__(self, driver: Driver, schema: str) -> None:
        self._driver = driver
        self._statements = _statements(schema)

    def enter(self, write_id: str, batch_id: int, messages: int, *, is_stream: bool) -> bool:
        """Note that a write is done; return whether it was not before.

        Another driver that writes the same waits here until this transaction ends.

        Args:
            write_id: What the write is known by.
            batch_id: Which batch of it this is.
            messages: How many messages it has.
            is_stream: Whether only the last batches can come again.
        """
        entry = {"write_id": to_postgresql(write_id), "batch_id": batch_id, "messages": messages}
        is_new = self._driver.execute(self._statements.enter, entry).row_count == 1
        if is_new and is_stream:
            self._driver.execute(self._statements.forget, {**entry, "batch_id": batch_id - _KEPT_BATCHES})
        return is_new


class SparkWrites:
    """The writes of Spark, seen through one connection and its open transaction.

    Args:
        driver: Runs the statements.
        schema: The name of the schema.
    """

    def __init__(self, driver: Driver, schema: str) -> None:
        self._driver = driver
        self._schema = schema
        self._staged = StagedMessages(driver, schema)

    def write(self, attempts: Sequence[Attempt], write_id: str, batch_id: int, *, is_stream: bool) -> bool:
        """Send what was staged, unless the same write was done before; return whether it was sent now.

        Args:
            attempts: Those that succeeded, one for each task.
            write_id: What the write is known by.
            batch_id: Which batch of it this is.
            is_stream: Whether only the last batches can come again.

        Raises:
            JMSException: Something that was staged is gone.
        """
        attempts = sorted(attempts, key=lambda attempt: attempt.partition)
        messages = total(attempts)
        with jms_errors("writing messages"):
            ledger = WriteLedger(self._driver, self._schema)
            is_new = ledger.enter(write_id, batch_id, messages.total(), is_stream=is_stream)
            if is_new:
                self._staged.send(attempts)
            # What is there now was there to be sent: nobody adds to what an attempt has staged.
            missing = messages.total() - self._staged.forget(attempts)
            if is_new and missing:
                raise JMSException(
                    f"{missing} of {messages.total()} messages that Spark's tasks have staged are gone, as after a "
                    "crash of the server. Nothing was written; run the write again."
                )
            sent = self._staged.traffic(messages) if is_new else {}
            if sent:
                self._staged.notify(messages)
                Runner(self._driver, self._schema).run(add_traffic(sent))  # last: its rows are shared by all who send
        return is_new

    def forget(self, attempts: Sequence[Attempt]) -> None:
        """Remove what was staged."""
        with jms_errors("discarding staged messages"):
            self._staged.forget(attempts)
