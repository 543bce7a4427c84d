"""A consumer as its session and its connection know it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jmsql.client.listeners import MessageListener
    from jmsql.client.receiving.fetching import PrefetchBuffer
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
        """The messages that were fetched and not delivered. `share` replaces it before the first `receive`."""
        self.subscription = subscription
        self.is_load = is_load
        self.listener: MessageListener | None = None
        """The listener that gets its messages. Written under the session's lock."""
        self.closed = False
        """True once the consumer is closed. Any thread sets it, before it waits for the session's lock."""

    def listen(self, listener: MessageListener | None) -> None:
        """Give the messages to a listener from now on; None: to `receive`."""
        self.listener = listener

    def share(self, buffer: PrefetchBuffer) -> None:
        """Take the messages from a prefetch buffer that other consumers of a worker's listener use, too."""
        self.buffer = buffer

    def close(self) -> None:
        """Deliver no more messages."""
        self.closed = True

    def __repr__(self) -> str:
        selector = "" if self.selector is None else f" selector={self.selector.text!r}"
        return f"<{self.kind} {self.destination}{selector}{' closed' if self.closed else ''}>"
