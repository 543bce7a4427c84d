"""A client's callbacks for new messages, by queue."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Collection
from weakref import WeakMethod

from jmsql.logs import contained_logger
from jmsql.store.control.wake_ups import bucket_of
from jmsql.store.rows.message_rows import GroupKey, MessageKey

logger = contained_logger("jmsql")

NotificationHandler = Callable[[MessageKey | GroupKey | None], None]
"""Called from the control thread with a queue's news: a released message, a released group, or None for a new message.

Where the whole queue was paused, resumed or deleted, or may have been, the key's sequence is 0."""


class _Handler:
    """Calls a handler; a method only while other references to its object exist.

    A strong reference in the control thread would keep an abandoned client alive.
    """

    __slots__ = ("_handler",)

    def __init__(self, handler: NotificationHandler) -> None:
        self._handler = WeakMethod(handler) if inspect.ismethod(handler) else handler

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Handler) and self._handler == other._handler

    def __hash__(self) -> int:
        return hash(self._handler)

    def __call__(self, key: MessageKey | GroupKey | None) -> None:
        handler = self._handler() if isinstance(self._handler, WeakMethod) else self._handler
        if handler is not None:
            handler(key)


class QueueHandlers:
    """The handlers of a client by their queues. Any thread may add and remove some.

    Args:
        on_first: Called once there is a first one.
    """

    def __init__(self, on_first: Callable[[], None]) -> None:
        self._on_first = on_first
        self.has_had_any = False
        """True if there is one, or was."""
        self._lock = threading.Lock()
        self._handlers: dict[int, set[_Handler]] = {}

    def add(self, queue_id: int, handler: NotificationHandler) -> None:
        """Call `handler` whenever the queue may have something new. Of a method, the object is not kept alive."""
        with self._lock:
            self._handlers.setdefault(queue_id, set()).add(_Handler(handler))
            is_first, self.has_had_any = not self.has_had_any, True
        if is_first:
            self._on_first()

    def remove(self, queue_id: int, handler: NotificationHandler) -> None:
        """No longer call `handler`."""
        with self._lock:
            self._handlers.get(queue_id, set()).discard(_Handler(handler))

    def channels(self) -> list[int]:
        """Return the queues that have or had handlers, and the numbers for topics."""
        with self._lock:
            return list(self._handlers)

    def call(self, queue_id: int, key: MessageKey | GroupKey | None) -> None:
        """Call a queue's handlers."""
        with self._lock:
            handlers = list(self._handlers.get(queue_id, ()))
        for handler in handlers:
            handler(key)

    def call_in(self, buckets: Collection[int]) -> None:
        """Call the handlers of all queues in some buckets, as if each had a new message."""
        for queue_id, handler in self._all():
            if bucket_of(queue_id) in buckets:
                handler(None)

    def call_all(self) -> None:
        """Call all handlers, as if each queue had been paused or resumed; an exception does not stop the others."""
        for queue_id, handler in self._all():
            try:
                handler(MessageKey(queue_id, 0, 0))
            except Exception:  # the connection is there, and consumers look for themselves before long
                logger.exception("A consumer was not notified of the restored control connection.")

    def _all(self) -> list[tuple[int, _Handler]]:
        with self._lock:
            return [(queue_id, handler) for queue_id, all_of_it in self._handlers.items() for handler in all_of_it]
