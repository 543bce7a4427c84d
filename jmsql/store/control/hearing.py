"""The duty to listen on the schema's channel, while its notifications may concern the client."""

from __future__ import annotations

import math
from collections.abc import Callable

from jmsql.store.control.handlers import QueueHandlers
from jmsql.store.receiving.receive import PRIORITIES
from jmsql.store.rows.message_rows import MessageKey
from jmsql.store.statement import SqlFile, array_literal, column, nothing
from jmsql.store.wire._sync.runner import Runner
from jmsql.values.clock import monotonic

_sql = SqlFile("control")
_listen = _sql.statement("listen", "listening", nothing)
_unlisten = _sql.statement("unlisten", "ceasing to listen", nothing)
_delivering_queues = _sql.statement("delivering_queues", "looking for queues that are paused", column)


class Hearing:
    """Listens while the client has to hear, on one control connection, which listens when it is new.

    PostgreSQL wakes every listener for each notification, of any queue. A client that only sends is not to be woken, so
    it ceases to listen. Until it listens again, it misses all that is told; so everybody looks afterwards.

    Args:
        handlers: Who is called when a queue has something new. With the first one, the client has to hear.
        leads: Whether it does the maintenance, and has to hear of messages that are delivered later.
        missed: Called when it listens again, since it may have missed notifications.
        duration: For how many seconds it listens in any case: a client that is new may be about to receive.
    """

    def __init__(
        self, handlers: QueueHandlers, leads: Callable[[], bool], missed: Callable[[], None], duration: float
    ) -> None:
        self._handlers = handlers
        self._leads = leads
        self._missed = missed
        self._listens = True
        self._listens_until = monotonic() + duration

    @property
    def _has_to_hear(self) -> bool:
        # A consumer that is closed may have left messages to be acknowledged, and which queues keep history is told.
        return self._handlers.has_had_any or self._leads()

    def run(self, control: Runner) -> None:
        """Listen, or cease to."""
        if self._has_to_hear and not self._listens:
            control.run(_listen.bind())  # and it has committed: later notifications arrive
            self._listens = True
            self._catch_up(control)
        elif self._listens and not self._has_to_hear and monotonic() >= self._listens_until:
            self._listens = False
            control.run(_unlisten.bind())

    def seconds_to_next(self) -> float:
        """Return 0 if it has to listen and does not; to cease to can wait for the next turn."""
        return 0.0 if not self._listens and self._has_to_hear else math.inf

    def _catch_up(self, control: Runner) -> None:
        """Have everybody look at the whole queue. Only who receives from one that was paused or deleted also lets go.

        A notification for each queue would be easier, but released messages stay claimed for a moment: consumers would
        receive later messages first.
        """
        channels = self._handlers.channels()
        queue_ids = [channel for channel in channels if channel > 0]
        delivering = set(control.run(_delivering_queues.bind(queue_ids=array_literal(queue_ids))))
        for channel in channels:
            if channel > 0 and channel not in delivering:
                self._handlers.call(channel, MessageKey(channel, 0, 0))
            else:  # as if messages of each priority were released, the first ones among them
                for inverse_priority in range(PRIORITIES):
                    self._handlers.call(channel, MessageKey(channel, inverse_priority, 1))
        self._missed()
