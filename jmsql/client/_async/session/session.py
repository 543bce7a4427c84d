"""Sessions: where messages are sent and received, in transactions or without."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from jmsql.client import instrumentation
from jmsql.client._async.session.browser import QueueBrowser
from jmsql.client._async.session.consumer import MessageConsumer, QueueReceiver, TopicSubscriber
from jmsql.client._async.session.dispatcher import Dispatcher
from jmsql.client._async.session.producer import MessageProducer
from jmsql.client._async.session.receiving import Receiving
from jmsql.client._async.session.session_state import SessionState
from jmsql.client._async.session.sessions import Sessions
from jmsql.client._async.session.transactions.handler import Chunk, HandlerClaims, HandlerTransaction
from jmsql.client._async.session.transactions.local import local_transaction
from jmsql.client._async.session.transactions.none import ClientAcknowledge, no_transaction
from jmsql.client._async.session.transactions.transaction import OwnTransaction, Transaction
from jmsql.client._async.shared.client_context import ClientContext
from jmsql.client._async.shared.endings import Endings
from jmsql.client._async.shared.redelivery import failure_of
from jmsql.client.acknowledge_mode import AcknowledgeMode
from jmsql.client.consumer_state import ConsumerState
from jmsql.client.instrumentation import SessionFacts
from jmsql.client.listeners import MessageListener, function_of
from jmsql.concurrency import ASYNC
from jmsql.concurrency.tasks import CallGuard, async_resource, check_function, current, owning_loop, run_detached
from jmsql.exceptions import IllegalStateException, JMSException
from jmsql.logs import contained_logger
from jmsql.messages import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from jmsql.public_names import set_module
from jmsql.selectors import Selector
from jmsql.store.destinations.subscriptions import SubscriptionChange, SubscriptionDefinition
from jmsql.store.receiving.results import Handled, Keeping, keep, keep_for
from jmsql.store.receiving.throttling import declare
from jmsql.values.destinations import (
    AnyDestination,
    AnyQueue,
    AnyTopic,
    Destination,
    Queue,
    TemporaryQueue,
    TemporaryTopic,
    Topic,
    require_destination,
    require_queue,
    require_topic,
)
from jmsql.values.outcomes import Interruption

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy.ext.asyncio import AsyncConnection

    from jmsql.client.throttle import Throttle
    from jmsql.store.control.slots import Slots
    from jmsql.store.receiving.progress import Progress
    from jmsql.store.rows.message_rows import Claim, MessageKey
    from jmsql.store.statement import Query, Steps


# A session is four parts, which share `SessionState` (its lock, its consumers, whether it is closed): the transaction
# says how the mode sends, receives and ends; `Receiving` has the consumers and their waits; `Dispatcher` calls
# listeners; producers send by the transaction. The public class checks that the session is open, and passes the call
# on.
#
# Closing takes these steps, in this order: the flag, so that no call begins; the end of the listener that runs
# (`Dispatcher.end`); asynchronous sends (`stop`); then, with the lock, unsettled work is undone, consumers leave their
# subscriptions, and the connection is released. A failure to undo the work is logged, and the last steps follow
# nevertheless: the server rolls back with the connection.


T = TypeVar("T")

logger = contained_logger("jmsql")


@set_module("jmsql.asyncio")
class Session:
    """A single-threaded context for sending and receiving (JMS 1.1, chapter 4.4).

    Made by [`Connection.create_session`][jmsql.Connection.create_session]. A transacted session wraps one transaction
    of PostgreSQL after another: the messages that it sends and receives, and the application's SQL through
    [`database`][jmsql.Session.database], take effect together with `commit`, or not at all.

    A session and its producers and consumers are for one thread; only `close` may be called from another.
    """

    # Validate a destination; raise InvalidDestinationException for any other object.
    _require_destination: Callable[[object], Destination] = staticmethod(require_destination)
    _transaction: Transaction
    _tells_of_receive: ClassVar[bool] = True
    """True if the instrumentation is told of the calls of `receive`."""

    def __init__(self, client: ClientContext, acknowledge_mode: AcknowledgeMode, sessions: Sessions) -> None:
        url = client.pool.url
        facts = SessionFacts(acknowledge_mode, url.host, url.port, lambda: client.client_id)
        self._state = SessionState(client, acknowledge_mode, facts, type(self).__name__, owning_loop())
        self._client = client
        self._sessions = sessions
        transaction = self._create_transaction(client)
        self._transaction = transaction
        self._dispatcher = Dispatcher(self._state, client, transaction)
        self._receiving = Receiving(self._state, transaction, client, self._dispatcher, is_told=self._tells_of_receive)
        sessions.add(self, self._dispatcher)

    def _create_transaction(self, client: ClientContext) -> OwnTransaction:
        """Choose how the session works, by its acknowledge mode."""
        return local_transaction(self._state, client) if self._state.transacted else no_transaction(self._state, client)

    @property
    def closed(self) -> bool:
        return self._state.closed and not self._state.is_used_by_listener

    @property
    def transacted(self) -> bool:
        """True if the session is transacted."""
        self._state.check_open()
        return self._state.transacted

    @property
    def acknowledge_mode(self) -> AcknowledgeMode:
        """How the session acknowledges messages."""
        self._state.check_open()
        return self._state.acknowledge_mode

    if not ASYNC:

        @property
        def database(self) -> AsyncConnection:
            """The SQLAlchemy connection of the session's transaction, for the application's SQL: `get_database()`."""
            return self.get_database()

    async def get_database(self) -> AsyncConnection:
        """Return the SQLAlchemy connection of the session's transaction, for the application's own SQL.

        It is taken when it is first needed. Messages that the session has sent and received so far are visible through
        it. A rollback to a savepoint takes back those that were sent and received after it. Leave committing, rolling
        back and closing it to the session.

        Raises:
            IllegalStateException: The session is not transacted, or is closed.
            TransactionRolledBackException: It was closed, or rolled back, with the work of the session.
        """
        self._check_open()
        return await self._transaction.share()

    # Destinations and messages

    def create_queue(self, name: str) -> Queue:
        """Return the queue of that name (it is made in the database when it is first used).

        Raises:
            InvalidDestinationException: The name is empty or too long.
        """
        self._check_open()
        return Queue(name)

    def create_topic(self, name: str) -> Topic:
        """Return the topic of that name.

        Raises:
            InvalidDestinationException: The name is empty or too long.
        """
        self._check_open()
        return Topic(name)

    async def create_temporary_queue(self) -> TemporaryQueue:
        """Make a queue that lives as long as the connection, for its own consumers: for replies, say."""
        self._check_open()
        destinations = self._receiving.connection.destinations
        return await destinations.create_temporary(TemporaryQueue, self._sessions.check_unused)

    async def create_temporary_topic(self) -> TemporaryTopic:
        """Make a topic that lives as long as the connection, for its own consumers."""
        self._check_open()
        destinations = self._receiving.connection.destinations
        return await destinations.create_temporary(TemporaryTopic, self._sessions.check_unused)

    async def make_queue(self, queue: Queue) -> None:
        """Make a queue if it is missing, beside the session's transaction if that can be."""
        self._check_open()
        await self._transaction.make_queue(queue)

    async def run_steps(self, work: Query[T] | Steps[T]) -> T:
        """Run statements in the session's transaction; without one they take effect when this returns."""
        self._check_open()
        return await self._transaction.run(work)

    def endings(self) -> Endings:
        """Return the reader of messages' ends."""
        self._check_open()
        return self._transaction.endings()

    def create_message(self) -> Message:
        """Make a message without a body."""
        self._check_open()
        return Message()

    def create_text_message(self, text: str | None = None) -> TextMessage:
        """Make a message with a text."""
        self._check_open()
        return TextMessage(text)

    def create_bytes_message(self) -> BytesMessage:
        """Make a message with bytes, to be written."""
        self._check_open()
        return BytesMessage()

    def create_map_message(self) -> MapMessage:
        """Make a message with named values."""
        self._check_open()
        return MapMessage()

    def create_stream_message(self) -> StreamMessage:
        """Make a message with a sequence of values, to be written."""
        self._check_open()
        return StreamMessage()

    def create_object_message(self, object: Any = None) -> ObjectMessage:  # noqa: A002 - JMS's name
        """Make a message with a copy of an object.

        Raises:
            MessageFormatException: The object cannot be stored.
        """
        self._check_open()
        return ObjectMessage(object)

    # Producers and consumers

    @async_resource
    async def create_producer(self, destination: AnyDestination | None = None) -> MessageProducer:
        """Make a producer.

        Args:
            destination: Where it sends to; a string is a queue's name, ``queue://NAME`` or ``topic://NAME``; None: each
                send names its own destination.

        Raises:
            InvalidDestinationException: It is no destination.
        """
        self._check_open()
        return await MessageProducer.open(self._transaction, self._require_destination, destination)

    def unidentified_producer(self) -> MessageProducer:
        """Make a producer that has no destination of its own: each send names one."""
        self._check_open()
        return MessageProducer(self._transaction, self._require_destination, None)

    @async_resource
    async def create_consumer(
        self,
        destination: AnyDestination,
        selector: str | None = None,
        *,
        no_local: bool = False,
    ) -> MessageConsumer:
        """Make a consumer of a queue, or of a topic from now until it is closed.

        Args:
            destination: The queue or topic to receive from; a string is a queue's name, ``queue://NAME`` or
                ``topic://NAME``.
            selector: Which of its messages are wanted; None or "": all.
            no_local: Whether to leave out messages that this connection publishes. Means nothing for a queue.

        Raises:
            InvalidDestinationException: It is no destination.
            InvalidSelectorException: The selector has an error; the message shows where.
        """
        self._check_open()
        target = self._require_destination(destination)
        if isinstance(target, Topic):
            return await self._subscribe_once(target, selector, no_local=no_local)
        return await self._receive_from(require_queue(target), selector)

    async def _receive_from(self, queue: Queue, selector: str | None) -> QueueReceiver:
        parsed = Selector.parse(selector)
        state = ConsumerState("QueueReceiver", queue, parsed, await self._receiving.open_buffer(queue, parsed))
        await self._receiving.consumer_opened(state)
        return QueueReceiver(self._receiving, state)

    async def _subscribe_once(self, topic: Topic, selector: str | None, *, no_local: bool) -> TopicSubscriber:
        """Subscribe until the subscriber is closed."""
        return await self._subscribe(
            topic, SubscriptionDefinition(topic.name, Selector.parse(selector), no_local=no_local)
        )

    async def _subscribe(self, topic: Topic, subscription: SubscriptionDefinition) -> TopicSubscriber:
        self._check_open()
        return TopicSubscriber(self._receiving, await self._receiving.subscribe(topic, subscription))

    @async_resource
    async def create_durable_consumer(
        self, topic: AnyTopic, name: str, selector: str | None = None, *, no_local: bool = False
    ) -> MessageConsumer:
        """Make a durable subscriber: the newer name of `create_durable_subscriber`."""
        return await self.create_durable_subscriber(topic, name, selector, no_local=no_local)

    @async_resource
    async def create_durable_subscriber(
        self, topic: AnyTopic, name: str, selector: str | None = None, *, no_local: bool = False
    ) -> TopicSubscriber:
        """Make the consumer of a durable subscription, which collects messages while it has no consumer, too.

        The subscription is made if it is not there. With another topic, selector or `no_local` than before it is made
        again: the messages that it had collected are deleted, and the log says how many.

        Args:
            topic: The topic, or its name.
            name: The subscription's name, for this client identifier.
            selector: Which of the topic's messages are wanted; None or "": all.
            no_local: Whether to leave out messages that this client publishes.

        Raises:
            IllegalStateException: The connection has no client identifier; or the subscription has a consumer, or is
                shared.
            InvalidDestinationException: It is not a topic.
            InvalidSelectorException: The selector has an error; the message shows where.
            ValueError: The name is empty.
        """
        self._check_open()
        target, subscription_name, client_id = require_topic(topic), _name(name), self._receiving.connection.client_id
        if client_id is None:
            raise IllegalStateException(
                "A durable subscription belongs to a client identifier. Set the connection's client_id first, or use "
                "create_shared_durable_consumer."
            )
        definition = SubscriptionDefinition(
            target.name, Selector.parse(selector), subscription_name, client_id, durable=True, no_local=no_local
        )
        return await self._subscribe(target, definition)

    @async_resource
    async def create_shared_consumer(self, topic: AnyTopic, name: str, selector: str | None = None) -> MessageConsumer:
        """Make a consumer that shares a subscription with others: each message goes to one of them.

        The subscription lasts as long as it has consumers.

        Args:
            topic: The topic, or its name.
            name: The subscription's name, for this client identifier, if the connection has one.
            selector: Which of the topic's messages are wanted; None or "": all.

        Raises:
            IllegalStateException: The subscription has consumers that want another topic or selector.
            InvalidDestinationException: It is not a topic.
            InvalidSelectorException: The selector has an error; the message shows where.
            ValueError: The name is empty.
        """
        return await self._share(topic, name, selector, durable=False)

    @async_resource
    async def create_shared_durable_consumer(
        self,
        topic: AnyTopic,
        name: str,
        selector: str | None = None,
        *,
        if_changed: SubscriptionChange = SubscriptionChange.DROP,
    ) -> MessageConsumer:
        """Make a consumer that shares a durable subscription with others: each message goes to one of them.

        Args:
            topic: The topic, or its name.
            name: The subscription's name, for this client identifier, if the connection has one.
            selector: Which of the topic's messages are wanted; None or "": all.
            if_changed: The action if the subscription has another topic or selector, and no consumer.

        Raises:
            IllegalStateException: The subscription has consumers that want another topic or selector, or is not
                shared; or it has another topic or selector, and is not to be changed.
            InvalidDestinationException: It is not a topic.
            InvalidSelectorException: The selector has an error; the message shows where.
            ValueError: The name is empty.
        """
        return await self._share(topic, name, selector, durable=True, if_changed=if_changed)

    async def _share(
        self,
        topic: AnyTopic,
        name: str,
        selector: str | None,
        *,
        durable: bool,
        if_changed: SubscriptionChange = SubscriptionChange.DROP,
    ) -> MessageConsumer:
        self._check_open()
        target = require_topic(topic)
        definition = SubscriptionDefinition(
            target.name,
            Selector.parse(selector),
            _name(name),
            self._receiving.connection.client_id,
            durable,
            shared=True,
            if_changed=if_changed,
        )
        return await self._subscribe(target, definition)

    @async_resource
    async def create_browser(self, queue: AnyQueue, selector: str | None = None) -> QueueBrowser:
        """Make a browser, which looks at the messages of a queue and leaves them there.

        Args:
            queue: The queue, or its name.
            selector: Which of its messages are wanted; None or "": all.

        Raises:
            InvalidDestinationException: It is no queue.
            InvalidSelectorException: The selector has an error; the message shows where.
        """
        self._check_open()
        found = require_queue(queue)
        return QueueBrowser(
            found,
            Selector.parse(selector),
            await self._receiving.queue_id(found, "browse"),
            self._receiving.browse,
            self._receiving.check_open,
        )

    async def unsubscribe(self, name: str) -> None:
        """End a durable subscription, with the messages that it has collected.

        Args:
            name: The subscription's name, for the connection's client identifier if it has one.

        Raises:
            InvalidDestinationException: There is no such subscription.
            IllegalStateException: It has a consumer, or messages of it are not acknowledged or committed.
        """
        self._check_open()
        connection = self._receiving.connection
        await self._transaction.settle()
        await connection.destinations.unsubscribe(name, connection.client_id)

    # For application servers

    @property
    def message_listener(self) -> MessageListener | None:
        """The listener that `run` calls with the messages of a connection consumer (JMS 1.1, chapter 8.2.1).

        Setting it is the same as `set_message_listener`.

        Raises:
            IllegalStateException: The session is closed.
        """
        self._check_open()
        return self._state.message_listener

    @message_listener.setter
    def message_listener(self, listener: MessageListener | None) -> None:
        self.set_message_listener(listener)

    def set_message_listener(self, listener: MessageListener | None) -> None:
        """Have `run` call a listener with the messages that a connection consumer has loaded (JMS 1.1, chapter 8.2.1).

        It is for the sessions of a [`ServerSessionPool`][jmsql.connection_consumers.ServerSessionPool]; other programs
        set the listeners of consumers. While it is set, the session's consumers neither receive nor have
        listeners.

        Args:
            listener: A callable, or an object with `on_message`; None: no listener.

        Raises:
            IllegalStateException: The session is closed, or one of its consumers has a listener.
            TypeError: The listener is no callable and has no `on_message`, or is a generator function, whose calls run
                nothing; with threads, also a coroutine function.
        """
        self._check_open()
        if listener is not None:
            check_function(function_of(listener))
            if any(not consumer.closed for consumer in self._state.listening_consumers):
                raise IllegalStateException("A consumer of the session has a listener; remove that one first.")
        self._state.receive_for(listener)

    async def run(self) -> None:
        """Give the messages that a connection consumer has loaded to the session's listener, one after the other.

        They are acknowledged like a listener's messages; with transactions, the caller of `run` commits or rolls back
        afterwards, or the listener does. When the connection is stopped meanwhile, or the session closed, those not
        delivered yet are released.

        Raises:
            IllegalStateException: The session is closed, or has consumers with listeners.
        """
        self._check_open()
        await self._dispatcher.run()

    # Transactions

    async def commit(self) -> None:
        """Commit: send and acknowledge the messages of the transaction, and let the application's SQL take effect.

        Raises:
            IllegalStateException: The session is not transacted, or is closed.
            TransactionRolledBackException: The transaction was rolled back instead; nothing took effect.
            JMSException: The outcome is not known: the connection was cut during the commit, or the application has
                ended the transaction by a statement.
        """
        self._check_open()
        await self._transaction.commit()

    async def rollback(self, error: BaseException | str | None = None) -> None:
        """Roll back: discard sent messages, deliver received messages again, and undo the application's SQL.

        It waits for the completion listeners of asynchronous sends, which do not hear that the messages are discarded.

        Args:
            error: Why. It is kept with the messages that were received, up to 10,000 characters of an exception's
                traceback; and where no [redelivery policy](/redelivery.md) says otherwise, they come again at once
                after their first error, and then after ever longer pauses. `Reject` and `RetryAfter` of `jmsql.worker`
                decide their outcomes instead.

        Raises:
            IllegalStateException: The session is not transacted, or is closed.
        """
        self._check_open()
        await self._transaction.rollback(error)

    async def recover(self, error: BaseException | str | None = None) -> None:
        """Deliver the messages again that were received and not acknowledged, from the first one on.

        Args:
            error: Why, as for `rollback`.

        Raises:
            IllegalStateException: The session is transacted, or is closed.
        """
        self._check_open()
        await self._transaction.recover(error)

    def extend_claims(self) -> AbstractContextManager[None]:
        """Extend, for as long as a `with` block runs, the claims on messages that were received and not acknowledged.

        Where claims have a visibility timeout, a message that takes longer to handle would be taken away meanwhile.
        The first extension comes a third of the timeout after the receipt, or at once. Listeners need not ask for it.

        Raises:
            IllegalStateException: The session is closed.
        """
        self._check_open()
        return self._transaction.extend_claims()

    async def acknowledge(self) -> None:
        """Acknowledge all that was received, if the session's mode is CLIENT; else do nothing.

        Raises:
            IllegalStateException: The session is closed.
            JMSException: Some of it was taken away meanwhile, and is delivered again; or the server could not be asked.
        """
        self._check_open()
        await self._transaction.acknowledge()

    async def close(self) -> None:
        """Close the session and all that it made. An open transaction is rolled back; closing again does nothing.

        It waits for a listener that is running, which keeps the use of the session until it returns. Called from that
        listener, it does not wait: the session closes when the listener returns. A `receive` that waits ends with None;
        one that is fetching a message returns it, and `close` waits for that. It waits until asynchronous sends are
        complete and their listeners have returned.

        Messages stay usable; only `acknowledge` on received ones raises IllegalStateException.

        Raises:
            IllegalStateException: The caller is a completion listener of the session; or a listener of another session
                for which this session's listener waits, since it stops the connection, for example.
        """
        if self._state.closed:
            return
        if self._state.guard is not None:
            self._state.guard.check("session")
        self._state.check_no_completion("close")
        await run_detached(self._close())

    async def _close(self) -> None:
        with self._sessions.waiting_for_listeners("close", self._state):
            self._state.close()
            self._state.notifications.notify()
            await self._dispatcher.end(self._release)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return repr(self._state)

    async def _release(self) -> None:
        """Release the session's messages, and its connection."""
        transaction = self._transaction
        await transaction.stop()
        async with self._state.lock:
            try:
                await transaction.close()
            except JMSException as error:
                logger.warning("%r could not roll back or release its messages as it closed: %s", self, error)
            finally:
                await self._receiving.close_all()
                await transaction.release()
                await self._sessions.remove(self)

    def _check_open(self) -> None:
        self._state.check_open()
        self._client.used = True  # and its client identifier is not set any more


