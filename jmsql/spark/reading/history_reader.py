"""Reading what has left its destination."""

from __future__ import annotations

from typing import Any

import psycopg
from pyspark.sql.types import StructType

from jmsql.exceptions import InvalidDestinationException, JMSException
from jmsql.spark.arrow import Shaper
from jmsql.spark.database import check_database
from jmsql.spark.offset_options import moment
from jmsql.spark.options import Options
from jmsql.spark.reading.batch_reader import BatchReader
from jmsql.spark.reading.history_division import HistorySpan, divide_history
from jmsql.spark.reading.history_statements import HistoryOrigin, history_statements
from jmsql.store.driver import Driver, PsycopgDriver

__all__ = ["HistoryReader", "find_origin"]


class HistoryReader(BatchReader):
    """Reads the history of a queue, a topic, a subscription, or of all there is; all its tasks see the same moment.

    Args:
        options: The options of the read.
        schema: What to return.

    Raises:
        JMSException: The read starts with what is not there yet.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        if options.starting_offsets == "latest":
            raise JMSException(
                "Option 'startingOffsets': a batch read of the history from 'latest' on is empty. Give earliest or a "
                "time; 'latest' is for streams."
            )
        super().__init__(options, schema)
        self._history_of = options.schema

    def _plan(self, connection: psycopg.Connection[Any]) -> list[str]:
        """Return the statement of each task."""
        options = self._options
        driver = PsycopgDriver(connection)
        origin = find_origin(driver, options)
        span = HistorySpan(moment(options.starting_offsets), moment(options.ending_offsets))
        statements = history_statements(options.schema)
        columns = Shaper(self._schema).columns
        cursor = psycopg.ClientCursor(connection)

        def text(part: str, bounds: dict[str, object]) -> str:
            read = statements.read(columns, origin, options.selector, part, self.filters)
            return cursor.mogrify(read.text, {**bounds, **read.parameters})

        return [
            " union all ".join(text(*part) for part in parts)
            for parts in divide_history(driver, options.schema, origin, span, options.partitions)
        ]


def find_origin(driver: Driver, options: Options) -> HistoryOrigin:
    """Return whose history the options name.

    Raises:
        InvalidDestinationException: It is neither there, nor does the history know it.
    """
    check_database(driver, options.schema)
    origin = HistoryOrigin(options.destination, options.subscription, options.client_id)
    if origin.destination is not None:
        known = history_statements(options.schema).find(origin)
        if not driver.execute(known.text, known.parameters).rows[0][0]:
            option = (
                "queue" if options.queue is not None else "topic" if options.subscription is None else "subscription"
            )
            name = options.subscription if option == "subscription" else origin.destination.name
            raise InvalidDestinationException(
                f"Option '{option}': there is no {option} {name!r}, and nothing of it in the history."
            )
    return origin
