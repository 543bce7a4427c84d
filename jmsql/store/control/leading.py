"""The duty to do the maintenance for all clients, if it is this client's, or else to ask for it."""

from __future__ import annotations

from collections.abc import Collection

from jmsql.store.control.notifier import Notifier
from jmsql.store.control.server import ServerClock
from jmsql.store.control.wake_ups import WakeUps
from jmsql.store.errors import is_connection_lost
from jmsql.store.history.keeping import QueuesWithHistory
from jmsql.store.maintenance.leadership import Standing
from jmsql.store.maintenance.maintenance import Maintenance
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
        """Ask for the lease, if it is time to, and do the maintenance.

        A failure of the maintenance keeps no due message from its move in this turn, and no consumer from its
        notification. After it, `Service` puts both off.
        """
        control.run(self._clock.refresh())
        try:
            self._lead(control)
        except Exception as error:
            if not is_connection_lost(error):
                self._deliver(control)
            raise
        self._deliver(control)

    def _deliver(self, control: Runner) -> None:
        """Move due messages, and notify of them and of those that the maintenance has released or found."""
        self._notifier.returned(self.maintenance.take_released())
        self._notifier.sent(self.maintenance.move_due(control))

    def _lead(self, control: Runner) -> None:
        """Do the maintenance, or ask whether it is this client's."""
        if not self.maintenance.has_to_ask:
            return
        new = self._queues_with_history.new
        waited_for = [channel for channel in self._wake_ups.channels() if channel > 0] if self._looks else []
        try:
            self.maintenance.run(control, self._connection_id, waited_for)
        finally:
            self._heed(self.maintenance.take_standing(), new)

    def _heed(self, standing: Standing | None, new: Collection[int]) -> None:
        """Follow the answer to the last request for the lease; None: there is none."""
        if standing is not None:
            self._clock.set(standing.milliseconds)
            self._queues_with_history.found(standing.queues_with_history, new)
            for queue_id in standing.queues:
                self._wake_ups.wake(queue_id)

    def seconds_to_next(self) -> float:
        """Return in how many seconds something is due."""
        return self.maintenance.seconds_to_next()