def _name(name: str) -> str:
    if not name:
        raise ValueError("A subscription's name has at least one character.")
    return name


class HandlerSession(Session):
    """A session that is watched while a handler works in it."""

    _transaction: HandlerTransaction | ClientAcknowledge
    _tells_of_receive = False  # the call of the handler tells of the message; the wait for it does not
    _consumer: ConsumerState
    """The consumer of its listener; a handler may make others."""

    def __init__(self, client: ClientContext, acknowledge_mode: AcknowledgeMode, sessions: Sessions) -> None:
        super().__init__(client, acknowledge_mode, sessions)
        self._handler: object = None
        """The thread or task in which a handler runs, which is not to close the session. Written by `call_in`."""
        self.cancellations = client.control.cancellations
        """The cancellations that its client hears of."""

    def _create_transaction(self, client: ClientContext) -> OwnTransaction:
        if self._state.transacted:
            return HandlerTransaction(self._state, client)
        return no_transaction(self._state, client, shares_connections=True)

    def claim_together(self, claims: HandlerClaims | None, chunk: int | None = None) -> HandlerClaims | None:
        """Have the messages of its only consumer claimed in a transacted session, some of them ahead.

        Args:
            claims: The claims of another session for the same listener; None: this is the first one.
            chunk: The most messages of a chunk; None: they are handled one by one.

        Returns:
            These claims, or its own; None: it is not transacted, and claims for itself.
        """
        (self._consumer,) = self._state.consumers
        if not isinstance(self._transaction, HandlerTransaction):
            return None
        return self._transaction.claim_together(self._consumer, claims, chunk)

    def name_consumer(self, listener: str) -> None:
        """Have the connection tell the name of the listener that receives by its only consumer."""
        (consumer,) = self._state.consumers
        consumer.buffer.use(consumer.buffer.policy._replace(listener=listener))

    async def limit_by(self, throttle: Throttle, *, replaces: bool) -> None:
        """Receive its consumer's messages within a limit over all workers, which is declared first.

        Args:
            throttle: The limit, which the sessions of a listener share.
            replaces: Whether the limit takes the place of the one that is declared.

        Raises:
            JMSException: The server could not be asked, or refused.
        """
        if not throttle.is_declared:
            source = self._consumer.buffer.source
            chosen = "" if source.selector is None else source.selector.text
            await self._client.side.run(declare, source.queue_id, chosen, throttle.limit, replaces=replaces)
            throttle.is_declared = True
        self._transaction.limit_by(throttle, self._consumer)

    @property
    def slots(self) -> Slots:
        """The slots that its client holds."""
        return self._client.control.slots

    async def keep_results(self, keeping: Keeping) -> None:
        """Have dead letters and expired messages of its consumer's queue leave results.

        Raises:
            JMSException: The server could not be asked, or refused.
        """
        queue_id = self._consumer.buffer.source.queue_id
        await self._client.side.run(keep_for, queue_id, keeping.seconds, keeps_message=keeping.keeps_message)

    async def keep_result(self, message: Message, handled: Handled, keeping: Keeping) -> None:
        """Have the result of a message stored with its commit or acknowledgement."""
        if message.jms_message_id is not None:
            self._transaction.keep_result(keep(self._consumer.buffer.source.queue_id, message, handled, keeping))

    async def get_driver_connection(self) -> psycopg.AsyncConnection[Any]:
        """Return psycopg's own connection in the session's transaction, which refuses to end that."""
        self._check_open()
        assert isinstance(self._transaction, HandlerTransaction)
        return await self._transaction.share_driver()

    def call_in(self, handler: object) -> None:
        """Note the thread or task in which a handler runs from now on; None: there is none."""
        self._handler = handler

    async def close(self) -> None:
        if self._handler is not None and self._handler is current():
            raise IllegalStateException(
                "The session is the worker's, which needs it for the next messages. Leave closing it to the worker."
            )
        await super().close()

    async def pause(self) -> None:
        """Let other sessions have the connection, if no transaction is open."""
        await self._transaction.database.pause()

    @property
    def is_settled(self) -> bool:
        """True if every received message is acknowledged, committed or released."""
        return self._transaction.is_settled

    @property
    def has_open_transaction(self) -> bool:
        """True if a transaction is open at the server; may be read from another thread."""
        return self._state.transacted and not self._transaction.database.link.is_idle

    @property
    def chunk(self) -> Chunk:
        """The chunk of messages that a transacted session has received, and not settled."""
        assert isinstance(self._transaction, HandlerTransaction)
        return self._transaction.chunk

    def progress_reporter(self) -> Callable[[Progress | None], object]:
        """Return a function that takes the handled message's progress, in any thread; None ends that."""
        message, reports = self._transaction.delivery.claimed, self._client.control.progress_reports
        if message is None:
            return lambda _: None

        def report(progress: Progress | None) -> None:
            if progress is None:
                reports.drop(message)
            else:
                reports.add(message, progress)

        return report

    def pop_dead_letter(self) -> bool:
        """Return whether a message has become a dead letter since the last call."""
        return self._transaction.delivery.pop_dead_letter()

    def processing(self, *messages: Message) -> AbstractContextManager[object]:
        """Let the instrumentation, if there is any, follow the call of a handler."""
        return instrumentation.processing(self._state.facts, *messages)

    @property
    def claim(self) -> tuple[MessageKey, Claim] | None:
        """The message that was delivered, with its claim; None: it has none, or there are several messages."""
        return self._transaction.last_claim

    @property
    def is_connected(self) -> bool:
        """True unless its connection has lost the server."""
        return not self._client.control.is_lost

    def check_calls(self, guard: CallGuard) -> None:
        """Have something checked at each call of the session, from now on; may be called from another thread."""
        self._state.check_calls(guard)

    def will_be_interrupted(self) -> None:
        """Have closing the session release the message of a running handler as one that has not failed.

        A handler in a thread has further statements in the transaction refused.
        """
        self._transaction.fail_at_close(failure_of(Interruption()))

    async def interrupt(self, timeout: float) -> bool:
        """Interrupt the statement that runs in the transaction; return True if one did.

        May be called from another thread.

        Args:
            timeout: How many seconds that may take.

        Raises:
            JMSException: The server could not be told.
        """
        return await self._transaction.database.link.interrupt(timeout)
