"""A listener: a handler and its messages; and one call of it, as its `around` functions see it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Unpack, runtime_checkable

from jmsql.client._sync.connection.simplified import message_of
from jmsql.concurrency.functions import is_coroutine_function, refuse_coroutine_function, refuse_generator_function
from jmsql.exceptions import IllegalStateException, MessageFormatException
from jmsql.logs import contained_logger
from jmsql.messages import Message, as_jms_message
from jmsql.messages.codecs.schemas import Schema
from jmsql.messages.properties import BATCH
from jmsql.public_names import set_module
from jmsql.store.destinations.subscriptions import ChangeRefusedException
from jmsql.store.receiving.progress import Progress
from jmsql.store.schedules.definition import Schedule
from jmsql.values.destinations import AnyDestination, Queue, Topic, required_destination
from jmsql.values.outcomes import Reject, RejectBecause, RetryAfter
from jmsql.values.policies import RedeliveryPolicy, dead_letter_queue_of
from jmsql.worker.handlers.bodies import body_schema as schema_of_body
from jmsql.worker.handlers.dead_letters import DeadLetterHook
from jmsql.worker.handlers.deadline import Deadline
from jmsql.worker.handlers.options import ListenerOptions
from jmsql.worker.handlers.parameters import Call, Parameter
from jmsql.worker.handlers.received import as_received, as_scheduled, json_message

if TYPE_CHECKING:
    import sqlalchemy
    from sqlalchemy.ext.asyncio import AsyncConnection

    from jmsql.client.sending.options import SendOptions

logger = contained_logger("jmsql.worker")

_lose_replies: set[str] = set()
"""Handlers whose lost replies the log has named."""

# `Listener` is a value: the options, the handler, and the application's additions to both. A router's function becomes
# a listener for each application that includes it, since its parameters depend on the `around` functions there.
#
# `HandlerCall` is the part of a call that applications see, in `around` functions and as a parameter. The worker's
# class of the same name (`_async/call.py`) inherits it, and adds how the call runs.


_LONGEST_NOTE = 200

DEFAULT_REDELIVERY = RedeliveryPolicy(
    maximum_deliveries=20, delay=1.0, multiplier=2.0, maximum_delay=4 * 3600.0, jitter=0.1
)
"""The policy if neither the listener nor the destination has one: attempts for about a day in all."""


@runtime_checkable
class HasListeners(Protocol):
    """A registered handler, which is a listener of each application that has it."""

    def has(self, listener: Listener) -> bool:
        """Return True if a listener of an application is this one."""


@dataclass(frozen=True, kw_only=True)
class Listener(ListenerOptions):
    """A handler, and which messages it is called with."""

    name: str
    handler: Callable[..., object]
    parameters: tuple[Parameter, ...]
    destination: Queue | Topic
    dead_letter_hooks: tuple[DeadLetterHook, ...]
    """Called with the messages that become dead letters, and their errors: the listener's function first."""
    arounds: tuple[Around, ...]
    """The functions around each call, the outermost first."""
    provides: frozenset[type] | None
    """The classes that these may provide; None: any."""
    reaches_transaction: bool
    """True if the handler can do something in its message's transaction without asking for it by a parameter."""
    application_listeners: Sequence[Listener] = field(repr=False, compare=False)
    """All listeners of its application, also those that are registered later."""

    @functools.cached_property
    def reply_destination(self) -> Queue | Topic | None:
        """The destination of replies to messages without a JMSReplyTo; None: there is none.

        A handler stands for its destination in this application, also where another one includes its router, too.

        Raises:
            IllegalStateException: It is a handler whose router is included in no application, or under several
                prefixes.
        """
        given = self.reply_to
        if given is None or isinstance(given, Queue | Topic):
            return given
        # Asked as the worker starts, and not at the decorator: a router may be included after the one that names it.
        found = [each for each in self.application_listeners if isinstance(given, HasListeners) and given.has(each)]
        if len(found) == 1:
            return found[0].destination
        try:
            return required_destination(given)
        except IllegalStateException as error:
            raise IllegalStateException(f"The reply_to of the handler {self.name}: {error}") from None

    def resolve_handlers(self) -> None:
        """Make sure that the destinations are known for which its options name handlers.

        Raises:
            IllegalStateException: The router of one of them is included in no application, or under several prefixes.
        """
        # Else the first reply, or the first dead letter, would fail, and with it the handler's work.
        _ = self.reply_destination
        if self.redelivery is not None:
            try:
                dead_letter_queue_of(self.redelivery)
            except IllegalStateException as error:
                raise IllegalStateException(f"The dead_letter_queue of the handler {self.name}: {error}") from None

    def verdict(self, error: BaseException) -> BaseException:
        """Return the error that the session gets for a message's failure."""
        is_rejected = isinstance(error, self.no_retry_for) and not isinstance(error, Reject | RetryAfter)
        return RejectBecause(error) if is_rejected else error

    def warn_of_lost_reply(self) -> None:
        """Warn, once, that the handler's return value is lost."""
        if self.name not in _lose_replies:
            _lose_replies.add(self.name)
            logger.warning(
                "%s returned a value, which was dropped: the message has no JMSReplyTo. To store such values, register "
                "the handler with keep_result=…; to send them, with reply_to=…; or return None.",
                self,
            )

    def checked_message(self, body: object) -> Message:
        """Return the message that carries a body, once the handler's parameters have been read from it.

        It is the message of `jmsql.send`. Where that cannot hold the body, or would hold a text that the handler reads
        as JSON, it is JSON.

        Raises:
            MessageFormatException: The handler would refuse it, or it cannot be encoded.
        """
        try:
            message = as_jms_message(message_of(body))
        except MessageFormatException:
            if self.body_schema is None:
                raise
            return self._checked(json_message(self.body_schema, body))
        try:
            return self._checked(message)
        except MessageFormatException:
            if self.body_schema is None or not isinstance(body, str):
                raise
        return self._checked(json_message(self.body_schema, body))

    def _checked(self, message: Message) -> Message:
        self._check(as_received(message, self.destination))
        return message

    def check_schedule(self, schedule: Schedule) -> None:
        """Make sure that the handler can read the messages of a schedule.

        Raises:
            TypeError: Each tick would become a dead letter.
        """
        try:
            self._check(as_scheduled(schedule))
        except MessageFormatException as error:
            raise TypeError(
                f"The schedule {schedule.name!r} sends a body that {self.name} cannot read: {error}"
            ) from error

    def _check(self, received: Message) -> None:
        for parameter in self.parameters:
            if parameter.reads_message and parameter.provided_as is None:
                parameter.check(received)

    @functools.cached_property
    def is_surrounded(self) -> bool:
        """True if context managers surround each call of the handler."""
        return bool(self.arounds) or any(parameter.is_entered for parameter in self.parameters)

    @functools.cached_property
    def body_schema(self) -> Schema | None:
        """The schema of the messages' bodies; None: they are read as the messages have them, or not at all."""
        return None if self.body is None else schema_of_body(self.body)

    def complete_body(self) -> None:
        """Read annotations of the body that name classes which were defined after the handler.

        Raises:
            TypeError: One of them is not defined: the handler could read none of its messages.
        """
        try:
            schema = self.body_schema
        except TypeError:  # of a class with a codec of its own
            return
        if schema is not None:
            try:
                schema.complete()
            except TypeError as error:
                raise TypeError(f"The handler {self.name} cannot read its messages. {error}") from error

    @property
    def body(self) -> Any:
        """The annotation that describes the messages' bodies; None: the handler asks for none."""
        return next((each.body for each in self.parameters if each.body is not None), None)

    @property
    def is_async(self) -> bool:
        """True if the handler is a coroutine function."""
        return is_coroutine_function(self.handler)

    @property
    def shares_transaction(self) -> bool:
        """True if the handler can do something in the transaction in which its message is received."""
        return self.reaches_transaction or any(parameter.shares_transaction for parameter in self.parameters)

    def facts(self, concurrency: int) -> dict[str, object]:
        """Return its fields in the log of a worker's start.

        Args:
            concurrency: How many messages it handles at a time, unless it says so itself.
        """
        return {
            "listener": self.name,
            "destination": str(self.destination),
            "selector": self.selector or None,
            "subscription": self.subscription,
            "durable": None if self.subscription is None else self.durable,
            "concurrency": self.concurrency or concurrency,
            "transacted": self.transacted,
            "timeout": self.timeout,
            "chunk": self.chunk,
            "rate": None if self.rate is None else str(self.rate),
            "at_most": None if self.at_most is None else str(self.at_most),
        }

    def __str__(self) -> str:
        return f"{self.name} on {self.destination}"


