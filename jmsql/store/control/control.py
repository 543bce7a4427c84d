"""The connection that each client keeps to PostgreSQL beside its sessions: heartbeats, notifications and maintenance.

It holds an advisory lock for as long as the client lives, so that the server itself knows when the client is gone. It
listens for messages, tells others of messages sent, and one of all such connections, which has the lease, does the
maintenance of the store.

Through a pooler it can neither hold a lock nor listen: there it sends heartbeats, and notifies others of each message
sent, but hears of none; its own client's messages alone wake its client.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import psycopg

from jmsql.concurrency.threads import start_thread
from jmsql.exceptions import InvalidClientIDException, JMSException
from jmsql.logs import contained_logger
from jmsql.store.connections.engine import Endpoint
from jmsql.store.control.announcing import Announcing
from jmsql.store.control.cancellations import Cancellations
from jmsql.store.control.claim_extensions import ClaimExtensions
from jmsql.store.control.counters import Consumption, DestinationCounters
from jmsql.store.control.handlers import NotificationHandler, QueueHandlers
from jmsql.store.control.late_releases import LateReleases
from jmsql.store.control.listening import end_listening, start_listening
from jmsql.store.control.liveness import ClientForgottenError
from jmsql.store.control.notifier import Notifier
from jmsql.store.control.progress_reports import ProgressReports
from jmsql.store.control.reporting import Reporting
from jmsql.store.control.server import Server, ServerClock, find_database, look_at_server, require_same_database
from jmsql.store.control.service import ClaimInDoubtError, ClientDuties, Link, Service, make_known
from jmsql.store.control.slots import Slots
from jmsql.store.control.wake_socket import WakeSocket
from jmsql.store.errors import translate
from jmsql.store.history.keeping import QueuesWithHistory
from jmsql.store.receiving.redelivery import ExtendedClaim, Release
from jmsql.store.statement import SqlFile, nothing
from jmsql.store.wire._sync.runner import PsycopgRunner, Runner
from jmsql.timings import InternalTimings, jitter
from jmsql.values.clock import monotonic
from jmsql.values.postgresql_text import to_postgresql

logger = contained_logger("jmsql")

_sql = SqlFile("control")
_set_client_id = _sql.statement("set_client_id", "setting the client identifier", nothing)
_disconnect = _sql.statement("disconnect", "closing", nothing)

_UNIQUE_VIOLATION = "23505"
_ANSWER_LOST = "08006"
"""The SQLSTATE that libpq, not the server, gives a connection."""


class Abandonment(NamedTuple):
    """The end of a client that was not closed, and that the application no longer refers to.

    Args:
        has_come: Tells whether it has come; called each second.
        end: Ends the client's other resources at the server.
    """

    has_come: Callable[[], bool]
    end: Callable[[], None]


class _Place(NamedTuple):
    """A control connection's target, and its intervals.

    Args:
        endpoint: Where to connect.
        schema: The name of the schema.
        timings: The intervals.
        clock: Is set by the server's.
    """

    endpoint: Endpoint
    schema: str
    timings: InternalTimings
    clock: ServerClock


class _Owner(NamedTuple):
    """The client whose control connection it is.

    Args:
        on_failure: Called with the error when the connection is lost.
        on_return: Called with the former connection ids once the connection is there again.
        reporting: Records the client's activity.
        abandonment: Reports that the application no longer refers to the client; None: it does not happen.
    """

    on_failure: Callable[[JMSException], None]
    on_return: Callable[[Sequence[int]], None]
    reporting: Reporting
    abandonment: Abandonment | None


class ControlConnection:
    """A client's control connection, and the thread that serves it.

    Made by `open`, which connects. It is served, and made again when it is lost, from `serve` until `close`, or until
    the application no longer refers to the client.

    Args:
        place: The target, and the intervals.
        server: The server's properties.
        link: The connection.
    """

    def __init__(self, place: _Place, server: Server, link: Link) -> None:
        self.server = server
        """The server's properties at the first connection."""
        self._place = place
        timings, wake_socket = place.timings, WakeSocket()
        handlers = QueueHandlers(on_first=wake_socket.wake)  # the client has to listen from now on
        announcing = Announcing(handlers, wake_socket.wake, timings)
        self.wake_ups = announcing.wake_ups
        """The client's waiting consumers, by queue."""
        self.notifier = Notifier(announcing, wake_socket.wake, timings)
        """Tells other clients of messages."""
        self.queues_with_history = QueuesWithHistory(timings.history_refresh_interval, is_told=not link.is_pooled)
        """The queues that keep history, or did a second ago."""
        self.progress_reports = ProgressReports(wake_socket.wake)
        """Writes down the progress of handlers."""
        slots = Slots(wake_socket.wake, timings)
        slots.hold_for(link.connection_id)
        self._duties = ClientDuties(
            handlers,
            announcing,
            self.notifier,
            Cancellations(wake_socket.wake, timings.maintenance_interval),
            ClaimExtensions(),
            LateReleases(self.notifier, timings.maintenance_retry_delay, restricted=server.is_restricted),
            self.progress_reports,
            slots,
            self.queues_with_history,
            wake_socket,
        )
        self._service = Service(link, place.endpoint, place.schema, server, place.clock, timings, self._duties)
        self.connection_id = link.connection_id
        """The number of the client's connection at the server."""
        self._owner: _Owner | None = None
        self._client_id: str | None = None
        self._next_pause = timings.minimum_reconnect_delay
        self._closed = False
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
            timings: The intervals.
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
            link = make_known(connection, server.database, schema, timings, pooled=is_pooled)
            return cls(_Place(endpoint, schema, timings, clock), server, link)
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
        """Run the connection's duties on a thread of its own until `close`.

        Args:
            on_failure: Called, from the control thread, with the error when the connection is lost.
            on_return: Called, from the control thread, with the former connection ids once the connection is there
                again.
            counters: The client's counters, to be recorded.
            consumers: Returns how many consumers of each kind the client has, to be written down.
            abandonment: Reports that the application no longer refers to the client, with which the connection ends.

        Raises:
            ResourceAllocationException: The thread cannot be started. The connection has to be closed then.
        """
        reporting = Reporting(self._place.timings, counters, consumers)
        self._owner = _Owner(on_failure, on_return, reporting, abandonment)
        start_listening(self)
        start_thread(self._thread)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.connection_id}{' closed' if self._closed else ''}>"

    # Called by the client's threads

    @property
    def cancellations(self) -> Cancellations:
        """The calls of handlers that end if their messages are cancelled."""
        return self._duties.cancellations

    @property
    def slots(self) -> Slots:
        """The slots that its handlers hold."""
        return self._duties.slots

    @property
    def schema(self) -> str:
        """The name of the schema."""
        return self._place.schema

    @property
    def database(self) -> tuple[Any, ...]:
        """The identity of its database, by `find_database`."""
        return self._service.link.database

    def subscribe(self, queue_id: int, handler: NotificationHandler) -> None:
        """Call `handler` whenever the queue may have something new. Of a method, the object is not kept alive."""
        self._duties.handlers.add(queue_id, handler)
        self.queues_with_history.add(queue_id)

    def unsubscribe(self, queue_id: int, handler: NotificationHandler) -> None:
        """No longer call `handler`."""
        self._duties.handlers.remove(queue_id, handler)

    def begin_waiting(self, queue_id: int, handler: NotificationHandler) -> None:
        """Call `handler` whenever the queue may have something new, for one that waits for it, until `end_waiting`.

        In place of a queue's number, `channel_of` of a result may stand.
        """
        self._duties.handlers.add(queue_id, handler)
        self.wake_ups.add_waiter(queue_id)

    def end_waiting(self, queue_id: int, handler: NotificationHandler) -> None:
        """No longer call `handler`."""
        self.wake_ups.remove_waiter(queue_id)
        self.unsubscribe(queue_id, handler)

    @property
    def is_extending(self) -> bool:
        """True while a statement extends claims, perhaps for a block of `extending` that has ended just now."""
        return self._duties.claim_extensions.is_running

    def call_after_extension(self, ended: Callable[[], object]) -> None:
        """Call a function once no statement extends claims: at once, or from the control thread."""
        self._duties.claim_extensions.call_after(ended)

    @contextlib.contextmanager
    def extending(self, claims: Sequence[ExtendedClaim]) -> Iterator[None]:
        """Extend claims for as long as the block runs."""
        if not claims:
            yield
            return
        holder = object()
        self._duties.claim_extensions.add(holder, claims)
        self._duties.wake_socket.wake()
        try:
            yield
        finally:
            self._duties.claim_extensions.remove(holder)

    @property
    def is_lost(self) -> bool:
        """True from the loss of the connection until there is another one."""
        return self._service.is_lost

    @property
    def is_certain(self) -> bool:
        """True if other clients certainly take this one for alive, and leave it its claims."""
        service = self._service
        return not service.is_lost and monotonic() < service.link.liveness.certain_until

    @property
    def is_attentive(self) -> bool:
        """True if consumers can leave it to this connection to hear of messages, and to look for those not told of."""
        service = self._service
        return not (service.link.is_pooled or service.is_lost) and monotonic() < service.attentive_until

    @property
    def may_ask_to_dequeue(self) -> bool:
        """True if the role may have the server dequeue a message for it."""
        return self.server.may_ask_to_dequeue

    def release_later(self, releases: Sequence[Release]) -> None:
        """Release messages that a session could not release."""
        self._duties.late_releases.add(releases)
        self._duties.wake_socket.wake()

    def claim_failed(self, connection_id: int, error: JMSException | KeyboardInterrupt) -> None:
        """Be another client to the server soon if it may have claimed messages and its answer was lost.

        The client cannot release claims that it does not know of. As another one it leaves all claims to be released,
        as when the control connection is lost.

        Args:
            connection_id: The number with which it claimed.
            error: Why that failed. An administrator who ends an idle connection loses no answer; Ctrl-C may.
        """
        service = self._service
        is_lost = isinstance(error, KeyboardInterrupt) or error.error_code == _ANSWER_LOST
        if is_lost and connection_id == service.link.connection_id:
            service.is_in_doubt = True
            self._duties.wake_socket.wake()

    def set_client_id(self, client_id: str) -> None:
        """Take a client identifier for as long as the connection lives.

        Raises:
            InvalidClientIDException: Another live connection has it.
        """
        _take_client_id(self._service, client_id)
        self._client_id = client_id

    def close(self) -> None:
        """End the connection; the server then knows that the client is gone. Closing it again does nothing."""
        if self._closed:
            return
        self._closed = True
        end_listening(self)
        self._duties.wake_socket.wake()
        if self._thread.ident is None:
            self._end()
        elif threading.current_thread() is not self._thread:
            self._thread.join()

    # Connecting

    def _connect(self) -> None:
        """Connect again."""
        endpoint, schema, timings, clock = self._place
        connection, is_pooled = endpoint.connect()
        try:
            link = make_known(
                connection,
                PsycopgRunner(connection, schema).run(find_database),
                schema,
                timings,
                0 if self._service.is_in_doubt else self.connection_id,
                pooled=is_pooled,
            )
            # It is lost until its subscriptions have the new number, and all consumers fetch again. Claims of the
            # former number are released as a dead client's.
            service = Service(link, endpoint, schema, self.server, clock, timings, self._duties, is_lost=True)
            self._service, self.connection_id = service, link.connection_id
            if self._client_id is not None:
                _take_client_id(service, self._client_id)
        except BaseException:
            connection.close()
            raise

    def _reconnect(self, owner: _Owner) -> bool:
        """Connect again, however long it takes; return False if the client is closed meanwhile."""
        former_ids = [self.connection_id]
        while not self._ends():
            started = monotonic()
            try:
                self._connect()
                owner.on_return(former_ids)
            except BaseException as error:  # noqa: BLE001 - the next attempt may succeed after any error
                self._service.link.connection.close()
                former_ids.append(self.connection_id)
                logger.info("The control connection is still lost: %s", error)
            else:
                logger.info("Control connection restored.")
                self._duties.handlers.call_all()  # which makes prefetch buffers release earlier claims
                self.wake_ups.wake_all()
                self._service.is_lost = False
                self._duties.announcing.is_connected = True
                return True
            # As long as an attempt lasts, the client cannot be closed.
            self._pause(at_least=monotonic() - started)
        return False

    def _pause(self, at_least: float = 0.0) -> None:
        """Wait before the next attempt to connect, longer each time."""
        most = self._place.timings.maximum_reconnect_delay
        pause, self._next_pause = max(self._next_pause, min(at_least, most)), min(2 * self._next_pause, most)
        self._duties.wake_socket.wait(pause * jitter.uniform(0.8, 1.2))

    # The control thread

    def _serve(self) -> None:
        owner, timings = self._owner, self._place.timings
        assert owner is not None
        try:
            while True:
                served_since = monotonic()
                try:
                    self._service.run(owner.reporting, self._ends)
                    break
                except BaseException as error:  # noqa: BLE001 - the client needs this thread for as long as it lives
                    self._service.is_lost = True
                    self._duties.announcing.is_connected = False
                    self._service.link.connection.close()
                    self.wake_ups.wake_all()  # who waits looks for itself meanwhile
                    if self._ends():
                        break
                    _tell_of_loss(error, owner)
                if monotonic() - served_since < timings.maximum_reconnect_delay:
                    self._pause()  # the error may repeat immediately
                else:
                    self._next_pause = timings.minimum_reconnect_delay
                if not self._reconnect(owner):
                    break
        finally:
            end_listening(self)
            self._end()
        if not self._closed and owner.abandonment is not None:
            owner.abandonment.end()

    def _ends(self) -> bool:
        abandonment = None if self._owner is None else self._owner.abandonment
        return self._closed or (abandonment is not None and abandonment.has_come())

    def _end(self) -> None:
        """Tell others the last, and that the client is gone."""
        connection, control = self._service.link.connection, self._service.control
        try:
            last = [self.notifier.end, self.slots.end, self._disconnect]
            if self._owner is not None:
                last.insert(1, self._owner.reporting.write_counters)
            for step in last:
                if connection.closed:
                    break
                try:
                    step(control)
                except JMSException as error:  # the others can do without it
                    logger.info("The control connection did not close in order: %s", error)
                    with contextlib.suppress(psycopg.Error):
                        connection.rollback()  # of a transaction that the step has begun
        finally:
            connection.close()
            self._duties.wake_socket.close()

    def _disconnect(self, control: Runner) -> None:
        control.run(_disconnect.bind(connection_id=self.connection_id))


