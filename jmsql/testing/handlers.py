"""Tests of handlers inside the test's own transaction: sent messages, and one call."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, overload

from jmsql.client._sync.connection.simplified import message_of
from jmsql.messages import Message
from jmsql.public_names import set_module
from jmsql.values.destinations import Queue, require_queue
from jmsql.worker import draining
from jmsql.worker.handlers.function import ListenerFunction
from jmsql.worker.handlers.received import as_received

if TYPE_CHECKING:
    from jmsql.worker.application import Application, AwaitedTransaction, BlockingTransaction
    from jmsql.worker.handlers.listener import Listener


@overload
def sent(
    transaction: BlockingTransaction, queue: Queue | str | ListenerFunction[..., Any], *, schema: str = "jmsql"
) -> list[Message]: ...


@overload
def sent(
    transaction: AwaitedTransaction, queue: Queue | str | ListenerFunction[..., Any], *, schema: str = "jmsql"
) -> Coroutine[Any, Any, list[Message]]: ...


@set_module("jmsql.testing")
def sent(
    transaction: BlockingTransaction | AwaitedTransaction,
    queue: Queue | str | ListenerFunction[..., Any],
    *,
    schema: str = "jmsql",
) -> list[Message] | Coroutine[Any, Any, list[Message]]:
    """Return the messages that a transaction has sent to a queue, and that no handler has received.

    Args:
        transaction: As for `jmsql.enlist`; or as for `jmsql.asyncio.enlist`: then the call is awaited. In autocommit
            mode: all that is committed.
        queue: The queue, its name, or the handler of its messages.
        schema: The PostgreSQL schema of jmsql's tables.

    Returns:
        The messages in the order of their delivery, those with a delivery delay last.
    """
    found = queue.destination if isinstance(queue, ListenerFunction) else queue
    return draining.sent(transaction, schema, require_queue(found))


@overload
def empty(transaction: BlockingTransaction, *, schema: str = "jmsql") -> None: ...


@overload
def empty(transaction: AwaitedTransaction, *, schema: str = "jmsql") -> Coroutine[Any, Any, None]: ...


@set_module("jmsql.testing")
def empty(
    transaction: BlockingTransaction | AwaitedTransaction, *, schema: str = "jmsql"
) -> Coroutine[Any, Any, None] | None:
    """Delete all messages of all queues and subscriptions, dead letters and history too.

    For tests that commit, such as Django's `TransactionTestCase`, between which messages would stay. Queues,
    subscriptions and their settings are left. It needs the role that has made the schema.

    Args:
        transaction: As for `jmsql.enlist`; or as for `jmsql.asyncio.enlist`: then the call is awaited. On a connection
            in autocommit mode the messages are gone for good.
        schema: The PostgreSQL schema of jmsql's tables.

    Raises:
        JMSException: PostgreSQL refused.
    """
    return draining.empty(transaction, schema)


@overload
def subscribe(app: Application, transaction: BlockingTransaction | None = None) -> None: ...


@overload
def subscribe(app: Application, transaction: AwaitedTransaction) -> Coroutine[Any, Any, None]: ...


@set_module("jmsql.testing")
def subscribe(
    app: Application, transaction: BlockingTransaction | AwaitedTransaction | None = None
) -> Coroutine[Any, Any, None] | None:
    """Make the subscriptions to topics that an application's listeners have, inside a transaction.

    A topic keeps messages for the subscriptions that there are. A worker makes them as it starts; a test does so before
    something is published that `drain` is to handle. They end with the transaction, if that is rolled back.

    Args:
        app: The application.
        transaction: As for `jmsql.enlist`; or as for `jmsql.asyncio.enlist`: then the call is awaited. None, for the
            application of a Django project alone: Django's connection.

    Raises:
        IllegalStateException: There is a subscription of that name which wants something else.
    """
    return draining.subscribe(app.own_transaction if transaction is None else transaction, app.schema, app.listeners)


@set_module("jmsql.testing")
def call(
    app: Application,
    handler: Callable[..., Any],
    message: object = None,
    *,
    transaction: BlockingTransaction | AwaitedTransaction | None = None,
) -> Any:
    """Call a handler of an application with one message, as a worker does, inside the caller's transaction.

    The message is written and read as if it had been sent. The handler runs in a savepoint.

    Args:
        app: The application.
        handler: The function that it has registered.
        message: A message, or a body that a message is made for; for a handler of chunks a list of them. None: a
            message without a body, as a schedule without one sends it.
        transaction: As for `jmsql.enlist`; or as for `jmsql.asyncio.enlist`: then the call is awaited, as
            coroutine functions have to be. None, for the application of a Django project alone: Django's connection.

    Returns:
        The value that the handler returns; under asyncio an awaitable of it.

    Raises:
        TypeError: The handler takes chunks, and that is no list, or an empty one.
        ValueError: The application has no such handler.
        BaseException: The error of the handler, whose work is undone.
    """
    for listener in app.listeners:
        if draining.is_named(listener, handler):
            joined = app.own_transaction if transaction is None else transaction
            return draining.call(joined, app.schema, listener, _all_received(listener, message), app.transaction_block)
    raise ValueError(f"{app} has no handler {handler!r}.")


def _all_received(listener: Listener, given: object) -> list[Message]:
    if listener.chunk is None:
        bodies: Sequence[object] = [given]
    elif isinstance(given, list | tuple) and given:
        bodies = given
    else:
        raise TypeError(f"{listener} takes chunks: call it with a list of messages or bodies, not {given!r}.")
    return [as_received(message_of(body), listener.destination) for body in bodies]
