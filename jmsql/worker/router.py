"""Listeners of a part of an application."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, Unpack

from jmsql.client._sync.administration.schedule_definition import make_schedule
from jmsql.exceptions import IllegalStateException, InvalidDestinationException
from jmsql.public_names import set_module
from jmsql.store.schedules.definition import Schedule
from jmsql.values.destinations import AnyDestination, Destination, HasDestination, Queue, Topic, required_destination
from jmsql.values.duration import seconds
from jmsql.values.policies import RedeliveryPolicy
from jmsql.values.rates import AtMost, Rate
from jmsql.values.ticks import Missed
from jmsql.worker.handlers.dead_letters import DeadLetterHook
from jmsql.worker.handlers.function import ListenerFunction, imported_name_of, name_of
from jmsql.worker.handlers.listener import Listener
from jmsql.worker.handlers.options import (
    ListenerOptions,
    PeriodicOptions,
    chunk_size,
    claim_limit,
    exception_classes,
    most_at_a_time,
    redelivery_policy,
    result_keeping,
    start_rate,
    time_limit,
)

# `include` hands on the listeners that a router has, and each that it gets later: `_register` calls the parents. So
# neither the order of imports nor of `include` matters, unlike in FastAPI, which copies those that are there at the
# time (decision 74).


P = ParamSpec("P")
R = TypeVar("R")


class _Declared(NamedTuple):
    """A schedule as `Router.schedule` was given it."""

    schedule: Schedule
    handler: ListenerFunction[..., object] | None
    """The handler of its messages; None: it names a destination."""


@set_module("jmsql.worker")
class Router:
    """Listeners of a part of an application, which includes it: `app.include(router)`.

    A module with a router of its own needs not import the application. The application's `around` functions and
    database serve it, too.
    """

    def __init__(self) -> None:
        self._functions: list[tuple[ListenerFunction[..., object], str]] = []
        self._schedules: list[tuple[_Declared, str]] = []
        self._parents: list[tuple[Router, str]] = []

    def listener(
        self,
        destination: str | Destination,
        *,
        selector: str | None = None,
        transacted: bool = True,
        concurrency: int | None = None,
        subscription: str | None = None,
        durable: bool = True,
        redelivery: RedeliveryPolicy | None = None,
        visibility_timeout: float | timedelta | None = None,
        no_retry_for: type[Exception] | Iterable[type[Exception]] = (),
        timeout: float | timedelta | None = None,
        reply_to: AnyDestination | None = None,
        on_dead_letter: DeadLetterHook | None = None,
        keep_result: float | timedelta | None = None,
        chunk: int | None = None,
        chunk_wait: float | timedelta = 0.2,
        rate: Rate | None = None,
        at_most: int | AtMost | None = None,
    ) -> Callable[[Callable[P, R]], ListenerFunction[P, R]]:
        """Register a handler: a function, or a coroutine function, which is called with one message at a time.

        Its parameters choose its values; see [the worker](/worker.md#what-a-handler-is-given).

        Args:
            destination: A queue or a topic; a string is a queue's name, ``queue://NAME`` or ``topic://NAME``.
            selector: A message selector. Default: all messages.
            transacted: Whether receiving the message, the statements of its `database`, and the messages that its
                `session` or `context` sends, are one transaction. If not, the message is acknowledged when the handler
                returns, and no transaction is open while it runs.
            concurrency: How many of its messages each process handles at a time; None: as many as the worker is told.
            subscription: The name of the subscription to the topic, which all workers share.
            durable: Whether that subscription collects messages while no worker runs.
            redelivery: The policy for messages with which the handler fails; None: the destination's, or else they come
                again after 1 s, 2 s, 4 s and so on, up to four hours, and move to the dead-letter queue after 20
                deliveries.
            visibility_timeout: After how many seconds (or a `timedelta`) without a heartbeat of its process a message
                goes to another handler, if it is not transacted; None: the destination's, or else only when the process
                has ended.
            no_retry_for: Exceptions with which a message fails for good: it moves to the dead-letter queue at once, as
                if the handler had raised `Reject` from them.
            timeout: After how many seconds (or a `timedelta`) the handler is ended, and its message has failed with a
                `TimeoutError`: see [time-outs](/handlers.md#time-outs). None: it may take any time.
            reply_to: Where the reply goes if the message has no JMSReplyTo: a queue, the name of one, a handler, or
                a topic; None: nowhere. See [replies](/handlers.md#replies).
            on_dead_letter: Called with each message that the handler has failed with for good, and the error, once it
                has moved to the dead-letter queue; a function, or for a coroutine function perhaps one, too. See
                [dead letters](/handlers.md#when-a-message-becomes-a-dead-letter).
            keep_result: For how many seconds (or a `timedelta`) the value that the handler returns is kept, for
                [`jmsql.result`][jmsql.result], and so is the end of a message that fails or expires; None: not at all.
                See [results and status](/results.md).
            chunk: The handler is called with a list of up to so many messages or bodies, from 1 to 1,000, in one
                transaction: see [chunks](/chunks.md). None: with one message.
            chunk_wait: How many seconds (or a `timedelta`) after its first message a chunk waits for more; 0: it does
                not wait.
            rate: How many of its messages start in a time, over all workers, such as ``Rate(5, per=1.0)``; None: any
                number. See [limits](/limits.md).
            at_most: How many of its messages are handled at a time, over all workers: a number, or
                ``AtMost(3, by="tenant")`` for each value of a property; None: any number. See [limits](/limits.md).

        Returns:
            A decorator that registers the handler, and returns it as a
            [`ListenerFunction`][jmsql.worker.ListenerFunction]: it is called as before, and has `send`.

        Raises:
            InvalidDestinationException: That is not a destination.
            InvalidSelectorException: The selector has an error; the message shows where.
            TypeError: The handler asks for something that it cannot be given; `no_retry_for` names no exception;
                `on_dead_letter` cannot be called there; `chunk` or `at_most` is no number, `rate` no `Rate`, or
                `redelivery` no `RedeliveryPolicy`.
            ValueError: A topic needs a subscription, a queue has none; the concurrency is less than 1; the visibility
                timeout is less than a second, or for a handler that is transacted; the timeout is 0, or negative;
                results are to be kept for 0 s, of a topic's messages or of chunks; the chunk has no message, or more
                than 1,000, or its handler is not transacted; or `at_most` is less than 1, or for chunks.
        """
        if callable(destination):
            raise InvalidDestinationException(
                f"The decorator of {name_of(destination)} names no destination: write @app.listener('orders')."
            )
        final = exception_classes(no_retry_for)
        answers = None if reply_to is None else _reply_target(reply_to)
        found = required_destination(destination)

        def register(handler: Callable[P, R]) -> ListenerFunction[P, R]:
            function = handler.function if isinstance(handler, ListenerFunction) else handler
            name = name_of(function)
            options = ListenerOptions(
                selector=selector,
                transacted=transacted,
                concurrency=concurrency,
                subscription=subscription,
                durable=durable,
                redelivery=redelivery_policy(redelivery),
                visibility_timeout=claim_limit(name, visibility_timeout, transacted=transacted),
                no_retry_for=final,
                timeout=time_limit(name, timeout),
                reply_to=answers,
                on_dead_letter=on_dead_letter,
                keep_result=result_keeping(name, found, keep_result),
                chunk=chunk_size(name, chunk, transacted=transacted),
                chunk_wait=seconds(chunk_wait, "chunk_wait"),
                rate=start_rate(rate),
                at_most=most_at_a_time(at_most),
            )
            options.check(name, found)
            registered = ListenerFunction(function, found, options)
            self._register([(registered, "")])
            return registered

        return register

    def schedule(
        self,
        name: str,
        when: str | timedelta,
        destination: str | Destination | ListenerFunction[..., object],
        body: object = None,
        *,
        time_zone: str = "UTC",
        missed: Missed | Literal["once", "skip", "all"] = Missed.ONCE,
        overlap: bool = True,
        priority: int = 4,
        time_to_live: float | timedelta = 0.0,
        group: str | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """Send a message at each tick of a schedule: see [schedules](/schedules.md).

        A worker makes the schedule when it starts, or changes the one of that name; `Administration.pause_schedule`
        pauses it. A release without it leaves it there: `Administration.delete_schedule` ends it.

        Args:
            name: Its name, which no other schedule of the database has. The prefix of `include` begins it.
            when: Cron's text, five fields or six with the seconds first, or ``@daily`` and the like; or an interval of
                a second or more, as a `timedelta`.
            destination: Where the messages go: a queue or topic, which the prefix of `include` begins, or a handler.
            body: Their body, as for [`jmsql.send`][jmsql.send].
            time_zone: The zone of cron's text, such as ``Europe/Berlin``.
            missed: The ticks that are sent late, after a time in which no client ran.
            overlap: False leaves out a tick while the last message is in its queue, waiting or being handled.
            priority: 0 (lowest) to 9.
            time_to_live: Seconds, or a `timedelta`, after which each message expires; 0: never.
            group: The messages' group, their property `JMSXGroupID`.
            properties: Properties of the messages.

        Raises:
            ValueError: The name, the times, the zone or another value cannot be such; or there is a schedule of that
                name.
            TypeError: A value is of another type, or the function is not registered.
            InvalidDestinationException: It is not a destination.
            MessageFormatException: The body or a property cannot be encoded.
        """
        handler = destination if isinstance(destination, ListenerFunction) else None
        if isinstance(destination, ListenerFunction):
            destination = destination.declared_destination
        elif callable(destination):
            raise TypeError(f"{name_of(destination)} is no handler: register it with @app.listener.")
        schedule = make_schedule(
            name,
            when,
            destination,
            body,
            time_zone=time_zone,
            missed=missed,
            overlap=overlap,
            priority=priority,
            time_to_live=time_to_live,
            group=group,
            properties=properties,
        )
        self._add([(_Declared(schedule, handler), "")])

    def periodic(
        self,
        when: str | timedelta,
        *,
        name: str | None = None,
        body: object = None,
        time_zone: str = "UTC",
        missed: Missed | Literal["once", "skip", "all"] = Missed.ONCE,
        overlap: bool = True,
        **options: Unpack[PeriodicOptions],
    ) -> Callable[[Callable[P, R]], ListenerFunction[P, R]]:
        """Call a handler at each tick of a schedule; see [schedules](/schedules.md).

        A function that is not registered becomes the listener of a queue by the schedule's name, with the options given
        here. Above ``@app.listener`` the messages go to the queue of that, with its retries, time-out and results.

        Args:
            when: Cron's text, or an interval, as for `schedule`.
            name: The name of the schedule; None: the function's, with its module.
            body: The body of the messages; None: they have none.
            time_zone: The zone of cron's text, such as ``Europe/Berlin``.
            missed: The ticks that are sent late, after a time in which no client ran.
            overlap: False leaves out a tick while the last message is in its queue, waiting or being handled.
            options: Options of `listener`, such as ``redelivery`` and ``keep_result``; none for topics, and no
                ``selector``.

        Returns:
            A decorator that returns the handler, like `listener`.

        Raises:
            ValueError: As for `schedule` and `listener`.
            TypeError: As for `schedule` and `listener`; or the handler has its listener already, and `options` are
                given; or `listener` has no such option for a queue of ticks.
        """
        if unknown := options.keys() - PeriodicOptions.__annotations__.keys():
            raise TypeError(
                f"periodic() takes no {' and no '.join(f'{each}=…' for each in sorted(unknown))}. Of a listener's "
                f"options it takes {', '.join(sorted(PeriodicOptions.__annotations__))}; for others put it above "
                "@app.listener."
            )

        def register(handler: Callable[P, R]) -> ListenerFunction[P, R]:
            named = imported_name_of(handler) if name is None else name
            if not isinstance(handler, ListenerFunction):
                registered = self.listener(Queue(named), **options)(handler)
            elif options:
                raise TypeError(
                    f"{handler.name} has its listener already: give {', '.join(f'{each}=…' for each in options)} to "
                    "@app.listener, below @app.periodic."
                )
            else:
                registered = handler
            self.schedule(named, when, registered, body, time_zone=time_zone, missed=missed, overlap=overlap)
            return registered

        return register

    @property
    def schedules(self) -> list[Schedule]:
        """The schedules, with the prefixes that they have here.

        Raises:
            IllegalStateException: A schedule is for a handler whose router no application includes, or several do under
                other prefixes.
        """
        return [
            replace(each.schedule, name=prefix + each.schedule.name, destination=self._destination_of(each, prefix))
            for each, prefix in self._schedules
        ]

    def _destination_of(self, declared: _Declared, prefix: str) -> Queue | Topic:
        """Return a schedule's destination: for a handler the one that it has here, perhaps by another prefix."""
        handler = declared.handler
        if handler is not None:
            prefixes = [each for function, each in self._functions if function is handler]
            # `periodic` makes the schedule where the handler is, so that both have the prefix of each `include`. A
            # handler of another router has a prefix of its own: under the schedule's, no handler would get the ticks.
            if prefix not in prefixes:
                if len(prefixes) != 1:
                    return _destination_elsewhere(declared.schedule, handler)
                prefix = prefixes[0]
        destination = declared.schedule.destination
        return type(destination)(prefix + destination.name)

    def include(self, router: Router, prefix: str = "") -> None:
        """Add the listeners of a router, also those that it gets later.

        Args:
            router: The router.
            prefix: Begins the names of its queues and topics here: with ``"shop."`` its queue ``orders`` is
                ``shop.orders``. The queues of `reply_to`, and subscriptions, keep their names.

        Raises:
            TypeError: It is no router, or an application; or a handler asks for something that it cannot be given.
            ValueError: The router is included here already, or includes this one.
        """
        if not isinstance(router, Router) or router.is_application:
            raise TypeError(f"Expected a jmsql.worker.Router for include(), got {router!r}.")
        if any(parent is self for parent, _ in router._parents):
            raise ValueError(f"{router!r} is included here already.")
        if router._is_in(self):
            raise ValueError(f"{router!r} cannot include itself.")
        self._register_with(self, prefix, router._functions)
        self._add_to(self, prefix, router._schedules)
        router._parents.append((self, prefix))

    def has(self, listener: Listener) -> bool:
        """Return True if a listener of an application is one of these."""
        return any(function.has(listener) for function, _ in self._functions)

    is_application = False
    """True if messages of the listeners are handled without another one that includes them."""

    def _register(self, functions: Sequence[tuple[ListenerFunction[..., object], str]]) -> None:
        """Add listeners, each with the prefix that it has here, to this router and those that include it."""
        for parent, prefix in self._parents:
            self._register_with(parent, prefix, functions)
        self._functions += functions

    def _add(self, schedules: Sequence[tuple[_Declared, str]]) -> None:
        """Add schedules, each with the prefix that it has here, to this router and those that include it.

        Raises:
            ValueError: One of them has a schedule of that name.
        """
        names = {prefix + each.schedule.name for each, prefix in self._schedules}
        for each, prefix in schedules:
            if prefix + each.schedule.name in names:
                raise ValueError(f"There is a schedule {prefix + each.schedule.name!r} already.")
        for parent, prefix in self._parents:
            self._add_to(parent, prefix, schedules)
        self._schedules += schedules

    @staticmethod
    def _add_to(parent: Router, prefix: str, schedules: Sequence[tuple[_Declared, str]]) -> None:
        parent._add([(declared, prefix + inner) for declared, inner in schedules])

    @staticmethod
    def _register_with(
        parent: Router, prefix: str, functions: Sequence[tuple[ListenerFunction[..., object], str]]
    ) -> None:
        parent._register([(function, prefix + inner) for function, inner in functions])

    def _is_in(self, router: Router) -> bool:
        """Return True if this is a router or one of those that include it."""
        return router is self or any(self._is_in(parent) for parent, _ in router._parents)

    def __repr__(self) -> str:
        names = ", ".join(f"{prefix}{function.declared_destination.name}" for function, prefix in self._functions)
        return f"<{type(self).__name__} {names or 'without listeners'}>"


def _destination_elsewhere(schedule: Schedule, handler: ListenerFunction[..., object]) -> Queue | Topic:
    """Return the destination of a handler that another application has."""
    try:
        return handler.destination
    except IllegalStateException as error:
        raise IllegalStateException(f"The schedule {schedule.name!r}: {error}") from None


def _reply_target(given: AnyDestination) -> Queue | Topic | HasDestination:
    """Return a destination; a handler as it is, whose destination may be known later, as its router is included."""
    return given if isinstance(given, ListenerFunction) else required_destination(given)
