"""Reading messages without receiving them: in the order of the key, chosen by a selector, in parts."""

from __future__ import annotations

from jmsql.selectors import Selector
from jmsql.store.destinations.lookup import (
    automatic_creation,
    find_queue,
    find_topic,
    queue_id,
    require_access,
    topic_id,
)
from jmsql.store.receiving.candidates import HAS_NOT_EXPIRED, LAST_SEQUENCE, by_key
from jmsql.store.receiving.receive import PRIORITIES
from jmsql.store.rows.columns import and_chosen, body_columns

__all__ = [
    "HAS_NOT_EXPIRED",
    "LAST_SEQUENCE",
    "PRIORITIES",
    "Selector",
    "and_chosen",
    "automatic_creation",
    "body_columns",
    "by_key",
    "find_queue",
    "find_topic",
    "queue_id",
    "require_access",
    "topic_id",
]
