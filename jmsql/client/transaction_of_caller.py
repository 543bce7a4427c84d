"""The transaction that a handler works in, for what must not wait inside of it."""

from __future__ import annotations

from contextvars import ContextVar

handler_in_transaction: ContextVar[str | None] = ContextVar("jmsql_handler_in_transaction", default=None)
"""The handler in whose transaction the caller works, also in tasks and threads that it starts; None: it is in none."""
