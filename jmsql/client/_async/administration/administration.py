"""Administration from Python: destinations, messages, subscriptions, access, administered objects and history."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack

from jmsql.client._async.administration.schedule_definition import make_schedule
from jmsql.client._async.link.opening import ConnectionOnDemand, default_url, open_runner
from jmsql.concurrency.tasks import call, in_thread, sleep
from jmsql.exceptions import IllegalStateException
from jmsql.public_names import set_module
from jmsql.selectors import Selector
from jmsql.store.administration import batches, browsing, inspection, overview, searching
from jmsql.store.administration.activity import LAST, Activity, activity_days, every_activity, set_activity_days
from jmsql.store.administration.batches import BatchSummary
from jmsql.store.administration.cancelling import Cancellation, cancel, outcome_of_all
from jmsql.store.administration.dead_letters import (
    DeadLetter,
    Retry,
    dead_letter_queues,
    first_dead_letters,
    retry,
)
from jmsql.store.administration.delivering import deliver, deliver_chosen
from jmsql.store.administration.emptying import move, move_at, purge, purge_at, retry_at
from jmsql.store.administration.inspection import (
    BrowsedMessage,
    ClientSummary,
    FoundMessage,
    QueueSummary,
    SubscriptionSummary,
)
from jmsql.store.administration.limits import LimitNow, limits_now
from jmsql.store.administration.now import ConsumerNow, Rates, consumers_now
from jmsql.store.administration.overview import BoundedCount, DestinationOverview, OverviewOrder
from jmsql.store.administration.past_rates import DestinationRate, keep_rates, rates, rates_days
from jmsql.store.administration.places import Place, require_place
from jmsql.store.administration.results import STATES, ResultSummary, results
from jmsql.store.administration.searching import Position, SearchResult
from jmsql.store.connections.database_url import parse_url, without_secrets
from jmsql.store.destinations import access, destination_settings
from jmsql.store.destinations.access import AccessSummary, Action
from jmsql.store.destinations.destination_settings import DestinationSettings, DestinationSummary
from jmsql.store.destinations.lookup import automatic_creation, set_automatic_creation
from jmsql.store.destinations.subscriptions import SubscriptionDefinition, create_durable, unsubscribe
from jmsql.store.saying import Saying, in_steps, saying
from jmsql.store.schedules import changing
from jmsql.store.schedules.definition import Schedule, ScheduleSummary
from jmsql.store.schedules.definition import check_name as check_schedule_name
from jmsql.store.schema.version import DEFAULT_SCHEMA, check_name
from jmsql.store.statement import Items, Query, Steps, in_transaction
from jmsql.timings import Timings, complete
from jmsql.values.clock import monotonic
from jmsql.values.destinations import (
    AnyDestination,
    AnyQueue,
    AnyTopic,
    Destination,
    Queue,
    Topic,
    require_destination,
    require_queue,
    require_topic,
)
from jmsql.values.ticks import Missed

# Not imported for a command's lists: connections take five times as long to import as everything else here.
if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from jmsql.client._async.administration.administered_objects import AdministeredObject, AdministeredObjects
    from jmsql.client._async.administration.history import History
    from jmsql.client._async.connection.factory import ConnectionFactory
    from jmsql.store.wire._async.runner import PsycopgRunner

T = TypeVar("T")

# This class checks arguments and chooses statements. The statements are in `jmsql.store.administration`, which the
# command line and the console run, too.
#
# - A change runs by `_change`, which has the activity name its author. A long change comes in steps, by `_complete`.
#   Each step commits, so locks are held for a part at a time, and a failure leaves the steps before it done.
# - Objects are named, or given by the number of a queue or subscription that `overview` returns. A place is a message's
#   position in its queue; an action leaves out messages that are gone.
# - Connections are imported where they are used: a command that lists queues needs none, and would spend most of its
#   time on the import.


_MOST_DAYS = 36_500
_MOST_DAYS_OF_RATES = 366
_CANCEL_PATIENCE = 1.0
"""Seconds for which a transaction is waited for that has locked a message: it may be at its commit."""
_CANCEL_PAUSE = 0.02
"""Seconds until it is tried again."""


@set_module("jmsql.asyncio.admin")
class Administration:
    """Inspects and changes destinations and their messages. Each change commits by itself. A context manager.

    It connects when it is entered, else at its first use. A destination is given as an object, or as text: a queue's
    name, ``queue://NAME`` or ``topic://NAME``. Where messages are looked at, moved or purged, the `number` of a
    [`DestinationOverview`][jmsql.admin.DestinationOverview] stands for its queue or subscription.

    Args:
        database: A URL, a connection factory, or a SQLAlchemy engine that uses psycopg. None: the URL of the
            environment variable ``JMSQL_URL``, else the embedded server.
        schema: The PostgreSQL schema of jmsql's tables; None: the factory's, else ``jmsql``.
        actor: The person whom `activity` names for this object's actions, beside the connected role, in at most 200
            characters.

    Raises:
        JMSException: The URL cannot be read, or there can be no schema of that name.
        TypeError: The database is none of these.
    """

    def __init__(
        self,
        database: str | ConnectionFactory | AsyncEngine | None = None,
        *,
        schema: str | None = None,
        actor: str | None = None,
    ) -> None:
        timings = Timings()
        if database is not None and not isinstance(database, str):
            from jmsql.client._async.connection.factory import ConnectionFactory

            if isinstance(database, ConnectionFactory):
                timings = database.timings
                schema = database.schema if schema is None else schema
                database = database.url
        self._where = _shown(database)
        self._database = database
        self._schema = DEFAULT_SCHEMA if schema is None else schema
        check_name(self._schema)
        self._timings = complete(timings)
        self._link = ConnectionOnDemand(self._open_runner)
        self._memory = overview.Memory()
        self._saying = Saying(actor)
        self._rates = Rates()

    async def _open_runner(self) -> PsycopgRunner:
        database = await in_thread(default_url, self._schema) if self._database is None else self._database
        return await open_runner(database, self._schema, self._timings)

    async def connect(self) -> None:
        """Connect, unless it is connected.

        Raises:
            IllegalStateException: It is closed.
            JMSException: The database cannot be reached, or the schema is missing or of another version.
        """
        await self._link.connect()

    # Destinations

    async def create(self, destination: AnyDestination, **settings: Unpack[DestinationSettings]) -> bool:
        """Make a queue or topic if it is not there, and change the settings that are given.

        Returns:
            Whether it was made.

        Raises:
            InvalidDestinationException: It is not a destination, or a queue that a setting names is not there.
            JMSException: A setting cannot have the value.
        """
        return await self._change(destination_settings.create(require_destination(destination), settings))

    async def create_queue(self, name: str, **settings: Unpack[DestinationSettings]) -> Queue:
        """Make a queue if it is not there, change the settings that are given, and return it; raises as `create`."""
        queue = Queue(name)
        await self._change(destination_settings.create(queue, settings))
        return queue

    async def create_topic(self, name: str, **settings: Unpack[DestinationSettings]) -> Topic:
        """Make a topic if it is not there, change the settings that are given, and return it; raises as `create`."""
        topic = Topic(name)
        await self._change(destination_settings.create(topic, settings))
        return topic

    async def alter(self, destination: AnyDestination, **settings: Unpack[DestinationSettings]) -> None:
        """Change settings of a queue, or of a topic and all its subscriptions.

        Raises:
            InvalidDestinationException: There is no such destination, or no queue that a setting names.
            JMSException: A setting cannot have the value.
        """
        await self._change(destination_settings.alter(require_destination(destination), settings))

    async def reset(self, destination: AnyDestination, *settings: str) -> None:
        """Restore the defaults of settings, which are given by their names.

        Raises:
            InvalidDestinationException: There is no such destination.
            JMSException: There is no such setting.
        """
        await self._change(destination_settings.reset(require_destination(destination), settings))

    async def pause(self, destination: AnyDestination) -> None:
        """Stop the delivery of messages from a queue, or from all subscriptions of a topic; they still collect.

        No consumer gets a message any more, not even one that it has fetched and not delivered. Messages that were
        delivered can be acknowledged, committed or rolled back. Browsers see the messages, and they expire.

        Raises:
            InvalidDestinationException: There is no such destination.
        """
        await self.alter(destination, paused=True)

    async def resume(self, destination: AnyDestination) -> None:
        """Go on with the delivery of messages, and wake the consumers that wait for one.

        Raises:
            InvalidDestinationException: There is no such destination.
        """
        await self.alter(destination, paused=False)

    async def delete(self, destination: AnyDestination, *, force: bool = False) -> None:
        """Delete a queue with its messages, or a topic with its subscriptions and their messages.

        Args:
            destination: The queue or topic.
            force: Delete it also while clients receive from it. Their consumers then wait for one of the same name to
                be made. Messages that they have received and not acknowledged are deleted when they release them.

        Raises:
            InvalidDestinationException: There is no such destination.
            IllegalStateException: A client receives from it.
        """
        await self._change(destination_settings.delete(require_destination(destination), force=force))

    async def automatic_creation(self) -> bool:
        """Return whether the first use of a queue or topic makes it, by all clients. It does by default."""
        return await self._link.run(automatic_creation)

    async def set_automatic_creation(self, *, enabled: bool) -> None:
        """Say whether the first use of a queue or topic makes it, by all clients."""
        await self._change(set_automatic_creation(enabled=enabled))

    async def destinations(self) -> list[DestinationSummary]:
        """Return all destinations, with their settings: queues first, by name."""
        return await self._link.run(destination_settings.destinations)

    async def destination(self, destination: AnyDestination) -> DestinationSummary:
        """Return a destination, with its settings.

        Raises:
            InvalidDestinationException: There is no such destination.
        """
        return await self._link.run(destination_settings.destination_summary(require_destination(destination)))

    # Inspection

    async def overview(
        self,
        limit: int = 50,
        order: OverviewOrder | Literal["age", "depth", "busy", "name"] = OverviewOrder.age,
        *,
        count_limit: int | None = 1000,
        like: str | None = None,
        kind: Literal["queue", "subscription", "topic"] | None = None,
    ) -> list[DestinationOverview]:
        """Return the destinations that come first in an order, with how much waits in each, and how it moves.

        The cost does not grow with the number of messages: they are counted up to a limit, and few are read to find
        the first destinations. Rates are those since the overview before, by the same object. Temporary destinations
        are left out.

        Args:
            limit: How many destinations.
            order: Which come first: see [`OverviewOrder`][jmsql.admin.OverviewOrder].
            count_limit: Number up to which a destination's messages are counted. None counts all, which reads them.
            like: A pattern of SQL's LIKE for the name of the destination or subscription, such as ``orders.%``.
            kind: Only destinations of this kind; None: of all.

        Raises:
            ValueError: There is no such order or kind, a number is below 1, or the pattern cannot be one.
            TypeError: A number or the pattern is of another type.
        """
        _require_number("limit", limit, 1)
        if count_limit is not None:
            _require_number("count_limit", count_limit, 1)
        _require_one_of("order", order, list(OverviewOrder))
        if kind is not None:
            _require_one_of("kind", kind, ["queue", "subscription", "topic"])
        overview.require_pattern(like)
        return await self._link.run(
            overview.overview(limit, OverviewOrder(order), self._memory, count_limit=count_limit, like=like, kind=kind)
        )

    async def depth(self, queue: AnyQueue | int, limit: int = 1000) -> BoundedCount:
        """Count the messages of a queue to a limit, in any state, except delayed ones.

        Args:
            queue: The queue, or the number of a queue or subscription.
            limit: Number up to which they are counted.

        Raises:
            InvalidDestinationException: There is no such queue or subscription.
            JMSSecurityException: The role may not browse it.
            ValueError: The limit is below 0.
            TypeError: It is not an int.
        """
        _require_number("limit", limit, 0)
        return await self._link.run(overview.depth(_queue(queue), limit))

    async def queues(self) -> list[QueueSummary]:
        """Return all queues, by name, with the number of their messages. All messages are read for it."""
        return await self._link.run(inspection.queues)

    async def subscriptions(self) -> list[SubscriptionSummary]:
        """Return all subscriptions, by topic and name, with the number of their messages. All are read for it."""
        return await self._link.run(inspection.subscriptions)

    async def clients(self) -> list[ClientSummary]:
        """Return the connections of clients, the oldest first."""
        return await self._link.run(inspection.clients)

    async def limits(self, limit: int = 100) -> list[LimitNow]:
        """Return the limits of listeners and their use, limits that hold messages back first.

        Args:
            limit: The maximum number of limits.

        Raises:
            ValueError: The limit is below 0.
            TypeError: It is not an int.
        """
        _require_number("limit", limit, 0)
        return await self._link.run(limits_now(limit))

    async def now(self, limit: int = 100, *, connection_id: int | None = None) -> list[ConsumerNow]:
        """Return the clients' current work on queues and subscriptions, the slow ones first.

        First come those that hold a message for longest, then those that could receive one and have ended none for
        longest. Rates are those since the call before, of the same object. No statement reads more than 20,000 rows.

        Args:
            limit: How many at most.
            connection_id: The number of the client's connection; None: all.

        Raises:
            ValueError: The limit is below 1.
            TypeError: It is not an int.
        """
        _require_number("limit", limit, 1)
        if connection_id is not None:
            _require_number("connection_id", connection_id, 0)
        return self._rates.of(await self._link.run(consumers_now(limit, connection_id=connection_id)))

    async def count(self, queue: AnyQueue, selector: str | None = None) -> int:
        """Return the number of a queue's messages that match a selector, in any state.

        Raises:
            InvalidDestinationException: There is no such queue.
            InvalidSelectorException: The selector has an error; the message shows where.
        """
        return await self._link.run(inspection.count(_queue_name(queue), Selector.parse(selector)))

    def browse(
        self, queue: AnyQueue | int, selector: str | None = None, *, after: Place | None = None, limit: int = 100
    ) -> AsyncIterator[BrowsedMessage]:
        """Return messages of a queue in their order and in any state; delayed ones come last.

        They are read by their key: to go on behind the last message of a page costs as much as the first page, and none
        is missed or shown twice if others come and go meanwhile. Where a selector chooses few messages among many, all
        are read, 5,000 with a statement.

        Args:
            queue: The queue, or the number of a queue or subscription.
            selector: Which messages; None: all.
            after: Only messages behind this place: the `delivery.place` of a message that was browsed.
            limit: How many at most.

        Raises:
            InvalidDestinationException: There is no such queue.
            InvalidSelectorException: The selector has an error; the message shows where.
            JMSSecurityException: The role may not browse it.
            ValueError: No message can be at the place, or the limit is below 0.
            TypeError: They are not a place and an int.
        """
        _require_page(after, limit)
        return self._link.iterate(browsing.browse(_queue(queue), Selector.parse(selector), after, limit))

    def browse_subscription(
        self,
        name: str,
        selector: str | None = None,
        *,
        client_id: str | None = None,
        after: Place | None = None,
        limit: int = 100,
    ) -> AsyncIterator[BrowsedMessage]:
        """Return a durable subscription's messages, as `browse` does for a queue.

        Raises:
            InvalidDestinationException: There is no subscription of that name for the client identifier.
            InvalidSelectorException: The selector has an error; the message shows where.
            JMSSecurityException: The role may not browse its topic.
            ValueError: No message can be at the place, or the limit is below 0.
            TypeError: They are not a place and an int.
        """
        _require_page(after, limit)
        found = browsing.browse_subscription(name, client_id, Selector.parse(selector), after, limit)
        return self._link.iterate(found)

    async def at(self, queue: AnyQueue | int, place: Place) -> BrowsedMessage | None:
        """Return the message at a place, or None if it is not there any more.

        Args:
            queue: The queue, or the number of a queue or subscription.
            place: The `delivery.place` of a message that was browsed.

        Raises:
            InvalidDestinationException: There is no such queue.
            JMSSecurityException: The role may not browse it.
            ValueError: No message can be at the place.
            TypeError: It is not a place.
        """
        return await self._link.run(browsing.at(_queue(queue), require_place(place)))

    async def message(self, message_id: str) -> list[FoundMessage]:
        """Return a message in any state, once for each queue and subscription that holds it.

        There is no index of identifiers, which each message would pay for: the whole table of messages is read. Where
        the queue and the place are known, use `at`. Messages that have left their destination may be in the `history`.

        Args:
            message_id: Its JMSMessageID, with or without ``ID:``.
        """
        return await self._link.run(inspection.message(message_id))

    async def search(
        self,
        selector: str | None = None,
        *,
        message_id: str | None = None,
        correlation_id: str | None = None,
        group: str | None = None,
        jms_type: str | None = None,
        properties: Mapping[str, str | float | bool] | None = None,
        after: Position | None = None,
        limit: int = 100,
        time_limit: float = searching.TIME_LIMIT,
    ) -> SearchResult:
        """Search the messages of all queues and subscriptions, in any state; delayed ones come last.

        All given conditions hold for each message that is found. There is no index of them: the messages are read in
        the order of their keys until enough are found or the time is over. A following search goes on `after` that.
        Messages that the role may not browse are left out.

        Args:
            selector: Which messages, as for `browse`; None: all that the other conditions choose.
            message_id: The JMSMessageID, with or without ``ID:``.
            correlation_id: The JMSCorrelationID.
            group: The property JMSXGroupID.
            jms_type: The JMSType.
            properties: Properties by name. A text such as ``"7"`` or ``"true"`` stands for the number or boolean, too.
            after: The `next` of the search before; None: begin.
            limit: How many messages at most.
            time_limit: Seconds after which it returns the matches so far.

        Raises:
            InvalidSelectorException: The selector has an error; the message shows where. Or no property can have such
                a name.
            ValueError: There is no condition, or a number is below 1.
            TypeError: An argument is of another type.
        """
        _require_number("limit", limit, 1)
        if after is not None and not isinstance(after, Position):
            raise TypeError(f"Expected the `next` of a search, got {after!r}.")
        terms = searching.Terms(message_id, correlation_id, group, jms_type, properties or {}, selector)
        chosen = terms.parse()
        if chosen is None:
            raise ValueError("A search has a condition: an identifier, a group, a type, a property or a selector.")
        return await self._link.run(searching.search(chosen, after, limit, time_limit))

    async def subscription(self, name: str, client_id: str | None = None) -> SubscriptionSummary | None:
        """Return a durable subscription, or None if there is none of that name for the client identifier."""
        return await self._link.run(inspection.subscription(name, client_id))

    @property
    def history(self) -> History:
        """The messages that have left the destinations that keep history."""
        from jmsql.client._async.administration.history import History

        return History(self._link, self._timings.prune_lock_timeout, self._saying)

    # Actions and rates

    async def activity(
        self, search: str | None = None, *, before: int | None = None, limit: int = 100
    ) -> list[Activity]:
        """Return the actions of administrators, by any program and role, the last one first.

        Each action is noted in its own transaction: one that was rolled back has left nothing. A role sees the actions
        on the destinations that it may browse, and its own. They are kept for `activity_days`.

        Args:
            search: Only actions in which a name, the selector or the details have this text, in any case; or those on
                the message with this JMSMessageID. None: all.
            before: Only actions with lower numbers: the `number` of the last one of the page before.
            limit: How many at most.

        Raises:
            ValueError: A number is below 0.
            TypeError: A number or the text is of another type.
        """
        if search is not None and not isinstance(search, str):
            raise TypeError(f"Expected the text to search for as a str, got {search!r}.")
        _require_number("limit", limit, 0)
        if before is not None:
            _require_number("before", before, 0)
        return await self._link.run(every_activity(search, min(before or LAST, LAST) if before != 0 else 0, limit))

    async def activity_days(self) -> int:
        """Return how many days `activity` keeps actions: 30 by default; 0: they are not noted."""
        return await self._link.run(activity_days)

    async def set_activity_days(self, days: int) -> None:
        """Say how many days `activity` keeps actions; 0: they are not noted any more.

        Raises:
            JMSSecurityException: The role does not own the schema: else an administrator could remove the own actions.
            ValueError: The number is below 0 or above 36,500.
            TypeError: It is not an int.
        """
        _require_number("days", days, 0)
        if days > _MOST_DAYS:
            raise ValueError(f"Expected days as a number up to {_MOST_DAYS:,}, got {days}.")
        await self._change(set_activity_days(days))

    async def results(
        self, queue: str | None = None, state: str | None = None, *, before: str | None = None, limit: int = 100
    ) -> list[ResultSummary]:
        """Return stored results, the one that ended last first. `jmsql.result` returns the whole result of one message.

        Args:
            queue: The name of the queue in which the messages ended; None: all that the role may browse.
            state: ``done``, ``failed``, ``expired`` or ``cancelled``; None: all.
            before: Only results before this one: the `position` of the last one of the page before.
            limit: The maximum number of results.

        Raises:
            ValueError: There is no such state or position, or the limit is below 0.
            TypeError: A value is of another type.
        """
        for name, text in (("queue", queue), ("state", state), ("before", before)):
            if text is not None and not isinstance(text, str):
                raise TypeError(f"Expected {name} as a str, got {text!r}.")
        if state is not None and state not in STATES:
            raise ValueError(f"Expected a state, one of {', '.join(STATES)}, got {state!r}.")
        _require_number("limit", limit, 0)
        return (await self._link.run(results(queue, state, before, limit))).results

    async def rates(self, name: str | None = None, *, limit: int = 60) -> list[DestinationRate]:
        """Return the rates of a queue or topic minute by minute, the last minute first.

        Rates of the last hour stand for a minute, older ones for ten. They are kept for `rates_days`.

        Args:
            name: The name of a queue, or of a topic, whose subscriptions come with it. None: all destinations together.
            limit: The maximum number of rates.

        Raises:
            ValueError: The number is below 0.
            TypeError: It is not an int, or the name is not a str.
        """
        if name is not None and not isinstance(name, str):
            raise TypeError(f"Expected the name of a queue or topic as a str, got {name!r}.")
        _require_number("limit", limit, 0)
        return await self._link.run(rates(name, limit))

    async def rates_days(self) -> int:
        """Return how many days `rates` are kept: 7 by default; 0: they are not noted."""
        return await self._link.run(rates_days)

    async def keep_rates(self, days: int) -> None:
        """Keep `rates` for so many days; 0: note none, and remove those there are.

        Raises:
            JMSSecurityException: The role is not an administrator.
            ValueError: The number is below 0 or above 366.
            TypeError: It is not an int.
        """
        _require_number("days", days, 0)
        if days > _MOST_DAYS_OF_RATES:
            raise ValueError(f"Expected days as a number up to {_MOST_DAYS_OF_RATES}, got {days}.")
        await self._change(keep_rates(days))

    # Messages and subscriptions

    async def cancel(self, message_id: str) -> Cancellation:
        """Cancel a message: it is not delivered any more, and a handler that is at work on it is ended.

        A message that waits is removed, in each queue and subscription that holds it, also one that is delayed or waits
        to be delivered again. One that a client has received is removed, too, and the client is told: a coroutine
        function gets a `CancelledError`, the statement of a plain function is interrupted, or it gets a
        `CancelledError` at its current line. Its uncommitted work is rolled back; if it has committed, the message is
        `gone`. See [cancelling](/handlers.md#cancelling).

        There is no index of identifiers: the whole table of messages is read, as by `message`.

        Args:
            message_id: Its JMSMessageID, as `send` returns it, with or without ``ID:``.

        Returns: The message's outcome. `locked` only after a second, in which its transaction has not ended. A topic's
            message, of which each subscription has a copy: `locked` if a copy stays, else `asked` or `removed` if any
            was cancelled.

        Raises:
            JMSSecurityException: The role is no administrator.
            TypeError: The identifier is no text.
        """
        give_up_at = monotonic() + _CANCEL_PATIENCE
        cancelled: set[str] = set()
        while True:
            outcome = outcome_of_all(await self._change(cancel(message_id)), cancelled)
            if outcome is not Cancellation.locked or monotonic() >= give_up_at:
                return outcome
            await sleep(_CANCEL_PAUSE)

    async def purge(
        self,
        queue: AnyQueue | int,
        selector: str | None = None,
        *,
        places: Iterable[Place] | None = None,
        newest: int | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> int:
        """Delete the messages that are in a queue now, but for those that a session holds.

        Args:
            queue: The queue. With places, also the number of a queue or subscription.
            selector: Which of its messages; None: all.
            places: Only the messages at these places, without a selector. Messages that are gone are left out.
            newest: Only messages up to this `sequence`, without places; later messages have higher ones. None: all.
            progress: Called after each step with how many have been deleted so far. Each step commits.

        Returns:
            How many were deleted.

        Raises:
            InvalidDestinationException: There is no such queue.
            InvalidSelectorException: The selector has an error; the message shows where.
            ValueError: A selector or `newest` is given with places, or a number without.
        """
        if places is not None:
            _refuse_both(selector, newest)
            return await self._complete(purge_at(_queue(queue), map(require_place, places)), progress)
        return await self._complete(purge(_queue_name(queue), Selector.parse(selector), newest), progress, selector)

    async def subscribe(
        self,
        topic: AnyTopic,
        name: str,
        selector: str | None = None,
        *,
        client_id: str | None = None,
        shared: bool = False,
        no_local: bool = False,
    ) -> bool:
        """Make a durable subscription if it is not there: it collects messages before its first consumer comes.

        Args:
            topic: The topic, created if missing.
            name: The subscription's name.
            selector: Which of the topic's messages are wanted; None or "": all.
            client_id: The client identifier that it belongs to; None: it is shared, and belongs to none.
            shared: Whether its consumers share it; see `Session.create_shared_durable_consumer`.
            no_local: Whether to leave out messages that this client publishes.

        Returns:
            Whether it was made.

        Raises:
            IllegalStateException: There is another of that name, with another topic, selector or `no_local`, which is
                left as it is; or it is neither shared nor given a client identifier.
            InvalidDestinationException: It is not a topic.
            InvalidSelectorException: The selector has an error; the message shows where.
            ValueError: The name is empty.
        """
        target = require_topic(topic)
        if not name:
            raise ValueError("A subscription's name has at least one character.")
        if client_id is None and not shared:
            raise IllegalStateException(
                "A durable subscription belongs to a client identifier, unless it is shared; give one of the two."
            )
        definition = SubscriptionDefinition(
            target.name, Selector.parse(selector), name, client_id, durable=True, shared=shared, no_local=no_local
        )
        return await self._link.run(in_transaction(create_durable(definition)))

    async def sees_all_messages(self) -> bool:
        """Return whether the role may browse all destinations; if not, results may be incomplete."""
        return await self._link.run(inspection.sees_all_messages)

    async def dead_letters(
        self, queue: AnyQueue | None = None, selector: str | None = None, *, limit: int = 100
    ) -> list[DeadLetter]:
        """Return the dead letters, those that died last first: where they come from, and why they are dead.

        Args:
            queue: Those in this queue; None: in all queues.
            selector: Which of them; their properties ``JMS_jmsql_…`` may be compared as well. None: all.
            limit: At most so many.

        Raises:
            InvalidDestinationException: There is no such queue.
            InvalidSelectorException: The selector has an error; the message shows where.
        """
        return await self._link.run(
            first_dead_letters(None if queue is None else _queue_name(queue), Selector.parse(selector), limit)
        )

    async def dead_letter_queues(self) -> list[str]:
        """Return the names of the queues that have dead letters."""
        return await self._link.run(dead_letter_queues)

    async def retry(
        self,
        queue: AnyQueue | int = "DLQ",
        selector: str | None = None,
        *,
        places: Iterable[Place] | None = None,
        limit: int | None = None,
    ) -> Retry:
        """Move the dead letters in a queue back to where they come from, in one transaction.

        They keep their identifiers, headers, properties and bodies, and count as never delivered. They queue up behind
        the messages that are there. Those that a session holds stay, and those whose queue or subscription is gone.

        Args:
            queue: Where they are now. With places, also the number of a queue or subscription.
            selector: Which of them; None: all.
            places: Only the messages at these places, in transactions of 5,000, without a selector. A message that is
                not a dead letter stays.
            limit: The first so many; None: all.

        Raises:
            InvalidDestinationException: There is no such queue.
            InvalidSelectorException: The selector has an error; the message shows where.
            ValueError: A selector or a limit and places are given, or a number and no places.
        """
        if places is not None:
            _refuse_both(selector, limit)
            return await self._change(retry_at(_queue(queue), map(require_place, places)))
        return await self._change(retry(_queue_name(queue), Selector.parse(selector), limit), selector)

    async def move(
        self,
        source: AnyQueue | int,
        target: AnyQueue,
        selector: str | None = None,
        *,
        places: Iterable[Place] | None = None,
        limit: int | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> int:
        """Move the messages that are in a queue now to another queue, but for those that a session holds.

        They keep their headers, and come after those that are in the target already. Doing it again moves the rest.

        Args:
            source: The queue that they are in. With places, also the number of a queue or subscription.
            target: The other.
            selector: Which of the messages; None: all.
            places: Only the messages at these places, without a selector. Messages that are gone are left out.
            limit: The first so many; None: all.
            progress: Called after each step with how many have been moved so far. Each step is one transaction, of
                5,000 messages at the most.

        Returns:
            How many were moved.

        Raises:
            InvalidDestinationException: One of the queues is not there.
            InvalidSelectorException: The selector has an error; the message shows where.
            JMSException: The two queues are the same.
            ValueError: A selector or a limit and places are given, or a number and no places.
        """
        if places is not None:
            _refuse_both(selector, limit)
            target = require_queue(target)
            return await self._complete(move_at(_queue(source), target, map(require_place, places)), progress)
        steps = move(_queue_name(source), _queue_name(target), Selector.parse(selector), limit)
        return await self._complete(steps, progress, selector)

    async def deliver(
        self,
        queue: AnyQueue | int,
        selector: str | None = None,
        *,
        places: Iterable[Place] | None = None,
        limit: int | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> int:
        """Deliver the messages of a queue now that wait for their next attempt or their delivery time.

        Nothing else of them changes: the number of their deliveries, their errors and their expiration stay. Messages
        that failed keep their place in the queue. Those with a delivery delay come after those that are there, in the
        order of their delivery times, and ``JMSDeliveryTime`` is now. Consumers that wait are notified.

        Args:
            queue: The queue. With places, also the number of a queue or subscription.
            selector: Which of its messages; None: all that wait.
            places: Only the messages at these places, without a selector. Those that do not wait are left out.
            limit: The first so many; None: all.
            progress: Called after each step with how many have been delivered so far. Each step is one transaction, of
                5,000 messages at the most.

        Returns:
            How many were delivered: consumers can receive them.

        Raises:
            InvalidDestinationException: There is no such queue.
            InvalidSelectorException: The selector has an error; the message shows where.
            JMSSecurityException: The role is no administrator.
            ValueError: A selector or a limit and places are given, or a number and no places.
        """
        if places is not None:
            _refuse_both(selector, limit)
            return await self._complete(deliver(_queue(queue), map(require_place, places)), progress)
        steps = deliver_chosen(Queue(_queue_name(queue)), Selector.parse(selector), limit)
        return await self._complete(steps, progress, selector)

    async def _change(self, work: Query[T] | Steps[T], selector: str | None = None) -> T:
        """Change something, and have the activity say who has done it."""
        said = self._saying if selector is None else self._saying._replace(selector=selector)
        return await self._link.run(saying(said, work))

    async def _complete(
        self, steps: Items[int], progress: Callable[[int], object] | None, selector: str | None = None
    ) -> int:
        said = self._saying.in_steps()
        steps = in_steps(said if selector is None else said._replace(selector=selector), steps)
        done = 0
        async for count in self._link.iterate(steps):
            done += count
            if progress is not None:
                await call(progress, done)
        return done

    async def unsubscribe(self, name: str, client_id: str | None = None) -> None:
        """End a durable subscription, with its messages.

        Raises:
            InvalidDestinationException: There is none of that name for the client identifier.
            IllegalStateException: It has a consumer, or messages that a session has not acknowledged.
        """
        await self._change(in_transaction(unsubscribe(name, client_id)))

    # Access

    async def create_roles(self) -> list[str]:
        """Make the roles ``jmsql_producer``, ``jmsql_consumer``, ``jmsql_browser`` and ``jmsql_admin``.

        Each role is named after its members' right on all destinations. Roles belong to the server, not to the
        database: roles that exist already are given the rights in this schema.

        Returns:
            Those that were not there.

        Raises:
            JMSSecurityException: The role that has connected may not make roles, or does not own the schema.
        """
        return await self._change(access.create_roles())

    async def grant(
        self,
        destination: AnyDestination,
        role: str,
        *,
        send: bool = False,
        receive: bool = False,
        browse: bool = False,
    ) -> None:
        """Let a role of PostgreSQL send to a destination, receive from it, or browse it.

        The first grant switches PostgreSQL's row security on. From then on, only the owner of the schema and those
        who were given access do anything with destinations.

        Raises:
            ValueError: None of the three is true.
            InvalidDestinationException: There is no such destination.
            JMSSecurityException: The role that has connected does not administer the schema.
            JMSException: There is no such role.
        """
        await self._change(access.grant(require_destination(destination), role, _actions(send, receive, browse)))

    async def revoke(
        self,
        destination: AnyDestination,
        role: str,
        *,
        send: bool = False,
        receive: bool = False,
        browse: bool = False,
    ) -> None:
        """Revoke the access that `grant` has given; raises as `grant`."""
        await self._change(access.revoke(require_destination(destination), role, _actions(send, receive, browse)))

    async def grants(self, destination: AnyDestination | None = None) -> list[AccessSummary]:
        """Return which roles have access, to a destination or, with None, to any; those with access to all come first.

        Raises:
            JMSException: The server could not be asked.
        """
        named = None if destination is None else require_destination(destination)
        return await self._link.run(access.access_summaries(named))

    # Batches

    async def batches(self, name: str | None = None, *, limit: int = 100) -> list[BatchSummary]:
        """Return the last batches, with the counts of their messages.

        Args:
            name: Only those of this name.
            limit: So many at most.

        Raises:
            JMSException: The server could not be asked.
        """
        return await self._link.run(batches.batches(name, limit))

    async def batch(self, batch_id: int) -> BatchSummary:
        """Return the batch of a number.

        Raises:
            JMSException: There is no such batch.
        """
        return await self._link.run(batches.batch(batch_id))

    async def close_batch(self, batch_id: int) -> None:
        """End the block of a batch that its opener has left open: the callback comes when its messages have ended.

        Raises:
            JMSException: There is no such batch, or it is closed.
        """
        await self._change(batches.close(batch_id))

    async def delete_batch(self, batch_id: int) -> None:
        """Delete a batch, so that no callback comes. Its messages stay where they are.

        Raises:
            JMSException: There is no such batch.
        """
        await self._change(batches.delete(batch_id))

    # Schedules

    async def schedules(self) -> list[ScheduleSummary]:
        """Return all schedules, by name.

        Raises:
            JMSSecurityException: The role that has connected does not administer the schema.
        """
        return await self._link.run(changing.schedules())

    async def schedule(self, name: str) -> ScheduleSummary:
        """Return a schedule.

        Raises:
            JMSException: There is no schedule of that name, or the role does not administer the schema.
        """
        check_schedule_name(name)
        return await self._link.run(changing.schedule(name))

    async def set_schedule(
        self,
        name: str,
        when: str | timedelta,
        destination: AnyDestination,
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
        """Make a schedule, or change the one of that name, which stays paused if it is: see [schedules](/schedules.md).

        A tick that is due, and that no client has sent yet, is sent with the new message.

        Args:
            name: Its name.
            when: Cron's text, five fields or six with the seconds first, or ``@daily`` and the like; or an interval of
                a second or more, as a `timedelta`.
            destination: Where a message goes at each tick.
            body: Its body, as for [`jmsql.asyncio.send`][jmsql.asyncio.send].
            time_zone: The zone of cron's text, such as ``Europe/Berlin``.
            missed: The ticks that are sent late, after a time in which no client ran.
            overlap: False leaves out a tick while the last message is in its queue, waiting or being handled.
            priority: 0 (lowest) to 9.
            time_to_live: Seconds, or a `timedelta`, after which each message expires; 0: never.
            group: The messages' group, their property `JMSXGroupID`.
            properties: Properties of the messages.

        Raises:
            ValueError: The name, the times, the zone or another value cannot be such.
            TypeError: A value is of another type.
            IllegalStateException: An application declares the schedule in its code.
            InvalidDestinationException: It is not a destination, or is not there and is not made by its use.
            MessageFormatException: The body or a property cannot be encoded.
            JMSSecurityException: The role that has connected does not administer the schema.
        """
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
        await self._change(changing.set_schedule(schedule))

    async def declare_schedules(self, schedules: Iterable[Schedule]) -> None:
        """Make and change the schedules of an application, as its workers do when they start.

        Workers whose role does not administer the schema cannot: then a release does it, with
        ``declare_schedules(app.schedules)``.

        Raises:
            InvalidDestinationException: A destination is not there, and is not made by its use.
            JMSSecurityException: The role that has connected does not administer the schema.
        """
        await self._change(changing.declare(schedules))

    async def pause_schedule(self, name: str) -> None:
        """Pause a schedule: it has no ticks until `resume_schedule`, also if a release declares it again.

        Raises:
            JMSException: There is no schedule of that name, or the role does not administer the schema.
        """
        check_schedule_name(name)
        await self._change(changing.pause(name, paused=True))

    async def resume_schedule(self, name: str) -> None:
        """Go on with a schedule, from its next tick; those while it was paused do not count as missed.

        Raises:
            JMSException: As for `pause_schedule`; or its times cannot be read here.
        """
        check_schedule_name(name)
        await self._change(changing.pause(name, paused=False))

    async def delete_schedule(self, name: str) -> None:
        """Delete a schedule. A worker that declares it makes it again when it starts.

        Raises:
            JMSException: There is no schedule of that name, or the role does not administer the schema.
        """
        check_schedule_name(name)
        await self._change(changing.delete(name))

    async def send_scheduled(self, name: str) -> str:
        """Send the message of a schedule now, paused or not, beside its ticks, and return its JMSMessageID.

        Raises:
            JMSException: There is no schedule of that name, or the role does not administer the schema.
        """
        check_schedule_name(name)
        return await self._change(changing.send_scheduled(name))

    # Administered objects

    async def bind(self, name: str, administered: ConnectionFactory | Destination) -> None:
        """Keep a connection factory, queue or topic in the database, for [`lookup`][jmsql.asyncio.lookup].

        It replaces an object of the same name. No password is stored: let it come from ``PGPASSWORD``, ``~/.pgpass``
        or a service file where the factory is used, or give it to `create_connection`.

        Args:
            name: Such as ``jms/orders``.
            administered: The object.

        Raises:
            JMSException: It is no such object, or a temporary destination; or the name is empty or too long.
        """
        await self._objects().bind(name, administered)

    async def unbind(self, name: str) -> None:
        """Remove the object that is bound to a name.

        Raises:
            JMSException: No object is bound to it.
        """
        await self._objects().unbind(name)

    async def bindings(self) -> dict[str, AdministeredObject]:
        """Return the administered objects that are bound, by name."""
        return await self._objects().all()

    def _objects(self) -> AdministeredObjects:
        from jmsql.client._async.administration.administered_objects import AdministeredObjects

        return AdministeredObjects(self._link)

    async def close(self) -> None:
        """End the connection."""
        await self._link.close()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._where}>"


def _shown(database: str | AsyncEngine | None) -> str:
    if database is None:
        return "of the environment"
    if isinstance(database, str):
        return without_secrets(parse_url(database))
    if not hasattr(getattr(database, "url", None), "render_as_string"):
        raise TypeError(
            f"Expected the database as a URL, a connection factory or a SQLAlchemy engine, got {database!r}."
        )
    return database.url.render_as_string()


def _queue(queue: AnyQueue | int) -> Queue | int:
    if isinstance(queue, bool):
        raise TypeError(f"Expected a queue, or the number of one, got {queue}.")
    return queue if isinstance(queue, int) else require_queue(queue)


def _require_number(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"Expected {name} as an int from {least} on, got {value!r}.")
    if value < least:
        raise ValueError(f"Expected {name} as a number from {least} on, got {value}.")


def _require_one_of(name: str, value: object, known: Sequence[str]) -> None:
    if value not in known:
        raise ValueError(f"Expected {name} as one of {', '.join(known)}, got {value!r}.")


def _require_page(after: object, limit: object) -> None:
    if after is not None:
        require_place(after)
    _require_number("limit", limit, 0)


def _queue_name(queue: AnyQueue | int) -> str:
    found = _queue(queue)
    if isinstance(found, Queue):
        return found.name
    raise ValueError(f"Expected a queue, got {found}. The number of a queue goes with places.")


def _refuse_both(selector: str | None, limit: int | None = None) -> None:
    if selector is not None or limit is not None:
        raise ValueError("Give the places of messages, or a selector and a limit, not both.")


def _actions(send: bool, receive: bool, browse: bool) -> list[Action]:
    wanted: dict[Action, bool] = {"send": send, "receive": receive, "browse": browse}
    actions = [action for action, is_wanted in wanted.items() if is_wanted]
    if not actions:
        raise ValueError("Expected one or several of send=True, receive=True and browse=True, got none of them.")
    return actions
