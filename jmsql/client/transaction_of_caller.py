"""The caller's open transactions, for calls that must not wait inside of one."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import NamedTuple, Protocol, cast

# A call that waits for another transaction's effect, such as a request for its reply, must not wait with the caller's
# own transaction open: its own sends take effect with its commit, and the wait would end by its time-out. These
# look-ups find the cases that are known: a transacted handler, an enlisted transaction of the same thread and task, and
# integrations such as Django's `atomic`. A transaction that jmsql was never told of is not found.


handler_in_transaction: ContextVar[str | None] = ContextVar("jmsql_handler_in_transaction", default=None)
"""The handler in whose transaction the caller works, also in tasks and threads that it starts; None: it is in none."""

known_transactions: list[Callable[[], str | None]] = []
"""Functions of framework integrations that describe their caller's open transaction, or return None."""

DJANGO_IN_COROUTINE = (
    "Django's connection is for plain functions: Django has no transactions in coroutine functions. Put the statements "
    "of the transaction, with jmsql.enlist(connection), into a plain function, and await "
    "asgiref.sync.sync_to_async(function)()."
)


def kind_of(value: object) -> str:
    """Return the name of an object's class, with its module: several libraries have a Session and a Connection."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


class _Enlisted(NamedTuple):
    transaction: Callable[[], object | None]
    is_open: Callable[[object], bool]
    flow: object
    """The thread and the task that have enlisted it: others' calls are not part of the transaction."""


_enlisted: ContextVar[tuple[_Enlisted, ...]] = ContextVar("jmsql_enlisted", default=())


class _Pooled(Protocol):
    def is_closed(self) -> bool:
        """Return True for a closed connection; raise an error for one that was released."""


def _unless_released(transaction: _Pooled) -> object | None:
    """Return the connection of a pool, in place of a weak reference; None once its caller has released it."""
    try:
        transaction.is_closed()
    except Exception:  # noqa: BLE001 - asyncpg's InterfaceError, and this module does not import asyncpg
        return None
    return transaction


def remember_enlisted(transaction: object, is_open: Callable[[object], bool]) -> None:
    """Note that the caller works with a transaction of its own."""
    others = (
        each for each in _enlisted.get() if (other := each.transaction()) is not None and other is not transaction
    )
    try:
        reference: Callable[[], object | None] = weakref.ref(transaction)
    except TypeError:  # a pooled asyncpg connection
        reference = partial(_unless_released, cast("_Pooled", transaction))
    _enlisted.set((*others, _Enlisted(reference, is_open, _flow())))


def open_transaction() -> str | None:
    """Return the caller's open transaction, as far as it is known; None: none is known."""
    handler = handler_in_transaction.get()
    if handler is not None:
        return f"the transaction of the handler {handler}, which can be registered with transacted=False"
    flow = _flow()
    for each in _enlisted.get():
        transaction = each.transaction()
        if transaction is not None and each.flow == flow and each.is_open(transaction):
            return f"the transaction of an enlisted {type(transaction).__qualname__}"
    return next((known for find in known_transactions if (known := find()) is not None), None)


def _flow() -> object:
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        task = None
    return threading.get_ident(), None if task is None else id(task)
