"""The state of a session that its parts share: its lock, its consumers, and whether it is closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jmsql.client.acknowledge_mode import AcknowledgeMode
from jmsql.client.instrumentation import SessionFacts
from jmsql.concurrency.tasks import CallGuard, Notifications, RLock, current, taken_within
from jmsql.exceptions import IllegalStateException

if TYPE_CHECKING:
    from types import TracebackType

    from jmsql.client._async.shared.client_context import Client
    from jmsql.client.consumer_state import ConsumerState
    from jmsql.client.listeners import MessageListener


# The fields have different writers, each by a method. `closed` is set by any thread, before it waits for the lock.
# `consumers` is written with the lock held. `listener` is written by the call that sets the first listener, with the
# lock held, or by the thread that runs a loaded session, as it begins and ends. `completion` is set once, by the first
# asynchronous send. `guard` is replaced by the worker, from another thread, where a handler is to be interrupted: the
# handler's next call of the session raises.
#
# The lock can be taken again by its owner, so that a listener, which runs with it held, can use its session.


class SessionState:
    """How a session works, and where it is.

    A context manager for calls of the application, which use the session meanwhile. A session with listeners is for
    their thread alone (JMS 1.1, chapter 4.4.6), and each other one for one thread at a time: `close` alone may come
    from elsewhere. Threads that call it nevertheless do not wait without end for a listener, which may wait for them.
    """

    def __init__(
        self,
        client: Client,
        acknowledge_mode: AcknowledgeMode,
        facts: SessionFacts,
        kind: str,
        guard: CallGuard | None = None,
    ) -> None:
        self.guard = guard
        """Checked at each call of the session; None: nothing is. Written by `check_calls`, in any thread."""
        self.client = client
        self.acknowledge_mode = acknowledge_mode
        self.facts = facts
        self.kind = kind
        self.lock = RLock()
        """Held while the session is in use: by a call, or by a listener for as long as it runs."""
        self.notifications = Notifications()
        self.consumers: set[ConsumerState] = set()
        self.listening_consumers: tuple[ConsumerState, ...] = ()
        """The consumers with listeners, some of which may be closing. `note_listeners` writes it."""
        self.message_listener: MessageListener | None = None
        """The listener for connection consumers. Written by `receive_for`, in the thread of the application or of the
        `ServerSessionPool` that sets it."""
        self.listener: object = None
        """The thread or task in which the session's listeners are called, if they are. Written by `call_in`."""
        self.completion: object = None
        """The thread or task in which its completion listeners are called, if it has sent anything asynchronously.
        Written by `complete_in`."""
        self.closed = False
        """True once the session is closed or closing. Written by `close` alone, in any thread."""
        self.why_closed = "The session is closed."
        """The sentence that refused calls get. Written by `close` alone."""
        self.is_closed_by_listener = False
        """True if its running listener has called close(). Written by `close_by_listener`, in the listener's thread."""

    @property
    def transacted(self) -> bool:
        """True if the session is transacted."""
        return self.acknowledge_mode is AcknowledgeMode.TRANSACTED

    @property
    def is_called_by_listener(self) -> bool:
        """True if the caller is the session's running listener."""
        return self.listener is current()

    @property
    def is_used_by_listener(self) -> bool:
        """True if the caller is the session's running listener, for which even close() waits."""
        return self.is_called_by_listener and not self.is_closed_by_listener

    def note_listeners(self) -> None:
        """Note, with the lock held, that a consumer has got or lost its listener, or is closed."""
        listening = [consumer for consumer in self.consumers if consumer.listener is not None and not consumer.closed]
        self.listening_consumers = tuple(listening)

    def receive_for(self, listener: MessageListener | None) -> None:
        """Receive for connection consumers, by this listener; None: by the session's own consumers again."""
        self.message_listener = listener

    def call_in(self, listener: object) -> None:
        """Note the thread or task in which listeners are called from now on; None: there is none."""
        self.listener = listener

    def complete_in(self, completion: object) -> None:
        """Note the thread or task in which completion listeners are called."""
        self.completion = completion

    def check_calls(self, guard: CallGuard) -> None:
        """Have something checked at each call of the session, from now on; may be called from another thread."""
        self.guard = guard

    def close_by_listener(self) -> None:
        """Note that the running listener closes the session, which it may use no longer."""
        self.is_closed_by_listener = True

    def close(self, why: str | None = None) -> None:
        """Refuse calls from now on; the caller wakes those that wait.

        Args:
            why: The sentence that refused calls get; None: the usual one.
        """
        self.closed = True
        if why is not None:
            self.why_closed = why

    def check_open(self) -> None:
        """Raise IllegalStateException if the session is closed, and the caller is no listener that has its use."""
        if self.guard is not None:
            self.guard.check("session")
        if self.closed and not self.is_used_by_listener:
            raise IllegalStateException(self.why_closed)

    def check_no_completion(self, method: str) -> None:
        """Refuse calls of the session's completion listener that would wait for it."""
        if self.completion is current():
            raise IllegalStateException(f"A completion listener cannot call {method}(), which would wait for it.")

    def check_no_message_listener(self) -> None:
        """Raise IllegalStateException if the session receives for connection consumers."""
        if self.message_listener is not None:
            raise IllegalStateException(
                "The session has a message_listener, for connection consumers, and receives in no other way."
            )

    async def __aenter__(self) -> None:
        if self.listener is None or self.is_called_by_listener:
            await self.lock.__aenter__()
            return
        patience = self.client.timings.listener_patience
        if not await taken_within(self.lock, patience):
            raise IllegalStateException(
                f"A listener of the session has been running for {patience:g} s, and may wait for this call. A session "
                "with listeners is for their thread alone; create another session for this thread."
            )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.lock.__aexit__(kind, error, traceback)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.acknowledge_mode.name}{' closed' if self.closed else ''}>"
