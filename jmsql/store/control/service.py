"""The duties of a control connection, and the loop that runs them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import psycopg

from jmsql.concurrency.readiness import wait_until_ready
from jmsql.exceptions import JMSException
from jmsql.logs import contained_logger
from jmsql.store.connections.engine import Endpoint
from jmsql.store.control.announcing import Announcing
from jmsql.store.control.cancellations import Cancellations, cancelled_message
from jmsql.store.control.claim_extensions import ClaimExtensions
from jmsql.store.control.handlers import QueueHandlers
from jmsql.store.control.hearing import Hearing
from jmsql.store.control.late_releases import LateReleases
from jmsql.store.control.leading import Leading
from jmsql.store.control.liveness import AdvisoryLock, ClientForgottenError, Heartbeats, Liveness
from jmsql.store.control.moving import Moving
from jmsql.store.control.notifier import Notifier
from jmsql.store.control.progress_reports import ProgressReports
from jmsql.store.control.reporting import Reporting
from jmsql.store.control.server import Server, ServerClock
from jmsql.store.control.slots import Slots
from jmsql.store.control.ticking import Ticking
from jmsql.store.control.wake_socket import WakeSocket
from jmsql.store.errors import is_connection_lost, translate
from jmsql.store.history.keeping import QueuesWithHistory
from jmsql.store.maintenance.maintenance import Maintenance
from jmsql.store.rows.message_rows import MessageKey
from jmsql.store.sending.notification import BATCHES_CHANNEL, DELAYED_CHANNEL, SCHEDULES_CHANNEL, Notification
from jmsql.store.wire._sync.runner import PsycopgRunner, Runner
from jmsql.timings import InternalTimings
from jmsql.values.clock import monotonic

logger = contained_logger("jmsql")

_ATTENTION = 2.0
"""Seconds by which a turn of the thread may be late, before it counts as held up."""

# The thread of a control connection does the same in each turn: it runs the duties of which something is due, and waits
# until the next is, a notification comes, or somebody wakes it. A duty knows by itself when it is due. So a new one is
# a class with `run` and `seconds_to_next`, and a place in one of the two lists.
#
# - Others wait for what `_urgent` duties do. An error that one of them raises ends the connection, which then cannot be
#   relied on. Two refusals are only logged and tried again: of an announcement, and of a lock for a notification.
# - The `_postponable` duties can wait: a full disk, a lock or a deadlock may prevent them for now. The client lives,
#   and keeps its claims. Each knows when to try again, and one that fails so holds up no other. An error that is
#   neither PostgreSQL's nor a JMSException ends the connection here, too.
# - A notification wakes its consumers before any duty runs, since they wait for it.


class Duty(Protocol):
    """Something that a client does at the server again and again."""

    def run(self, control: Runner) -> None:
        """Do the work that is due.

        Raises:
            JMSException: PostgreSQL refused, or the connection is lost.
        """

    def seconds_to_next(self) -> float:
        """Return in how many seconds something is due."""


class ClaimInDoubtError(ClientForgottenError):
    """The client may have claimed messages of which it does not know, and becomes another one."""


class Link(NamedTuple):
    """A control connection at the server, on which the client has made itself known.

    Args:
        connection: The connection.
        database: Which database it leads to, by `find_database`.
        is_pooled: Whether it leads through a pooler.
        liveness: How the other clients know that this one lives.
        connection_id: The number of the client's connection.
    """

    connection: psycopg.Connection[Any]
    database: tuple[Any, ...]
    is_pooled: bool
    liveness: Liveness
    connection_id: int


def make_known(
    connection: psycopg.Connection[Any],
    database: tuple[Any, ...],
    schema: str,
    timings: InternalTimings,
    former_id: int = 0,
    *,
    pooled: bool,
) -> Link:
    """Make the client known on a new connection, under its former number where that can be."""
    liveness: Liveness = Heartbeats(timings) if pooled else AdvisoryLock(timings)
    connection_id = liveness.register(PsycopgRunner(connection, schema, prepares=False), former_id)
    return Link(connection, database, pooled, liveness, connection_id)


@dataclass(frozen=True)
class ClientDuties:
    """A client's duties, on any control connection.

    Args:
        handlers: Who is called when a queue has something new.
        announcing: Announces the queues that the client's consumers wait for.
        notifier: Tells others of messages.
        cancellations: Ends calls whose messages were cancelled.
        claim_extensions: Extends claims.
        late_releases: Releases messages that sessions could not release.
        progress_reports: Writes down the progress of handlers.
        slots: Shows that the client lives, for the slots of its handlers.
        queues_with_history: Keeps up with the queues that keep history.
        wake_socket: Wakes the thread.
    """

    handlers: QueueHandlers
    announcing: Announcing
    notifier: Notifier
    cancellations: Cancellations
    claim_extensions: ClaimExtensions
    late_releases: LateReleases
    progress_reports: ProgressReports
    slots: Slots
    queues_with_history: QueuesWithHistory
    wake_socket: WakeSocket


class Service:
    """The service of one control connection, from its start to its end.

    Args:
        link: The connection.
        endpoint: Where another one would lead.
        schema: The name of the schema.
        server: The server's properties at the first connection.
        clock: Is set by the server's.
        timings: The intervals.
        duties: The client's duties, on any connection.
        is_lost: True if the connection is still to be set up.
    """

    def __init__(
        self,
        link: Link,
        endpoint: Endpoint,
        schema: str,
        server: Server,
        clock: ServerClock,
        timings: InternalTimings,
        duties: ClientDuties,
        *,
        is_lost: bool = False,
    ) -> None:
        self.link = link
        self.control: Runner = PsycopgRunner(link.connection, schema)
        """Runs statements on the connection."""
        self.is_in_doubt = False
        """True if the client may have claimed messages, and has lost the answer."""
        self.is_lost = is_lost
        """True if the connection is lost, or not yet set up."""
        self._timings = timings
        self._duties = duties
        self.attentive_until = 0.0
        """Until when, on the monotonic clock, it is sure to hear of messages. Later it may have been suspended."""
        self._heard: deque[str] = deque()
        announcing, notifier = duties.announcing, duties.notifier
        announcing.is_possible = not link.is_pooled
        self._leading = Leading(
            Maintenance(timings, pooled=link.is_pooled),
            link.connection_id,
            clock,
            duties.queues_with_history,
            announcing.wake_ups,
            notifier,
            looks=not link.is_pooled,
        )
        maintenance = self._leading.maintenance
        self._ticking = Ticking(
            lambda: duties.handlers.has_had_any or maintenance.leads,
            timings.schedule_interval,
            is_possible=not server.is_restricted,
        )
        hearing = Hearing(duties.handlers, lambda: maintenance.leads, self._missed_news, timings.listening_duration)
        self._moving = Moving(endpoint, link.connection, timings.maintenance_retry_delay)
        self._urgent: tuple[Duty, ...] = (announcing, notifier) if link.is_pooled else (hearing, announcing, notifier)
        self._postponable: dict[str, Duty] = {}
        """By their names in the log."""

    def run(self, reporting: Reporting, ends: Callable[[], bool]) -> None:
        """Run due duties until the end.

        Args:
            reporting: Records the client's activity.
            ends: Tells whether the end has come.

        Raises:
            ClientForgottenError: The other clients took this one for dead, or it has to be another one.
            Exception: The connection is lost.
        """
        duties, link = self._duties, self.link
        reporting.connection_id = link.connection_id
        self._postponable = {
            "The client's heartbeat": link.liveness,
            "Renewal of the handlers' slots": duties.slots,
            "Sending by schedules": self._ticking,
            "The report of the client's activity": reporting,
            "Cancellation of calls": duties.cancellations,
            "Extension of claims": duties.claim_extensions,
            "Release of messages": duties.late_releases,
            "Maintenance": self._leading,
            "Lookup of queues with history": duties.queues_with_history,
            "The record of the handlers' progress": duties.progress_reports,
        }
        if not link.is_pooled:
            self._postponable["The move to a server that takes writes"] = self._moving
        duties.queues_with_history.changed()
        duties.announcing.reset()
        duties.slots.hold_for(link.connection_id)
        duties.cancellations.reset(is_deaf=link.is_pooled)
        duties.notifier.echo = self._heed if link.is_pooled else None
        # Notifications that arrive with the answer to a statement.
        link.connection.add_notify_handler(lambda received: self._heard.append(received.payload))
        while not ends():
            if self.is_in_doubt:
                raise ClaimInDoubtError("the answer to a claim was lost, and what was claimed is given to others")
            self.attentive_until = monotonic() + self._timings.maintenance_interval + _ATTENTION
            for duty in self._urgent:
                duty.run(self.control)
            self._hear()
            self._run_postponable()
            next_ones = (duty.seconds_to_next() for duty in (*self._urgent, *self._postponable.values()))
            self._wait(min(self._timings.maintenance_interval, *next_ones))

    def _run_postponable(self) -> None:
        """Run the duties that can wait; one that fails keeps no other from its work."""
        for name, duty in self._postponable.items():
            try:
                duty.run(self.control)
            except (psycopg.Error, JMSException) as error:
                if is_connection_lost(error):
                    raise
                logger.warning("%s is postponed: %s", name, translate(error, "running a client's duties"))
                self.link.connection.rollback()  # of what was begun explicitly
                if duty is self._leading:
                    self._leading.maintenance.postpone()

    def _wait(self, timeout: float) -> None:
        """Wait until a duty is due, and meanwhile wake the consumers that notifications concern.

        They run once this thread waits again, so it does nothing else first.
        """
        deadline = monotonic() + timeout
        server, client = self.link.connection.fileno(), self._duties.wake_socket.fileno()
        is_due = self._hear()  # notifications that arrived with earlier answers
        while not is_due:
            ready = wait_until_ready([server, client], max(deadline - monotonic(), 0.0))
            is_due = ready != [server] or self._hear() or monotonic() >= deadline
        self._duties.wake_socket.drain()

    def _hear(self) -> bool:
        """Wake the consumers that received notifications concern; return whether a duty is due."""
        # Not by psycopg's generator: its wait takes several times as long, and somebody waits for this.
        connection = self.link.connection
        with connection.lock:
            pgconn = connection.pgconn
            pgconn.consume_input()
            while (received := pgconn.notifies()) is not None:
                self._heard.append(received.extra.decode(errors="replace"))
        is_due = False
        while self._heard:
            payload = self._heard.popleft()
            notification = Notification.parse(payload)
            if notification is not None:
                is_due |= self._heed(notification)
            elif (sequence := cancelled_message(payload)) is not None:
                self._duties.cancellations.hear(sequence)
                is_due = True
        return is_due

    def _missed_news(self) -> None:
        """Handle notifications that the client may have missed."""
        self._leading.maintenance.message_delayed()
        self._ticking.check_soon()
        self._duties.queues_with_history.changed()
        self._duties.announcing.wake_ups.wake_all()
        self._duties.cancellations.missed()

    def _heed(self, notification: Notification) -> bool:
        """Wake the consumers that a notification concerns; return whether a duty is due."""
        if notification.channel == DELAYED_CHANNEL:
            self._leading.maintenance.message_delayed()
        if notification.channel == BATCHES_CHANNEL:
            self._leading.maintenance.batch_may_have_ended()
            return True
        if notification.channel == SCHEDULES_CHANNEL:
            self._ticking.check_soon()
            return True
        self._duties.handlers.call(notification.channel, notification.key)
        has_changed = isinstance(notification.key, MessageKey) and notification.key.sequence == 0
        if has_changed:
            self._duties.queues_with_history.changed()
        self._duties.announcing.wake_ups.wake(notification.channel, everyone=has_changed)
        return has_changed or notification.channel == DELAYED_CHANNEL
