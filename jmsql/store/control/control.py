"""The connection that each client keeps to PostgreSQL beside its sessions: heartbeats, notifications and maintenance.

It holds an advisory lock for as long as the client lives, so that the server itself knows when the client is gone. It
listens for messages, tells others of messages sent, and one of all such connections, which has the lease, does the
maintenance of the store.

Through a pooler it can neither hold a lock nor listen: there it sends heartbeats, and wakes its own client alone.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self
from weakref import WeakMethod

import psycopg

from jmsql.exceptions import InvalidClientIDException, JMSException, JMSSecurityException
from jmsql.store.connections.engine import Endpoint
from jmsql.store.control.claim_extensions import ClaimExtensions
from jmsql.store.control.counters import Consumption, DestinationCounters, add_counters, replace_consumers
from jmsql.store.control.listening import end_listening, start_listening
from jmsql.store.control.liveness import AdvisoryLock, ClientForgottenError, Heartbeats, Liveness
from jmsql.store.control.server import Server, ServerClock, find_database, look_at_server, require_same_database
from jmsql.store.control.wake_ups import (
    Notified,
    WakeUps,
    announce_waits,
    bucket_of,
    end_waits,
    notify_after_commit,
    notify_where_waited_for,
    waited_for,
)
from jmsql.store.errors import is_connection_lost, translate
from jmsql.store.history.keeping import QueuesWithHistory
from jmsql.store.maintenance.maintenance import Maintenance
from jmsql.store.receiving.redelivery import ExtendedClaim
from jmsql.store.rows.message_rows import GroupKey, MessageKey
from jmsql.store.sending.notification import DELAYED_CHANNEL, Notification, combine, notify
from jmsql.store.statement import Query, SqlFile, nothing
from jmsql.store.wire._sync.runner import PsycopgRunner, Runner
from jmsql.timings import InternalTimings, jitter
from jmsql.values.postgresql_text import to_postgresql

logger = logging.getLogger("jmsql")

_sql = SqlFile("control")
_set_client_id = _sql.statement("set_client_id", "setting the client identifier", nothing)
_disconnect = _sql.statement("disconnect", "closing", nothing)

_LOCK_NOT_AVAILABLE = "55P03"
_UNIQUE_VIOLATION = "23505"
_ANSWER_LOST = "08006"
"""What libpq, not the server, says of a connection."""

_ATTENTION = 2.0
"""Seconds by which a turn of the thread may be late, before it counts as held up."""

_QUESTION_INTERVAL = 0.002
"""Seconds within which a client's sessions ask once whether somebody waits for what they send. In a loop of sends it
takes longer to ask each time than to leave it to the control connection, which asks for all of them together."""

_LOCK_TIMEOUT = "100ms"
"""How long a session waits for the commits of others that notify. Beyond that the control connection notifies."""

_FIRST_PAUSE = 0.001
"""Seconds until it is tried again to announce what could not be announced; twice as long each time."""

NotificationHandler = Callable[[MessageKey | GroupKey | None], None]
"""Called from the control thread when a queue has something new: the message that was released, the group that
nobody holds any more, or None for a new message.

Where the whole queue was paused, resumed or deleted, or may have been, the key's sequence is 0."""


class _Link(NamedTuple):
    """A control connection at the server, on which the client has made itself known."""

    connection: psycopg.Connection[Any]
    is_pooled: bool
    liveness: Liveness
    connection_id: int