@set_module("jmsql.worker")
class HandlerBatch(Protocol):
    """The batch of the message that a handler handles: a [`Batch`][jmsql.Batch].

    In a coroutine function it is a [`Batch` of asyncio][jmsql.asyncio.Batch], whose calls are awaited.

    Attributes:
        name: Its name in the log: "batch", and its number.
    """

    name: str

    @property
    def id(self) -> int:
        """Its number."""

    def send(self, destination: AnyDestination, body: object, **options: Unpack[SendOptions]) -> Any:
        """Send a message that belongs to the batch, in the transaction of the handler; see [`Batch`][jmsql.Batch]."""

    def send_many(self, destination: AnyDestination, bodies: Iterable[object], **options: Unpack[SendOptions]) -> Any:
        """Send many messages that belong to the batch, a hundred in one exchange; see [`Batch`][jmsql.Batch]."""

    def progress(self) -> Any:
        """Return its counts, a [`BatchProgress`][jmsql.BatchProgress]."""


@set_module("jmsql.worker")
class HandlerCall(Call):
    """A call of a handler, as `around` of an [`Application`][jmsql.worker.Application] gets it.

    Attributes:
        listener: The listener whose handler is called: its `name`, `destination`, `selector`, `transacted`, `timeout`
            and so on, as `Application.listener` was given them, and `is_async`. Its `str` is its name in the log.
        message: The message; of a chunk the first one.
        messages: The messages of the call: a chunk, or else the one message.
        result: The value that the handler has returned; None before, and if it has raised.
    """

    def __init__(self, listener: Listener, message: Message) -> None:
        self.listener = listener
        self.message = message
        self.messages: Sequence[Message] = [message]
        self.result: object = None
        self._is_cancelled = False
        """True once the message is known to be cancelled, or its claim lost. Written by the client's control thread,
        and by the handler's own thread or task if its claim is gone as it commits (`_hear_of_cancellation`)."""
        self._looks = False
        """True if the handler has asked `is_cancelled`."""
        self._batch: HandlerBatch | None = None
        self._knows_batch = False
        """True once the handler has asked for the batch."""
        self.deadline: Deadline | None = None
        self.provided: dict[type, object] = {}
        self.callbacks: list[Callable[[], object]] = []
        self.failure_callbacks: list[Callable[[BaseException], object]] = []
        """Called with the error after each failed attempt, once its release was tried; their own errors are logged."""

    @property
    def message_id(self) -> str | None:
        """The JMSMessageID."""
        return self.message.jms_message_id

    @property
    def delivery_count(self) -> int | None:
        """How often the message has been delivered, with this time: JMSXDeliveryCount."""
        return self.message.delivery_count

    @property
    def is_cancelled(self) -> bool:
        """True once an administrator has cancelled the message, or its claim is lost: no work will be committed.

        A plain function that asks in its loop can end in order. One that never asks gets a `CancelledError` inside.
        """
        self._looks = True
        return self._is_cancelled

    @property
    def batch(self) -> HandlerBatch | None:
        """The batch that the message belongs to, to which the handler adds messages; None: it has none.

        Its own message has not ended yet, so that the batch does not end before those that are added.

        Raises:
            IllegalStateException: The messages of a chunk belong to several batches.
        """
        if not self._knows_batch:
            numbers = {each.get_object_property(BATCH) for each in self.messages}
            if len(numbers) > 1:
                raise IllegalStateException(
                    f"{self.listener}: the messages of the chunk belong to several batches. Ask for that of each "
                    "message: jmsql.batch_of(session, message)."
                )
            self._batch = None if numbers == {None} else self._own_batch()
            self._knows_batch = True
        return self._batch

    def _own_batch(self) -> HandlerBatch | None:
        raise NotImplementedError

    def provide(self, kind: type, value: object) -> None:
        """Give a value to the handler's parameters that are annotated with a class.

        It takes precedence over any other value of the parameter. A class that no parameter asks for does no harm.

        Args:
            kind: The class, which may be an abstract one or a protocol.
            value: The value, which is not checked.

        Raises:
            TypeError: That is no class; or the application has `provides`, which does not name it; or the value is a
                coroutine, which nothing has awaited.
        """
        if not isinstance(kind, type):
            raise TypeError(f"Expected a class for provide(), got {kind!r}.")
        if self.listener.provides is not None and kind not in self.listener.provides:
            raise TypeError(
                f"around=… provides {kind.__name__}, and provides=… of the application does not name it: add it there."
            )
        if inspect.iscoroutine(value):
            value.close()
            raise TypeError(f"around=… provides a coroutine for {kind.__name__}. Await it, and provide its result.")
        self.provided[kind] = value

    def after_commit(self, function: Callable[[], object]) -> None:
        """Have a function called once the message is handled: after the commit, or its acknowledgement.

        It is not called if anything fails. An error of its own is logged, since the message is handled by then.

        Args:
            function: The function, which takes no arguments. For a coroutine function it may be one, too.

        Raises:
            TypeError: The handler is a plain function, and this one a coroutine function; or it is a generator
                function, whose calls run nothing.
        """
        refuse_generator_function(function)
        if not self.listener.is_async:
            refuse_coroutine_function(function)
        self.callbacks.append(function)

    def progress(self, fraction: float | None, note: str = "") -> None:
        """Report how far the handler is, for the view `jmsql.progress`, `jmsql top` and the console.

        It waits for nothing, and may be called often and from any thread: once a second at most, the last report of
        each message is written, outside of its transaction. It is gone when the call has ended, however that ends. A
        chunk shows as its first message.

        Args:
            fraction: The part that is done, from 0 to 1; None: unknown.
            note: A few words; of a longer text the first 200 characters count.

        Raises:
            TypeError: The fraction is no number, or the note no text.
            ValueError: The fraction is less than 0, more than 1, or NaN.
        """
        if fraction is not None:
            if isinstance(fraction, bool) or not isinstance(fraction, int | float):
                raise TypeError(f"Expected a number from 0 to 1, or None, for progress(), got {fraction!r}.")
            if not 0 <= fraction <= 1:  # NaN is not, either
                raise ValueError(f"Expected a number from 0 to 1 for progress(), got {fraction!r}.")
        if not isinstance(note, str):
            raise TypeError(f"Expected a text as the note of progress(), got {note!r}.")
        self._report_progress(Progress(fraction, note[:_LONGEST_NOTE]))

    def _report_progress(self, progress: Progress) -> None:
        raise NotImplementedError

    def keep_alive(self) -> None:
        """Restart the handler's time-out: from now on, it has the `timeout` of its listener once more.

        May be called from any thread. Without a time-out it does nothing. The `visibility_timeout` does not need it,
        since the process extends its claims by itself while their handlers run.

        Raises:
            TimeoutError: It is too late: the handler has taken longer than its time-out.
        """
        if self.deadline is not None:
            self.deadline.restart()

    @property
    def database(self) -> sqlalchemy.Connection:
        """The SQLAlchemy connection of the message's transaction, for a plain function.

        Raises:
            IllegalStateException: The handler is a coroutine function, or is not transacted.
        """
        if self.listener.is_async:
            raise IllegalStateException(f"{self.listener} is a coroutine function: await call.get_database().")
        self._require_transaction()
        connection: sqlalchemy.Connection = self.connection()
        return connection

    async def get_database(self) -> AsyncConnection:
        """Return the SQLAlchemy connection of the message's transaction, for a coroutine function.

        Raises:
            IllegalStateException: The handler is a plain function, or is not transacted.
        """
        if not self.listener.is_async:
            raise IllegalStateException(f"{self.listener} is a plain function: use call.database.")
        self._require_transaction()
        connection: AsyncConnection = await self.connection()
        return connection

    def _require_transaction(self) -> None:
        if not self.listener.transacted:
            raise IllegalStateException(f"{self.listener} is not transacted: its message has no transaction.")

    def connection(self) -> Any:
        """Return the connection of the message's transaction, or under asyncio an awaitable of it."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.listener}, {self.message_id}>"


Surrounding: TypeAlias = AbstractContextManager[object] | AbstractAsyncContextManager[object]
Around: TypeAlias = Callable[[HandlerCall], Surrounding]
"""Returns a context manager around a call, inside the message's transaction: if it raises, the message fails."""


