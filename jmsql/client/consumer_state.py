"""A consumer as its session and its connection know it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jmsql.client.listeners import MessageListener
    from jmsql.client.prefetch_buffer import PrefetchBuffer
    from jmsql.selectors import Selector
    from jmsql.store.destinations.subscriptions import SubscriptionDefinition
    from jmsql.values.destinations import Destination


class ConsumerState:
    """Where a consumer's messages come from, and where they go.

    Args:
        kind: The consumer's kind, for the log.
        destination: The queue or topic that its messages come from.
        selector: Which of its messages are wanted; None: all.
        buffer: The fetched messages that are not delivered yet.
        subscription: The subscription that it receives from, if it comes from a topic.
        is_load: Whether it is none of the application's, but says where a connection consumer's messages come from.
    """

    def __init__(
        self,
        kind: str,
        destination: Destination,
        selector: Selector | None,
        buffer: PrefetchBuffer,
        subscription: SubscriptionDefinition | None = None,
        *,
        is_load: bool = False,
    ) -> None:
        self.kind = kind
        self.destination = destination
        self.selector = selector
        self.buffer = buffer
        self.subscription = subscription
        self.is_load = is_load
        self.listener: MessageListener | None = None
        self.listener_name: str | None = None
        """The name of the worker's listener that receives by it; None: the application receives."""
        self.closed = False
        self.news_seen: int | None = None
        """How much news of its queue there had been when its listener was last given a message, or had none."""
        self.may_have_more = True
        """True if its listener was given a message then, and may get another one."""

    def __repr__(self) -> str:
        selector = "" if self.selector is None else f" selector={self.selector.text!r}"
        return f"<{self.kind} {self.destination}{selector}{' closed' if self.closed else ''}>"
