"""The duty to tell other clients of messages; it decides whether a notification is sent."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Iterable

from jmsql.exceptions import JMSException
from jmsql.logs import contained_logger
from jmsql.store.control.announcing import Announcing
from jmsql.store.control.wake_ups import BUCKETS
from jmsql.store.rows.message_rows import GroupKey, MessageKey
from jmsql.store.sending.notification import MOST_GROUPS, Notification, combine, notify
from jmsql.store.statement import Query, SqlFile, fill, first_value, integers_literal, nothing
from jmsql.store.wire._sync.runner import Runner
from jmsql.timings import InternalTimings
from jmsql.values.clock import monotonic

logger = contained_logger("jmsql")

_LOCK_NOT_AVAILABLE = "55P03"

_QUESTION_INTERVAL = 0.002
"""Seconds within which a client's sessions ask once whether a consumer waits for their messages. In a loop of sends it
takes longer to ask each time than to leave it to the control connection, which asks for all of them together."""

_LOCK_TIMEOUT = "100ms"
"""How long a session waits for the commits of others that notify. Beyond that the control connection notifies."""

_sql = SqlFile("control")
_parts = {"may_be_waited_for": fill(_sql["may_be_waited_for"], last_bucket=str(BUCKETS - 1))}
_waited_for = _sql.statement("waited_for", "looking for those that wait", first_value, _parts)
_notify_after_commit = _sql.statement(
    "notify_after_commit", "notifying", lambda result: _Notified(result.rows[0][0]), _parts
)
_notify_where_waited_for = _sql.statement("notify_where_waited_for", "notifying", nothing, _parts)


class _Notified(list[int]):
    """Queues and topics for which a consumer may wait, and was notified."""


class Notifier:
    """Collects notifications from any thread, and sends them a hundred times a second at most.

    Args:
        announcing: Knows the clients' announcements.
        wake: Wakes the control thread.
        timings: How often it notifies.
    """

    def __init__(self, announcing: Announcing, wake: Callable[[], None], timings: InternalTimings) -> None:
        self._announcing = announcing
        self._wake_ups = announcing.wake_ups
        self._wake = wake
        self._timings = timings
        self._lock = threading.Lock()
        self._collected: set[Notification] = set()
        self._next_notification = 0.0
        self._next_question = 0.0
        self._runs_again = False
        """True if the control thread looks again at `_next_notification`, although nothing may be collected by then:
        while sends follow each other, none of them wakes it. Written under `_lock`."""
        self.echo: Callable[[Notification], object] | None = None
        """Called with each sent notification, if the client does not receive its own ones."""

    # From any thread

    def waited_for(self, queue_ids: Collection[int]) -> Query[list[int]] | None:
        """Return the question, after a commit and in its exchange, for which of the queues a consumer waits.

        It also notifies the waiting consumers, unless the client has just notified: so a lone message is delivered at
        once. None: the control connection notifies, since waits are not announced here, or since it is about to ask for
        these queues anyway, or another session has just asked.
        """
        if not self._announcing.is_possible or self._collected.issuperset(map(Notification, queue_ids)):
            return None
        now = monotonic()
        if now < self._next_question:
            return None
        self._next_question = now + _QUESTION_INTERVAL
        channels = integers_literal(queue_ids)
        if now < self._next_notification:
            return _waited_for.bind(channels=channels)
        return _notify_after_commit.bind(channels=channels, lock_timeout=_LOCK_TIMEOUT)

    def sent(self, queue_ids: Iterable[int]) -> None:
        """Tell all clients that the queues have new messages, soon and without waiting, if they were not told."""
        if isinstance(queue_ids, _Notified):
            if queue_ids:
                self._next_notification = monotonic() + self._timings.notification_interval
            for queue_id in queue_ids:
                self._wake_ups.told(queue_id)
        else:
            self._collect(set(map(Notification, queue_ids)))

    def returned(self, keys: Iterable[MessageKey]) -> None:
        """Tell all clients that messages were released, soon and without waiting.

        For a group, the notification says that it is free, which also holds after an acknowledgement of its messages.
        """
        first: dict[tuple[int, int], int] = {}
        groups: set[tuple[int, int]] = set()
        for key in keys:
            if key.group_hash is not None:
                groups.add((key.queue_id, key.group_hash))
                continue
            place = key.queue_id, key.inverse_priority
            first[place] = min(key.sequence, first.get(place, key.sequence))
        notifications = {
            Notification(queue_id, MessageKey(queue_id, inverse_priority, sequence))
            for (queue_id, inverse_priority), sequence in first.items()
        }
        if len(groups) > MOST_GROUPS:  # none of them is to be named, so none need be kept
            notifications.update([Notification(queue_id) for queue_id in {queue_id for queue_id, _ in groups}])
        else:
            notifications.update([Notification(queue_id, GroupKey(queue_id, group)) for queue_id, group in groups])
        self._collect(notifications)

    def _collect(self, notifications: set[Notification]) -> None:
        with self._lock:
            wakes = not (self._collected or self._runs_again)
            self._collected |= notifications
        for notification in notifications:
            self._wake_ups.told(notification.channel)
        if wakes and notifications:
            self._wake()

    # On the control thread

    def run(self, control: Runner) -> None:
        """Send the collected notifications, if it is time to."""
        now = monotonic()
        if not (self._collected or self._runs_again) or now < self._next_notification:
            return
        with self._lock:
            collected, self._collected = self._collected, set()
            self._runs_again = bool(collected)
        if not collected:
            return
        notifications = combine(collected)
        # A lock of the control connection's own would not keep it from getting the same.
        sent = {
            each
            for each in notifications
            if self._announcing.is_possible
            and each.is_of_new_messages
            and not self._wake_ups.is_announced(each.channel)
        }
        payloads = [each.payload() for each in notifications if each not in sent]
        try:
            if payloads:
                control.run(notify(payloads))
            if sent:
                control.run(_notify_where_waited_for.bind(channels=integers_literal(each.channel for each in sent)))
        except JMSException as error:
            self._next_notification = now + self._timings.maintenance_retry_delay
            self._collect(collected)
            if error.error_code != _LOCK_NOT_AVAILABLE:
                raise  # the next connection sends them, if this one is lost
            logger.warning("Notifications are postponed: %s", error)  # another notifying commit hangs
            return
        self._next_notification = now + self._timings.notification_interval
        if self.echo is not None:
            for notification in collected:
                self.echo(notification)

    def end(self, control: Runner) -> None:
        """Notify of the last, as the client closes."""
        self._next_notification = 0.0
        self.echo = None
        self.run(control)

    def seconds_to_next(self) -> float:
        """Return in how many seconds others are to be notified."""
        if self._collected or self._runs_again:
            return self._next_notification - monotonic()
        return math.inf