class _Handler:
    """Calls a handler; if that is a method, for as long as somebody else has its object.

    The thread that calls it would keep all of a client that nobody has closed.
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


class Abandonment(NamedTuple):
    """The end of a client that nobody has closed, and nobody can close any more.

    Args:
        has_come: Tells whether it has come; called each second.
        end: Ends what else the client has at the server.
    """

    has_come: Callable[[], bool]
    end: Callable[[], None]


class _ClaimInDoubtError(ClientForgottenError):
    """The client may have claimed messages of which it does not know, and becomes another one."""


class ControlConnection:
    """A client's control connection, and the thread that serves it.

    Made by `open`, which connects. It is served, and made again when it is lost, from `serve` until `close`.

    Args:
        endpoint: Where to connect.
        schema: The name of the schema.
        clock: Is set by the server's.
        timings: How often it does what.
        server: What was found there.
        link: The connection.
    """

    def __init__(
        self, endpoint: Endpoint, schema: str, clock: ServerClock, timings: InternalTimings, server: Server, link: _Link
    ) -> None:
        self.server = server
        """What the client found when it connected first."""
        self.database: tuple[Any, ...] = server.database
        self._endpoint = endpoint
        self._timings = timings
        self.schema = schema
        self._on_failure: Callable[[JMSException], None] = lambda _: None
        self._on_return: Callable[[Sequence[int]], None] = lambda _: None
        self._abandonment: Abandonment | None = None
        self._counters = DestinationCounters()
        self._consumers: Callable[[], Mapping[Consumption, int]] = dict
        self._written_consumers: tuple[int, Mapping[Consumption, int]] = (0, {})
        self._next_report = 0.0
        self._clock = clock
        self.wake_ups = WakeUps(self._wake_to_announce if server.announces_waits else None)
        """Who of the client waits for news of which queue."""
        self._attentive_until = 0.0
        self._heard: deque[str] = deque()
        self._lock = threading.Lock()
        self._handlers: dict[int, set[_Handler]] = {}
        self._announced: set[Notification] = set()
        self._next_notification = 0.0
        self._next_question = 0.0
        self._next_announcement = 0.0
        self._announcement_pause = _FIRST_PAUSE
        self._next_withdrawal = 0.0
        self._next_pause = timings.minimum_reconnect_delay
        self._client_id: str | None = None
        self._claim_extensions = ClaimExtensions()
        self._closed = False
        self._is_lost = False
        self._doubted_id = 0
        self._connection, self._pooled, self._liveness, self.connection_id = link
        self.queues_with_history = QueuesWithHistory(timings.history_refresh_interval, is_told=not self._pooled)
        """Which queues keep history, or did a second ago."""
        self._wake_receiver, self._wake_sender = socket.socketpair()
        for end in (self._wake_receiver, self._wake_sender):
            end.settimeout(0)
        self._thread = threading.Thread(target=self._serve, name=f"jmsql-control-{self.connection_id}", daemon=True)

    @classmethod
    def open(
        cls,
        endpoint: Endpoint,
        schema: str,
        clock: ServerClock,
        timings: InternalTimings,
        database: tuple[Any, ...] | None = None,
    ) -> Self:
        """Connect, and make the client known at the server.

        Args:
            endpoint: Where to connect.
            schema: The name of the schema.
            clock: Is set by the server's.
            timings: How often it does what.
            database: Where the connection has to lead, by `find_database`; None: anywhere.

        Raises:
            JMSException: The server cannot be reached, or refuses; the schema is missing or of another version; or it
                is another database.
        """
        connection, is_pooled = endpoint.connect("" if database is None else " (control_url)")
        try:
            runner = PsycopgRunner(connection, schema, prepares=False)
            if database is not None:
                runner.run(require_same_database(database))
            server = look_at_server(runner)
            clock.set(server.milliseconds)
            link = _make_known(connection, schema, timings, pooled=is_pooled, announces_waits=server.announces_waits)
            return cls(endpoint, schema, clock, timings, server, link)
        except BaseException:
            connection.close()
            raise

    def serve(
        self,
        on_failure: Callable[[JMSException], None],
        on_return: Callable[[Sequence[int]], None],
        counters: DestinationCounters,
        consumers: Callable[[], Mapping[Consumption, int]],
        abandonment: Abandonment | None = None,
    ) -> None:
        """Do, on a thread of its own and until `close`, what the connection is for.

        Args:
            on_failure: Called, from the control thread, with what went wrong when the connection is lost.
            on_return: Called, from the control thread, with the former connection ids once the connection is there
                again.
            counters: What the client counts, to be written down.
            consumers: Returns how many consumers of each kind the client has, to be written down.
            abandonment: Tells that nobody can close the client any more, with which the connection ends.
        """
        self._on_failure, self._on_return, self._abandonment = on_failure, on_return, abandonment
        start_listening(self)
        self._counters, self._consumers = counters, consumers
        self._thread.start()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.connection_id}{' closed' if self._closed else ''}>"

    # Called by the client's threads

    def subscribe(self, queue_id: int, handler: NotificationHandler) -> None:
        """Call `handler` whenever the queue may have something new. Of a method, the object is not kept alive."""
        with self._lock:
            self._handlers.setdefault(queue_id, set()).add(_Handler(handler))
        self.queues_with_history.add(queue_id)

    def unsubscribe(self, queue_id: int, handler: NotificationHandler) -> None:
        """No longer call `handler`."""
        with self._lock:
            self._handlers.get(queue_id, set()).discard(_Handler(handler))

    def begin_waiting(self, queue_id: int, handler: NotificationHandler) -> None:
        """Call `handler` whenever the queue may have something new, for one that waits for it, until `end_waiting`."""
        self.subscribe(queue_id, handler)
        self.wake_ups.keep(queue_id)

    def end_waiting(self, queue_id: int, handler: NotificationHandler) -> None:
        """No longer call `handler`."""
        self.wake_ups.let_go(queue_id)
        self.unsubscribe(queue_id, handler)

    def waited_for(self, queue_ids: Collection[int]) -> Query[list[int]] | None:
        """Return what asks, after a commit and in its exchange, for which queues somebody waits.

        Who waits is notified there, unless the client has just notified: a lone message is heard of at once. None: that
        of all is told, since clients do not announce what they wait for; or the control connection is about to ask, or
        somebody else has just asked.
        """
        if not self.server.announces_waits or self._pooled or self._announced.issuperset(map(Notification, queue_ids)):
            return None
        now = time.monotonic()
        if now < self._next_question:
            return None
        self._next_question = now + _QUESTION_INTERVAL
        if now < self._next_notification:
            return waited_for(queue_ids)
        return notify_after_commit(queue_ids, _LOCK_TIMEOUT)

    def sent(self, queue_ids: Iterable[int]) -> None:
        """Tell all clients that the queues have new messages, soon and without waiting, if they were not told."""
        if isinstance(queue_ids, Notified):
            if queue_ids:
                self._next_notification = time.monotonic() + self._timings.notification_interval
            for queue_id in queue_ids:
                self.wake_ups.told(queue_id)
        else:
            self._announce(set(map(Notification, queue_ids)))

    def returned(self, keys: Iterable[MessageKey]) -> None:
        """Tell all clients that messages were released, soon and without waiting.

        Of a group they are told that nobody holds it any more, which is so when its messages were acknowledged, too.
        """
        first: dict[tuple[int, int], int] = {}
        groups: set[GroupKey] = set()
        for key in keys:
            if key.group_hash is not None:
                groups.add(GroupKey(key.queue_id, key.group_hash))
                continue
            place = key.queue_id, key.inverse_priority
            first[place] = min(key.sequence, first.get(place, key.sequence))
        firsts = {MessageKey(*place, sequence) for place, sequence in first.items()}
        self._announce({Notification(key.queue_id, key) for key in groups | firsts})

    @contextlib.contextmanager
    def extending(self, claims: Sequence[ExtendedClaim]) -> Iterator[None]:
        """Extend claims for as long as the block runs."""
        if not claims:
            yield
            return
        holder = object()
        self._claim_extensions.keep(holder, claims)
        self._wake()
        try:
            yield
        finally:
            self._claim_extensions.let_go(holder)

    @property
    def is_certain(self) -> bool:
        """Whether the client is sure to live for the others, so that they leave it what it has claimed."""
        return not self._is_lost and time.monotonic() < self._liveness.certain_until

    @property
    def is_attentive(self) -> bool:
        """Whether consumers can leave it to this connection to hear of messages, and to look for those not told of."""
        return not self._pooled and not self._is_lost and time.monotonic() < self._attentive_until

    @property
    def may_ask_to_dequeue(self) -> bool:
        """Whether the role may have the server dequeue a message for it."""
        return self.server.may_ask_to_dequeue

    def claim_failed(self, connection_id: int, error: JMSException) -> None:
        """Be another client to the server soon if it may have claimed messages and its answer was lost.

        The client cannot release what it does not know of. As another one it leaves all claims to be released, as when
        the control connection is lost.

        Args:
            connection_id: The number with which it claimed.
            error: Why that failed. An administrator who ends an idle connection loses no answer.
        """
        if error.error_code == _ANSWER_LOST and connection_id == self.connection_id:
            self._doubted_id = connection_id
            self._wake()

    def set_client_id(self, client_id: str) -> None:
        """Take a client identifier for as long as the connection lives.

        Raises:
            InvalidClientIDException: Another live connection has it.
        """
        self._take_client_id(PsycopgRunner(self._connection, self.schema), client_id)
        self._client_id = client_id

    def close(self) -> None:
        """End the connection; the server then knows that the client is gone. Closing it again does nothing."""
        if self._closed:
            return
        self._closed = True
        end_listening(self)
        self._wake()
        if self._thread.ident is None:
            self._disconnect()
        elif threading.current_thread() is not self._thread:
            self._thread.join()

    # Connecting

    def _connect(self) -> None:
        """Connect again."""
        connection, is_pooled = self._endpoint.connect()
        try:
            self.database = PsycopgRunner(connection, self.schema).run(find_database)
            link = _make_known(
                connection,
                self.schema,
                self._timings,
                0 if self.connection_id == self._doubted_id else self.connection_id,
                pooled=is_pooled,
                announces_waits=self.server.announces_waits,
            )
            self._connection, self._pooled, self._liveness, self.connection_id = link
            if self._client_id is not None:
                self._take_client_id(PsycopgRunner(connection, self.schema), self._client_id)
        except BaseException:
            connection.close()
            raise

    def _take_client_id(self, control: Runner, client_id: str) -> None:
        try:
            control.run(_set_client_id.bind(client_id=to_postgresql(client_id), connection_id=self.connection_id))
        except JMSException as error:
            if error.error_code != _UNIQUE_VIOLATION:
                raise
            raise InvalidClientIDException(
                f"The client identifier {client_id!r} is in use by another connection; close that one first.", "23505"
            ) from error

    def _reconnect(self) -> bool:
        """Connect again, however long it takes; return False if the client is closed meanwhile."""
        former_ids = [self.connection_id]
        while not self._ends:
            started = time.monotonic()
            try:
                self._connect()
                self._on_return(former_ids)
            except BaseException as error:  # noqa: BLE001 - whatever it is, the next attempt may succeed
                self._connection.close()
                former_ids.append(self.connection_id)
                logger.info("The control connection is still lost: %s", error)
            else:
                logger.info("The control connection is there again.")
                self._wake_everyone()  # which also has prefetch buffers give up what was claimed before
                self._is_lost = False
                return True
            # As long as an attempt lasts, the client cannot be closed.
            self._pause(at_least=time.monotonic() - started)
        return False

    def _pause(self, at_least: float = 0.0) -> None:
        """Wait before the next attempt to connect, longer each time."""
        most = self._timings.maximum_reconnect_delay
        pause, self._next_pause = max(self._next_pause, min(at_least, most)), min(2 * self._next_pause, most)
        select.select([self._wake_receiver], [], [], pause * jitter.uniform(0.8, 1.2))
        self._drain_wakes()

    # The control thread

    def _serve(self) -> None:
        try:
            while True:
                served_since = time.monotonic()
                try:
                    self._serve_connection()
                    break
                except BaseException as error:  # noqa: BLE001 - the client needs this thread for as long as it lives
                    self._is_lost = True
                    self._connection.close()
                    self.wake_ups.wake_all()  # who waits looks for itself meanwhile
                    if self._ends:
                        break
                    self._fail(error)
                if time.monotonic() - served_since < self._timings.maximum_reconnect_delay:
                    self._pause()  # what went wrong may go wrong again at once
                else:
                    self._next_pause = self._timings.minimum_reconnect_delay
                if not self._reconnect():
                    break
        finally:
            end_listening(self)
            self._disconnect()
        if not self._closed and self._abandonment is not None:
            self._abandonment.end()

    @property
    def _ends(self) -> bool:
        return self._closed or (self._abandonment is not None and self._abandonment.has_come())

    def _fail(self, error: BaseException) -> None:
        """Tell that the connection is lost, and why."""
        if isinstance(error, JMSException):
            failure = error
        else:
            failure = translate(error, "keeping the control connection")
            failure.__cause__ = error
        is_expected = isinstance(error, psycopg.Error | JMSException | ClientForgottenError)
        logger.warning("%s", failure, exc_info=None if is_expected else error)
        if isinstance(error, _ClaimInDoubtError):
            return  # the session that claimed has told of its lost connection, and this one was not lost
        try:
            self._on_failure(failure)
        except BaseException:  # a listener that exits ends no thread of jmsql's
            logger.exception("Telling of the lost connection failed.")

    def _serve_connection(self) -> None:
        control = PsycopgRunner(self._connection, self.schema)
        maintenance = Maintenance(self._timings, pooled=self._pooled, keeps_outcomes=self.server.keeps_outcomes)
        self.queues_with_history.changed()
        self._heard.clear()
        if self._announces_waits:
            self.wake_ups.nothing_is_announced()
        # Those that come with the answer to a statement.
        self._connection.add_notify_handler(lambda received: self._heard.append(received.payload))
        while not self._ends:
            if self._doubted_id == self.connection_id:
                raise _ClaimInDoubtError("the answer to a claim was lost, and what was claimed is given to others")
            self._attentive_until = time.monotonic() + self._timings.maintenance_interval + _ATTENTION
            self._announce_waits(control)
            self._notify(control, maintenance)
            self._hear(maintenance)
            released, moved = self._do_maintenance(control, maintenance)
            self.returned(released)
            self.sent(moved)
            if released or moved:
                continue
            timeout = min(maintenance.seconds_to_next(), self._liveness.seconds_to_next())
            timeout = min(timeout, self._timings.maintenance_interval)
            if (extension := self._claim_extensions.seconds_to_next()) is not None:
                timeout = min(timeout, extension)
            if self._announced:
                timeout = min(timeout, self._next_notification - time.monotonic())
            if self._announces_waits and self.wake_ups.unannounced():
                timeout = min(timeout, self._next_announcement - time.monotonic())
            self._wait(timeout, maintenance)

    def _wait(self, timeout: float, maintenance: Maintenance) -> None:
        """Wait until there is something to do, and meanwhile wake those whom notifications concern.

        They run once this thread waits again, so it does nothing else first.
        """
        deadline = time.monotonic() + timeout
        server, client = self._connection.fileno(), self._wake_receiver.fileno()
        is_due = self._hear(maintenance)  # what came with the answers to the statements before
        while not is_due:
            ready, _, _ = select.select([server, client], [], [], max(deadline - time.monotonic(), 0.0))
            is_due = ready != [server] or self._hear(maintenance) or time.monotonic() >= deadline
        self._drain_wakes()

    def _hear(self, maintenance: Maintenance) -> bool:
        """Wake those whom notifications concern that have come; return whether there is something to do besides."""
        # Not by psycopg's generator: its wait takes several times as long, and somebody waits for this.
        with self._connection.lock:
            pgconn = self._connection.pgconn
            pgconn.consume_input()
            while (received := pgconn.notifies()) is not None:
                self._heard.append(received.extra.decode(errors="replace"))
        is_due = False
        while self._heard:
            notification = Notification.parse(self._heard.popleft())
            if notification is not None:
                is_due |= self._heed(notification, maintenance)
        return is_due

    def _do_maintenance(self, control: Runner, maintenance: Maintenance) -> tuple[list[MessageKey], list[int]]:
        """Write what is due; return the messages that were released, and the queues of those that have become due.

        A full disk, a lock or a deadlock prevents it for now. The client lives, and keeps what it has.
        """
        try:
            self._liveness.go_on(control)
            control.run(self._clock.look())
            self._report(control)
            self._claim_extensions.run(control)
            released = self._lead(control, maintenance)
            self.queues_with_history.run(control)
            return released, maintenance.move_due(control)
        except (psycopg.Error, JMSException) as error:
            if is_connection_lost(error):
                raise
            logger.warning("Maintenance is postponed: %s", translate(error, "doing the maintenance"))
            self._connection.rollback()  # of what was begun explicitly
            maintenance.postpone()
            return [], []

    def _lead(self, control: Runner, maintenance: Maintenance) -> list[MessageKey]:
        """Do the maintenance, or ask whether it is this client's; return the messages that were released."""
        if not maintenance.has_to_ask:
            return []
        new = self.queues_with_history.new
        waited_for = [] if self._pooled else [channel for channel in self.wake_ups.channels() if channel > 0]
        released = maintenance.run(control, self.connection_id, waited_for)
        standing = maintenance.take_standing()
        if standing is not None:
            self._clock.set(standing.milliseconds)
            self.queues_with_history.found(standing.queues_with_history, new)
            for queue_id in standing.queues:
                self.wake_ups.wake(queue_id)
        return released

    def _heed(self, notification: Notification, maintenance: Maintenance) -> bool:
        """Wake whom a notification concerns; return whether there is something to do besides."""
        if notification.channel == DELAYED_CHANNEL:
            maintenance.message_delayed()
        with self._lock:
            handlers = list(self._handlers.get(notification.channel, ()))
        for handler in handlers:
            handler(notification.key)
        has_changed = isinstance(notification.key, MessageKey) and notification.key.sequence == 0
        if has_changed:
            self.queues_with_history.changed()
        self.wake_ups.wake(notification.channel, everyone=has_changed)
        return has_changed or notification.channel == DELAYED_CHANNEL

    @property
    def _announces_waits(self) -> bool:
        return self.server.announces_waits and not self._pooled

    def _announce_waits(self, control: Runner) -> None:
        """Tell senders for what the client's consumers have begun to wait, and for what none has waited for a while."""
        now = time.monotonic()
        if not self._announces_waits:
            return
        wanted = self.wake_ups.unannounced()
        if wanted and now >= self._next_announcement:
            try:
                announced = set(control.run(announce_waits(wanted)))
            except JMSException as error:
                if is_connection_lost(error):
                    raise
                logger.warning("%s", error)
                announced = set()
            if announced == wanted:
                self._announcement_pause = _FIRST_PAUSE
            else:  # a sender asks just now; or a role prevents it, for which senders notify meanwhile
                self._next_announcement = now + self._announcement_pause
                self._announcement_pause = min(2 * self._announcement_pause, self._timings.maintenance_interval)
            self._look_again(announced)
        if now >= self._next_withdrawal:
            self._next_withdrawal = now + self._timings.maintenance_interval
            unused = self.wake_ups.unused()
            if unused:
                control.run(end_waits(unused))

    def _look_again(self, buckets: Collection[int]) -> None:
        """Have those look once more that wait for something of which nobody was told before."""
        with self._lock:
            handlers = [
                handler
                for queue_id, all_of_it in self._handlers.items()
                if bucket_of(queue_id) in buckets
                for handler in all_of_it
            ]
        for handler in handlers:
            handler(None)
        self.wake_ups.announced(buckets)

    def _notify(self, control: Runner, maintenance: Maintenance | None = None) -> None:
        now = time.monotonic()
        if not self._announced or now < self._next_notification:
            return
        with self._lock:
            announced, self._announced = self._announced, set()
        notifications = combine(announced)
        # A lock of the control connection's own would not keep it from getting the same.
        sent = {
            each
            for each in notifications
            if self._announces_waits and each.is_of_new_messages and not self.wake_ups.is_announced(each.channel)
        }
        payloads = [each.payload() for each in notifications if each not in sent]
        try:
            if payloads:
                control.run(notify(payloads))
            if sent:
                control.run(notify_where_waited_for([each.channel for each in sent]))
        except JMSException as error:
            if error.error_code != _LOCK_NOT_AVAILABLE:
                raise
            logger.warning("%s", error)  # somebody's notifying commit does not end
            self._announce(announced)
            self._next_notification = now + self._timings.maintenance_retry_delay
            return
        self._next_notification = now + self._timings.notification_interval
        if self._pooled and maintenance is not None:  # the client does not hear what it says itself
            for notification in announced:
                self._heed(notification, maintenance)

    def _report(self, control: Runner) -> None:
        """Write down what the client does. Maintenance wakes the thread often enough.

        What prevents it does not keep the rest of maintenance from being done.
        """
        now = time.monotonic()
        if now < self._next_report:
            return
        self._next_report = now + self._timings.statistics_interval
        try:
            self._write_counters(control)
            self._write_consumers(control)
        except JMSException as error:
            if is_connection_lost(error):
                raise
            logger.warning("What goes through is written down a little later: %s", error)

    def _write_consumers(self, control: Runner) -> None:
        consumers = self.connection_id, self._consumers()
        if consumers != self._written_consumers and (consumers[1] or self._written_consumers[1]):
            control.run(replace_consumers(*consumers))
            self._written_consumers = consumers

    def _write_counters(self, control: Runner) -> None:
        counted = self._counters.drain()
        if counted:
            try:
                control.run(add_counters(counted))
            except JMSSecurityException:
                raise  # for good: the role had access, and has it no more
            except JMSException:
                self._counters.put_back(counted)
                raise

    def _disconnect(self) -> None:
        try:
            if not self._connection.closed:
                control = PsycopgRunner(self._connection, self.schema)
                self._next_notification = 0.0
                self._notify(control)
                self._write_counters(control)
                control.run(_disconnect.bind(connection_id=self.connection_id))
        except JMSException as error:
            logger.info("The control connection was lost as it closed: %s", error)
        finally:
            self._connection.close()
            self._wake_receiver.close()
            self._wake_sender.close()

    # Between the threads

    def _announce(self, notifications: set[Notification]) -> None:
        with self._lock:
            first = not self._announced
            self._announced |= notifications
        for notification in notifications:
            self.wake_ups.told(notification.channel)
        if first and notifications:
            self._wake()

    def _wake_to_announce(self) -> None:
        if self._announces_waits and not self._is_lost:
            self._wake()

    def _wake(self) -> None:
        # It may be full, so that the thread will wake anyway, or closed.
        with contextlib.suppress(OSError):
            self._wake_sender.send(b"\0")

    def _drain_wakes(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake_receiver.recv(4096):
                pass

    def _wake_everyone(self) -> None:
        with self._lock:
            handlers = [(queue_id, handler) for queue_id, all_of_it in self._handlers.items() for handler in all_of_it]
        for queue_id, handler in handlers:
            try:
                handler(MessageKey(queue_id, 0, 0))
            except Exception:  # the connection is there, and consumers look for themselves before long
                logger.exception("A consumer could not be told that the control connection is there again.")
        self.wake_ups.wake_all()


def open_control(
    endpoint: Endpoint, sessions: Endpoint, schema: str, clock: ServerClock, timings: InternalTimings
) -> tuple[ControlConnection, bool]:
    """Open the control connection of a client.

    Args:
        endpoint: Where it connects.
        sessions: Where the client's sessions connect, which has to be the same database.
        schema: The name of the schema.
        clock: Is set by the server's.
        timings: How often it does what.

    Returns:
        The connection, and whether the sessions' connections lead through a pooler which this one passes by.

    Raises:
        JMSException: As `ControlConnection.open`.
    """
    database, is_pooled = None, False
    if endpoint.url != sessions.url:
        connection, is_pooled = sessions.connect()
        with contextlib.closing(connection):
            database = PsycopgRunner(connection, schema).run(find_database)
    return ControlConnection.open(endpoint, schema, clock, timings, database), is_pooled


def _make_known(
    connection: psycopg.Connection[Any],
    schema: str,
    timings: InternalTimings,
    former_id: int = 0,
    *,
    pooled: bool,
    announces_waits: bool,
) -> _Link:
    """Make the client known on a new connection, under its former number where that can be."""
    liveness: Liveness = Heartbeats(timings) if pooled else AdvisoryLock(timings, announces_waits=announces_waits)
    connection_id = liveness.begin(PsycopgRunner(connection, schema, prepares=False), former_id)
    return _Link(connection, pooled, liveness, connection_id)
