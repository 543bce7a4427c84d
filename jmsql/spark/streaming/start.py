"""Where the stream of a queue starts."""

from __future__ import annotations

from jmsql.exceptions import JMSException
from jmsql.spark.offset_options import moment
from jmsql.spark.streaming.queue_stream import Start
from jmsql.spark.streaming.queue_stream_statements import source_statements
from jmsql.store.driver import PsycopgDriver

__all__ = ["find_start"]


def find_start(driver: PsycopgDriver, schema: str, queue_id: int, text: str) -> Start:
    """Return where to start streaming a queue.

    Raises:
        JMSException: The option names a message that is not in the queue.
    """
    statements = source_statements(schema)
    if text == "earliest":
        return Start()
    if text == "latest":
        return Start(sequence=driver.execute(statements.last_sequence).rows[0][0] + 1)
    if (time := moment(text)) is not None:
        return Start(timestamp=int(time.timestamp() * 1000))
    parameters = {"queue_id": queue_id, "message_id": text.removeprefix("ID:").lower()}
    found = driver.execute(statements.find_message, parameters).rows
    if not found:
        raise JMSException(f"Option 'startingOffsets': there is no message {text} in the queue.")
    return Start(sequence=found[0][0])
