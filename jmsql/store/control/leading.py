"""The duty to do the maintenance for all clients, if it is this client's, or else to ask for it."""

from __future__ import annotations

from jmsql.store.control.notifier import Notifier
from jmsql.store.control.server import ServerClock
from jmsql.store.control.wake_ups import WakeUps
from jmsql.store.history.keeping import QueuesWithHistory
from jmsql.store.maintenance.maintenance import Maintenance
from jmsql.store.rows.message_rows import MessageKey
from jmsql.store.wire._sync.runner import Runner


class Leading:
    """Asks for the maintenance lease, and follows the answer.

    Args:
        maintenance: The work that one client does for all.
        connection_id: The number of the client's connection.
        clock: Is set by the server's.
        queues_with_history: Which queues keep history.
        wake_ups: Who of the client waits.
        notifier: Notifies of released and due messages.
        looks: True to ask the server for the queues that consumers wait for; not through a pooler.
    """

    def __init__(
        self,
        maintenance: Maintenance,
        connection_id: int,
        clock: ServerClock,
        queues_with_history: QueuesWithHistory,
        wake_ups: WakeUps,
        notifier: Notifier,
        *,
        looks: bool,
    ) -> None:
        self.maintenance = maintenance
        self._connection_id = connection_id
        self._clock = clock
        self._queues_with_history = queues_with_history
        self._wake_ups = wake_ups
        self._notifier = notifier
        self._looks = looks

    def run(self, control: Runner) -> None:
        """Ask for the lease, if it is time to."""
        control.run(self._clock.refresh())
        self._notifier.returned(self._lead(control))
        self._notifier.sent(self.maintenance.move_due(control))

    def _lead(self, control: Runner) -> list[MessageKey]:
        """Do the maintenance, or ask whether it is this client's; return the messages that were released."""
        if not self.maintenance.has_to_ask:
            return []
        new = self._queues_with_history.new
        waited_for = [channel for channel in self._wake_ups.channels() if channel > 0] if self._looks else []
        released = self.maintenance.run(control, self._connection_id, waited_for)
        standing = self.maintenance.take_standing()
        if standing is not None:
            self._clock.set(standing.milliseconds)
            self._queues_with_history.found(standing.queues_with_history, new)
            for queue_id in standing.queues:
                self._wake_ups.wake(queue_id)
        return released

    def seconds_to_next(self) -> float:
        """Return in how many seconds something is due."""
        return self.maintenance.seconds_to_next()
