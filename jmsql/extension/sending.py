"""Sending messages: published by SQL, or committed by several connections and made visible at one instant."""

from __future__ import annotations

from jmsql.store.control.counters import Counts, add_counters
from jmsql.store.rows.columns import DELAYED_COLUMNS
from jmsql.store.sending import pending_transactions
from jmsql.store.sending.notification import notify_sent
from jmsql.store.sending.send import Publisher, publish_statement, publish_with

__all__ = [
    "DELAYED_COLUMNS",
    "Counts",
    "Publisher",
    "add_counters",
    "notify_sent",
    "pending_transactions",
    "publish_statement",
    "publish_with",
]