def is_asynchronous(around: Around) -> bool:
    """Tell whether a context manager can surround coroutine functions alone, as far as that can be known.

    Raises:
        TypeError: It returns no context manager.
    """
    function: Any = around
    while isinstance(function, functools.partial):
        function = function.func
    if not callable(function):
        raise TypeError(f"around=… is called with each call of a handler, and {around!r} cannot be called.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        kind = "asynccontextmanager" if inspect.isasyncgenfunction(function) else "contextmanager"
        raise TypeError(f"around=… returns a context manager: decorate {function.__qualname__} with contextlib.{kind}.")
    if inspect.iscoroutinefunction(function):
        raise TypeError(
            f"around=… returns a context manager, and {function.__qualname__} is a coroutine function: have it yield "
            "once, and decorate it with contextlib.asynccontextmanager."
        )
    if isinstance(function, type):
        return hasattr(function, "__aenter__") and not hasattr(function, "__enter__")
    return inspect.isasyncgenfunction(inspect.unwrap(function))


class Handling(Protocol):
    """A call of a handler that has not ended yet."""

    started: float
    """When, on the monotonic clock."""
    deadline: Deadline | None

    @property
    def message_id(self) -> str | None:
        """The message's id."""


def way_out(error: ChangeRefusedException, listener: Listener) -> str:
    """Return advice for a new release whose listener changes the selector of a durable subscription."""
    if error.is_active:
        return (
            "That may be a worker of another release: end it before this one starts (what is published in between is "
            "collected), or let this release have a subscription of another name."
        )
    keep = (
        "--on-subscription-change keep has the new selector decide from now on, and delivers what waits, whatever it "
        "is; "
        if error.same_topic
        else ""
    )
    return (
        f"Nothing was changed. {keep}--on-subscription-change drop deletes what waits; or give the subscription "
        f"another name, and end this one with `jmsql unsubscribe {listener.subscription}`."
    )
