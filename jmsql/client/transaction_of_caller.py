"""The transaction that a handler works in, for what must not wait inside of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_handler: ContextVar[str | None] = ContextVar("jmsql_transaction_of_caller", default=None)


@contextmanager
def in_transaction_of(handler: str) -> Iterator[None]:
    """Have what runs in a block, and the tasks and threads that it starts, count as in a handler's transaction."""
    token = _handler.set(handler)
    try:
        yield
    finally:
        _handler.reset(token)


def handler_in_transaction() -> str | None:
    """Return the handler in whose transaction the caller works; None: it is in none that is known."""
    return _handler.get()