def _take_client_id(service: Service, client_id: str) -> None:
    taken = _set_client_id.bind(client_id=to_postgresql(client_id), connection_id=service.link.connection_id)
    try:
        service.control.run(taken)
    except JMSException as error:
        if error.error_code != _UNIQUE_VIOLATION:
            raise
        raise InvalidClientIDException(
            f"The client identifier {client_id!r} is in use by another connection; close that one first.", "23505"
        ) from error


def _tell_of_loss(error: BaseException, owner: _Owner) -> None:
    """Tell that the connection is lost, and why."""
    if isinstance(error, JMSException):
        failure = error
    else:
        failure = translate(error, "keeping the control connection")
        failure.__cause__ = error
    is_expected = isinstance(error, psycopg.Error | JMSException | ClientForgottenError)
    logger.warning("Control connection failed: %s", failure, exc_info=None if is_expected else error)
    if isinstance(error, ClaimInDoubtError):
        return  # the session that claimed has told of its lost connection, and this one was not lost
    try:
        owner.on_failure(failure)
    except BaseException:  # a listener that exits ends no thread of jmsql's
        logger.exception("Telling of the lost connection failed.")


def open_control(
    endpoint: Endpoint, sessions: Endpoint, schema: str, clock: ServerClock, timings: InternalTimings
) -> tuple[ControlConnection, bool]:
    """Open the control connection of a client.

    Args:
        endpoint: Where it connects.
        sessions: Where the client's sessions connect, which has to be the same database.
        schema: The name of the schema.
        clock: Is set by the server's.
        timings: The intervals.

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
