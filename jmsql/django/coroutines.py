"""Django's ORM has no asynchronous connection: coroutine functions cannot use it in their message's transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.db.backends.signals import connection_created

from jmsql.exceptions import IllegalStateException

_handler = ContextVar[str | None]("jmsql.django.handler", default=None)
"""The coroutine function that handles a message in its transaction, in the context of its task."""


@contextmanager
def orm_refused(handler: str) -> Iterator[None]:
    """Refuse the ORM while a block runs, in its task and in the threads that the task waits for."""
    token = _handler.set(handler)
    try:
        yield
    finally:
        _handler.reset(token)


def _check(execute: Callable[..., Any], *arguments: Any) -> Any:
    require_orm()
    return execute(*arguments)


def require_orm() -> None:
    """Make sure that Django's connection may be used here.

    Raises:
        IllegalStateException: The statements of a coroutine function would not be in its message's transaction.
    """
    name = _handler.get()
    if name is not None:
        raise IllegalStateException(
            f"The coroutine function {name} uses Django's ORM, which has no asynchronous connection: its statements "
            "run in a thread, on another connection, outside of the message's transaction. Make the handler a plain "
            "function (it can call coroutines by asgiref.sync.async_to_sync), or register it with "
            "transacted=False."
        )


def _watch(connection: Any, **_: Any) -> None:
    # First in the list. A connection opens with its first query, perhaps inside `connection.execute_wrapper(…)`, which
    # pops the last wrapper of the list at its end, whichever that is.
    if _check not in connection.execute_wrappers:
        connection.execute_wrappers.insert(0, _check)


def watch_connections() -> None:
    """Make each connection that Django opens from now on refuse the uses that `orm_refused` names."""
    connection_created.connect(_watch, dispatch_uid="jmsql.django.coroutines")
