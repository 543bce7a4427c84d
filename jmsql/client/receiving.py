"""The consumers of a session, and what their `receive` returns."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from jmsql.client.polling import PollInterval

if TYPE_CHECKING:
    from jmsql.client.consumer_state import ConsumerState
    from jmsql.client.dispatcher import Dispatcher
    from jmsql.client.message_listener import MessageCheck, MessageListener
    from jmsql.client.session_state import SessionState
    from jmsql.client.transaction import Transaction
    from jmsql.messages import Message

__all__ = ["Receiving"]


class Receiving:
    """The consumers of one session, and the way of their messages.

    Args:
        state: The session's; its lock is held while messages are fetched.
        transaction: The session's.
        dispatcher: Calls their listeners.
    """

    def __init__(self, state: SessionState, transaction: Transaction, dispatcher: Dispatcher) -> None:
        self._state = state
        self._client = state.client
        self._transaction = transaction
        self._acknowledgement = transaction.acknowledgement
        self._dispatcher = dispatcher

    def opened(self, consumer: ConsumerState) -> None:
        """Note that there is a new consumer."""
        with self._state.lock:
            self._state.consumers.add(consumer)
        self._client.memberships.listen(consumer.inbox)

    def closed(self, consumer: ConsumerState) -> None:
        """Note that a consumer is closed."""
        state = self._state
        state.wake_ups.wake()
        with state.lock:
            if consumer not in state.consumers:
                return  # the session has closed, and parted with it
            state.consumers.remove(consumer)
            if not state.closed:
                self._client.returned(self._acknowledgement.delivery(consumer).closed(consumer.inbox))
            self._client.memberships.leave(consumer)

    def part_with_all(self) -> None:
        """Close all consumers, as the session does."""
        while self._state.consumers:
            self._client.memberships.leave(self._state.consumers.pop())

    def receive(self, consumer: ConsumerState, timeout: float | None, check: MessageCheck | None) -> Message | None:
        """Return the consumer's next message, or None after `timeout` seconds.

        Args:
            consumer: The consumer.
            timeout: How many seconds to wait; None: for ever.
            check: As for `Acknowledgement.next`.
        """
        state, client = self._state, self._client
        state.check_no_message_listener()
        deadline = None if timeout is None else time.monotonic() + timeout
        poll = PollInterval(client.timings)
        while True:
            news = state.wake_ups.count
            with state.lock:
                if consumer.closed or (state.closed and not state.is_used_by_listener):
                    return None
                started = client.started
                if started and self._transaction.is_usable:
                    message = self._acknowledgement.next(consumer, check)
                    if message is not None:
                        return message
            if state.closed or client.closed:
                return None  # a listener gets what is there, and does not make close() wait for what may come
            pause = poll.next() if started else client.start_reminder.look(consumer)
            remaining = None if deadline is None else deadline - time.monotonic()
            if remaining is not None and remaining <= 0:
                return None
            state.wake_ups.wait(
                news, remaining if pause is None or (remaining is not None and remaining < pause) else pause
            )

    def set_listener(self, consumer: ConsumerState, listener: MessageListener | None) -> None:
        """Give the consumer's messages to a listener from now on."""
        state, acknowledgement = self._state, self._acknowledgement
        if listener is not None:
            state.check_no_message_listener()
        with state.lock:
            self._client.returned(acknowledgement.delivery(consumer).closed(consumer.inbox))
            consumer.listener = listener
            consumer.inbox.fetch_by(acknowledgement.delivery(consumer).operation)
            if listener is not None:
                self._dispatcher.start()
        state.wake_ups.wake()
