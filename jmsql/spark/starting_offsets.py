"""What a new streaming read begins with, as the option `startingOffsets` says it."""

from __future__ import annotations

import datetime as dt

from jmsql.exceptions import JMSException
from jmsql.store.driver import PsycopgDriver
from jmsql.store.spark_sources import source_statements
from jmsql.store.spark_streams import Start

__all__ = ["check_starting_offsets", "find_start"]

_ID = "ID:"


def _timestamp(text: str) -> int:
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise JMSException(
            f"Option 'startingOffsets' is earliest, latest, a time such as 2026-11-21T08:00:00+00:00, or the id of a "
            f"message (ID:…), not {text!r}."
        ) from error
    if moment.tzinfo is None:
        raise JMSException(f"Option 'startingOffsets': the time {text!r} has no time zone; write +00:00 after it.")
    return int(moment.timestamp() * 1000)


def check_starting_offsets(text: str) -> None:
    """Make sure that the option makes sense.

    Raises:
        JMSException: It does not.
    """
    if text not in {"earliest", "latest"} and not text.startswith(_ID):
        _timestamp(text)


def find_start(driver: PsycopgDriver, schema: str, queue_id: int, text: str) -> Start:
    """Return where to start.

    Raises:
        JMSException: The option names a message that is not in the queue.
    """
    statements = source_statements(schema)
    if text == "earliest":
        return Start()
    if text == "latest":
        return Start(sequence=driver.execute(statements.last_sequence).rows[0][0] + 1)
    if not text.startswith(_ID):
        return Start(timestamp=_timestamp(text))
    parameters = {"queue_id": queue_id, "message_id": text.removeprefix(_ID).lower()}
    found = driver.execute(statements.find_message, parameters).rows
    if not found:
        raise JMSException(f"Option 'startingOffsets': there is no message {text} in the queue.")
    return Start(sequence=found[0][0])
