"""What Spark looks for: it imports every package whose name begins with ``pyspark_``, and takes its data source.

It does so for every query, of whatever source. So nothing of jmsql is loaded before it is asked for.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from jmsql.spark.options import Options, Use
    from jmsql.spark.reading.batch_reader import BatchReader
    from jmsql.spark.streaming.history_stream_reader import HistoryStreamReader
    from jmsql.spark.streaming.queue_stream_reader import StreamReader
    from jmsql.spark.writing.writer import BatchWriter, StreamWriter

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Messages as rows.

    Every read has these columns, of which the option ``columns`` or a schema given by the user chooses some:

    | column | type | what it is |
    | --- | --- | --- |
    | `destination` | string | `queue://NAME` or `topic://NAME` |
    | `sequence` | bigint | the message's place in the order of sending |
    | `priority` | int | JMSPriority, 0 to 9 |
    | `type` | string | the kind of message, such as `TextMessage` |
    | `message_id`, `correlation_id`, `reply_to`, `jms_type` | string | JMS headers |
    | `sent_at`, `expires_at`, `delivery_time` | timestamp | JMSTimestamp, JMSExpiration, JMSDeliveryTime |
    | `delivery_mode` | string | `PERSISTENT` or `NON_PERSISTENT` |
    | `properties` | string | the properties as a JSON object |
    | `property_types` | string | the types of properties that this JSON does not tell, as JSON |
    | `text_body` | string | the body of a TextMessage |
    | `json_body` | string | the body of a MapMessage, StreamMessage or ObjectMessage, as JSON |
    | `body_types` | string | the types that the JSON does not tell, as JSON |
    | `bytes_body` | binary | the body of a BytesMessage |
    | `delivery_count` | int | how often it was delivered before |
    | `body` | struct | the text or JSON body, parsed by the option ``bodySchema``; null where it does not fit |

    With the option ``properties=map``, `properties` is a map of string to struct, with the `type` of each property and its
    value as `boolean`, `long`, `double` or `string`, and there is no `property_types`.

    A read with the option ``history`` has these besides, and its `delivery_count` has the last delivery in it:

    | column | type | what it is |
    | --- | --- | --- |
    | `acknowledged_at` | timestamp | when the message left its destination |
    | `outcome` | string | how: `acknowledged`, `expired`, `dead-lettered` or `purged` |
    | `subscription`, `subscription_client_id` | string | the subscription that had it, and the client of that |
    | `connection_id`, `client_id`, `user_name` | bigint, string, string | the client that has ended it |
    | `transaction_id` | bigint | the transaction that has; no two rows have the same `transaction_id` and `sequence` |

    Spark gives the options of a table to ``CREATE TABLE`` alone. So the comment of the table's first column keeps them.
    """  # noqa: E501 - a table

    def __init__(self, options: MutableMapping[str, str]) -> None:
        from jmsql.spark.options import Options, options_of_new_table

        self._table = options_of_new_table(options)
        self._given = options if self._table is None else self._table
        self.settings: Options = Options.read(self._given)

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "jmsql"

    def schema(self) -> str:
        """The schema of a read for which the user has given none."""
        from jmsql.spark.columns.schema import read_schema

        self.settings.require_source()
        return read_schema(self.settings, self._table)

    def reader(self, schema: StructType) -> BatchReader:
        """A reader that consumes nothing: it browses, or reads the history."""
        from jmsql.spark.options import Use
        from jmsql.spark.reading.batch_reader import BatchReader, HistoryReader

        self._prepare_read(schema, Use.BATCH_READ)
        return (HistoryReader if self.settings.history else BatchReader)(self.settings, schema)

    def streamReader(self, schema: StructType) -> StreamReader | HistoryStreamReader:  # noqa: N802 - Spark's name
        """A reader that consumes, beside the other consumers; or one of the history, which consumes nothing."""
        from jmsql.spark.options import Use
        from jmsql.spark.streaming.history_stream_reader import HistoryStreamReader
        from jmsql.spark.streaming.queue_stream_reader import StreamReader

        self._prepare_read(schema, Use.STREAM_READ)
        return (HistoryStreamReader if self.settings.history else StreamReader)(self.settings, schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """A writer that sends each row as a message."""
        from jmsql.spark.writing.writer import BatchWriter

        self._prepare_write(schema, overwrite=overwrite)
        return BatchWriter(self.settings)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
        """A writer that sends each row of each micro-batch as a message."""
        from jmsql.spark.writing.writer import StreamWriter

        self._prepare_write(schema, overwrite=overwrite)
        return StreamWriter(self.settings)

    def _prepare_read(self, schema: StructType, use: Use) -> None:
        from jmsql.spark.columns.schema import check_read_schema
        from jmsql.spark.options import Use

        self._take_options_of_table(schema, use)
        if self.settings.history and use is Use.BATCH_READ:
            use = Use.HISTORY_READ
        self.settings.require_use(use)
        self.settings.require_source()
        check_read_schema(schema, self.settings)

    def _prepare_write(self, schema: StructType, *, overwrite: bool) -> None:
        from jmsql.spark.columns.schema import check_written_schema
        from jmsql.spark.options import Use

        self._take_options_of_table(schema, Use.WRITE)
        check_written_schema(schema, self.settings, overwrite=overwrite)

    def _take_options_of_table(self, schema: StructType, use: Use) -> None:
        from jmsql.spark.options import Options, options_of_table

        if self.settings.destination is None and not self.settings.history:
            self.settings = Options.read({**options_of_table(schema, use), **self._given})
