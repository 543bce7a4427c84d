"""What a worker handles: listeners, registered with their destinations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from jmsql.client._sync.connection.factory import ConnectionFactory
from jmsql.client._sync.exchange.consumer import MessageConsumer
from jmsql.client._sync.session.session import Session
from jmsql.destinations import Destination, Queue, Topic, require_destination
from jmsql.exceptions import InvalidSelectorException
from jmsql.policies import RedeliveryPolicy, claim_duration
from jmsql.public_names import set_module
from jmsql.selectors import Selector
from jmsql.store.subscription_change import SubscriptionChange
from jmsql.worker.parameters import Parameter, read_parameters

__all__ = ["Application", "Listener"]

Handler = TypeVar("Handler", bound=Callable[..., object])


@dataclass(frozen=True)
class Listener:
    """A handler, and which messages it is called with."""

    name: str
    handler: Callable[..., object]
    parameters: tuple[Parameter, ...]
    destination: Queue | Topic
    selector: str | None
    transacted: bool
    concurrency: int | None
    subscription: str | None
    durable: bool
    redelivery: RedeliveryPolicy | None
    visibility_timeout: float | None

    @property
    def is_async(self) -> bool:
        """Whether the handler is a coroutine function."""
        call = getattr(self.handler, "__call__", None)  # noqa: B004 - of an object whose call is one
        return inspect.iscoroutinefunction(self.handler) or inspect.iscoroutinefunction(call)

    @property
    def shares_transaction(self) -> bool:
        """Whether the handler can do something in the transaction in which its message is received."""
        return any(parameter.shares_transaction for parameter in self.parameters)

    def create_consumer(
        self, session: Session, if_changed: SubscriptionChange = SubscriptionChange.REFUSE
    ) -> MessageConsumer:
        """Make a consumer of the listener's messages; it competes with all others of this listener.

        Args:
            session: The consumer's.
            if_changed: What happens to a durable subscription that has another topic or selector.

        Raises:
            IllegalStateException: The subscription has another topic or selector, and is not changed.
        """
        if isinstance(self.destination, Queue):
            return session.create_consumer(self.destination, self.selector)
        assert self.subscription is not None
        if not self.durable:
            return session.create_shared_consumer(self.destination, self.subscription, self.selector)
        return session.create_shared_durable_consumer(
            self.destination, self.subscription, self.selector, if_changed=if_changed
        )

    def facts(self, concurrency: int) -> dict[str, object]:
        """Return what the log tells of it when a worker starts.

        Args:
            concurrency: How many messages it handles at a time, unless it says so itself.
        """
        return {
            "listener": self.name,
            "destination": str(self.destination),
            "selector": self.selector or None,
            "subscription": self.subscription,
            "durable": None if self.subscription is None else self.durable,
            "concurrency": self.concurrency or concurrency,
            "transacted": self.transacted,
        }

    def __str__(self) -> str:
        return f"{self.name} on {self.destination}"


@set_module("jmsql.worker")
class Application:
    """The listeners that a worker runs: ``jmsql worker package.module:name``.

    Args:
        factory: Where the messages are. None: the database that the worker is given, which is that of the environment
            variable ``JMSQL_URL``, else the embedded server.
    """

    def __init__(self, factory: ConnectionFactory | None = None) -> None:
        self.factory = factory
        self.listeners: list[Listener] = []

    def listener(
        self,
        destination: str | Destination,
        *,
        selector: str | None = None,
        transacted: bool = True,
        concurrency: int | None = None,
        subscription: str | None = None,
        durable: bool = True,
        redelivery: RedeliveryPolicy | None = None,
        visibility_timeout: float | timedelta | None = None,
    ) -> Callable[[Handler], Handler]:
        """Register a handler: a function, or a coroutine function, which is called with one message at a time.

        Its parameters say what it wants of each message; see [the worker](worker.md#what-a-handler-is-given).

        Args:
            destination: A queue, the name of one, or a topic.
            selector: Which of its messages are wanted; None or "": all.
            transacted: Whether receiving the message, what the handler does with its `database`, and what it sends with
                its `session` or `context`, are one transaction. If not, the message is acknowledged when the handler
                returns, and no transaction is open while it runs.
            concurrency: How many of its messages each process handles at a time; None: what the worker is told.
            subscription: The name of the subscription to the topic, which all workers share.
            durable: Whether that subscription collects messages while no worker runs.
            redelivery: What becomes of messages with which the handler fails; None: what is set for the destination, or
                else that they come again after 1 s, 2 s, 4 s and so on, up to four hours, and move to the dead-letter
                queue after 20 deliveries.
            visibility_timeout: After how many seconds (or a `timedelta`) without a heartbeat of its process a message
                goes to another handler, if it is not transacted; None: what is set for the destination, or else only
                when the process has ended.

        Returns:
            What registers the handler, and returns it unchanged.

        Raises:
            InvalidDestinationException: That is not a destination.
            InvalidSelectorException: The selector has an error; the message shows where.
            TypeError: The handler asks for something that it cannot be given.
            ValueError: A topic needs a subscription, a queue has none; the concurrency is less than 1; the visibility
                timeout is less than a second, or for a handler that is transacted.
        """
        found = Queue(destination) if isinstance(destination, str) else require_destination(destination)
        assert isinstance(found, Queue | Topic)

        def register(handler: Handler) -> Handler:
            name = _name(handler)
            _check(name, found, concurrency, subscription)
            timeout = _visibility_timeout(name, visibility_timeout, transacted=transacted)
            try:
                Selector.parse(selector)
            except InvalidSelectorException as error:
                raise InvalidSelectorException(f"The selector of the handler {name}: {error}") from error
            parameters = read_parameters(handler, name, transacted=transacted)
            self.listeners.append(
                Listener(
                    name,
                    handler,
                    parameters,
                    found,
                    selector,
                    transacted,
                    concurrency,
                    subscription,
                    durable,
                    redelivery,
                    timeout,
                )
            )
            return handler

        return register

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(map(str, self.listeners)) or 'without listeners'}>"


def _name(handler: object) -> str:
    owner = handler if hasattr(handler, "__qualname__") else type(handler)
    return f"{owner.__module__}.{getattr(owner, '__qualname__', '?')}"


def _check(name: str, destination: Destination, concurrency: int | None, subscription: str | None) -> None:
    if isinstance(destination, Topic) and not subscription:
        raise ValueError(f"The handler {name} listens to {destination}: name its subscription, subscription='…'.")
    if isinstance(destination, Queue) and subscription is not None:
        raise ValueError(f"The handler {name} listens to {destination}, and only topics have subscriptions.")
    if concurrency is not None and concurrency < 1:
        raise ValueError(f"The concurrency of the handler {name} is at least 1, not {concurrency}.")


def _visibility_timeout(name: str, limit: float | timedelta | None, *, transacted: bool) -> float | None:
    if limit is None:
        return None
    if transacted:
        raise ValueError(f"The handler {name} is transacted: its transaction holds the message, and no claim does.")
    return claim_duration(limit)
