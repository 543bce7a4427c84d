"""Reading what has left its destination."""

from __future__ import annotations

from typing import Any

import psycopg
from pyspark.sql.types import StructType

from jmsql.exceptions import JMSException
from jmsql.spark.columns.expressions import Condition, rare_columns_of_history
from jmsql.spark.columns.schema import shaper
from jmsql.spark.connection import inlined
from jmsql.spark.options.offset_options import read_timestamp
from jmsql.spark.options.options import Options
from jmsql.spark.reading.batch_reader import BatchReader
from jmsql.spark.reading.history import HistorySpan, divide_history, find_origin, read_history
from jmsql.store.runners._sync.runner import PsycopgRunner

__all__ = ["HistoryReader"]


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
        planning = PsycopgRunner(connection, options.schema)
        origin = find_origin(planning, options)
        span = HistorySpan(read_timestamp(options.starting_offsets), read_timestamp(options.ending_offsets))
        columns = shaper(self._schema, self._options).columns
        rare = planning.run(rare_columns_of_history())

        def text(part: Condition) -> str:
            read = read_history(columns, origin, options.selector, part, self.filters, rare)
            return inlined(connection, options.schema, read)

        return [
            " union all ".join(map(text, parts))
            for parts in planning.run(divide_history(origin, span, options.count_partitions))
        ]
