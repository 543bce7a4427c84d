"""A connection's destinations: looked up, subscribed to, and temporary ones."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from jmsql.client._async.shared.side_connection import SideConnection
from jmsql.exceptions import InvalidDestinationException, JMSException
from jmsql.logs import contained_logger
from jmsql.store.destinations.destination_settings import create_temporary, delete_temporary
from jmsql.store.destinations.lookup import queue_id, require_temporary, topic_id
from jmsql.store.destinations.subscriptions import SubscriptionDefinition, attach, detach, rejoin, unsubscribe
from jmsql.values.clock import monotonic
from jmsql.values.counting import counted
from jmsql.values.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic

logger = contained_logger("jmsql")

# A number that was looked up is used without asking again. The number may be stale: an administrator may delete the
# destination, and another client make it again. A send to a queue that is gone fails at the server, and `make_again`
# repairs it. A topic without subscriptions takes messages without an error, and a temporary queue's end is told with
# the commit; so these two count as known for `_TRUSTED` seconds alone.
#
# `numbers` is read without a lock on the hot path, and written by the task or thread that has looked a destination up,
# or has found that it is gone; the last look-up counts.


_TRUSTED = 1.0
"""Seconds for which a topic or temporary queue that was there counts as being there."""

_REQUESTORS_VERSION = 8
"""The version of the UUID in the name of a requestor's queue: the one for uses of an application's own."""

_MOST_LOOKED_UP = 1000

Temporary = TypeVar("Temporary", TemporaryQueue, TemporaryTopic)


class ConnectionDestinations:
    """The destinations of one connection. Its methods may be called from any thread."""

    def __init__(self, side: SideConnection, connection_id: Callable[[], int], *, automatic_creation: bool) -> None:
        self._side = side
        self._automatic_creation = automatic_creation
        self._connection_id = connection_id
        # The number under which the connection has its subscriptions. The server may know it under a new one already:
        # until `join_again` a consumer joins and leaves beside the others. Written by that alone, and read under the
        # same lock, the registry's.
        self._joined_id = connection_id()
        self.numbers: dict[Destination, int] = {}
        """The numbers of looked-up destinations; a topic's is negative."""
        self._looked_up: dict[Destination, float] = {}
        """When a topic or temporary queue was last looked up, by the monotonic clock."""
        # Temporary destinations that this connection has made and not deleted. `create_temporary_again` binds them to
        # its new number. Any thread adds and removes one, without a lock, after the statement.
        self._temporary: set[Destination] = set()

    async def find(self, destination: Destination) -> int:
        """Return the number of a destination, which is created if missing; a topic's is negative.

        Raises:
            InvalidDestinationException: It is temporary, and gone.
        """
        number = self.numbers.get(destination)
        if number is None or (type(destination) is not Queue and self._is_due(destination)):
            return await self.look_up(destination)
        return number

    def _is_due(self, destination: Destination) -> bool:
        # A send to a queue that is gone fails. One to a topic without subscriptions does not; and a transacted session
        # hears of a temporary queue's end with its commit, which is too late to do without the reply.
        return monotonic() >= self._looked_up.get(destination, 0.0) + _TRUSTED

    async def look_up(self, destination: Destination) -> int:
        """Return the number that a destination has now; it may have been removed, and made again, since it was used.

        Raises:
            InvalidDestinationException: It is temporary, and gone.
        """
        try:
            number = await self._look_up(destination)
        except InvalidDestinationException:
            self._forget(destination)
            raise
        self.numbers[destination] = number
        if type(destination) is not Queue:
            self._looked_up[destination] = monotonic()
            if len(self._looked_up) > _MOST_LOOKED_UP:  # a replier has a temporary queue for each requestor
                for each in [*filter(self._is_due, list(self._looked_up))]:
                    self._forget(each)
        return number

    async def _look_up(self, destination: Destination) -> int:
        if isinstance(destination, TemporaryQueue | TemporaryTopic):
            await self._side.run_in_transaction(require_temporary, destination)
        if isinstance(destination, Topic):
            return -await self._side.run_in_transaction(topic_id, destination.name, create=self._automatic_creation)
        return await self._side.run(queue_id, destination.name, create=self._automatic_creation)

    def _forget(self, destination: Destination) -> None:
        self.numbers.pop(destination, None)
        self._looked_up.pop(destination, None)

    async def make_again(self, destinations: Iterable[Destination]) -> None:
        """Look destinations up, of which one was deleted since it was used, and make that again.

        Raises:
            InvalidDestinationException: One is temporary, or its use does not make it.
        """
        gone = await self.make_again_or_name(destinations)
        if gone:
            raise gone[min(gone, key=str)]

    async def make_again_or_name(self, destinations: Iterable[Destination]) -> dict[Destination, JMSException]:
        """Make the destinations again, as `make_again` does, and return the missing ones with their errors."""
        gone: dict[Destination, JMSException] = {}
        for destination in destinations:
            try:
                await self.look_up(destination)
            except InvalidDestinationException as error:
                gone[destination] = error
        return gone

    # Subscriptions

    async def join(self, definition: SubscriptionDefinition) -> int:
        """Join a subscription, and return the id of its queue."""
        attachment = await self._side.run_in_transaction(
            attach, definition, self._joined_id, create_topic=self._automatic_creation
        )
        if attachment.dropped is not None:
            logger.log(
                logging.WARNING if attachment.dropped else logging.INFO,
                "Subscription made again, since its consumer has another topic, selector or no_local than before: %s. "
                "Dropped: %s.",
                definition,
                counted(attachment.dropped, "message"),
            )
        return attachment.queue_id

    async def join_again(self, former_ids: Sequence[int]) -> set[int]:
        """Keep, under the connection's new number, the subscriptions that it had; return the ids of their queues."""
        number = self._connection_id()
        kept = await self._side.run_in_transaction(rejoin, former_ids, number)
        self._joined_id = number
        return kept

    async def leave(self, queue_id: int) -> None:
        """Leave a subscription."""
        await self._side.run_in_transaction(detach, queue_id, self._joined_id)

    async def unsubscribe(self, name: str, client_id: str | None) -> None:
        """End a durable subscription."""
        await self._side.run_in_transaction(unsubscribe, name, client_id)

    # Temporary destinations

    async def create_temporary(
        self, kind: type[Temporary], check_unused: Callable[[Destination], None], *, of_requestor: bool = False
    ) -> Temporary:
        """Make a temporary queue or topic.

        When its owner deletes it, `check_unused` is called before, and raises if it has a consumer. By the version of
        the UUID in the name, the server recognises a requestor's queue, to which it reports failed requests.
        """
        digits = str(uuid.uuid4())
        name = f"temporary-{digits[:14]}{_REQUESTORS_VERSION}{digits[15:]}" if of_requestor else f"temporary-{digits}"

        async def delete() -> None:
            if destination in self._temporary:  # it may be deleted already: by this, or with the connection
                check_unused(destination)
                await self._delete_temporary(destination)

        destination: Temporary = kind(name, _delete=delete)
        number = self._connection_id()
        await self._create(destination)
        self._temporary.add(destination)
        if self._connection_id() != number:
            await self._create(destination)  # the new number's duty may not have seen it yet
        return destination

    async def create_temporary_again(self) -> None:
        """Bind the temporary destinations to the connection's new number; those removed meanwhile are made again."""
        for destination in list(self._temporary):
            await self._create(destination)
            self._forget(destination)

    async def delete_all_temporary(self) -> None:
        """Delete the temporary destinations."""
        for destination in list(self._temporary):
            await self._delete_temporary(destination)

    def require_own(self, destination: Destination) -> None:
        """Make sure that the connection may receive from a destination.

        Raises:
            InvalidDestinationException: It is temporary, and not this connection's, or is deleted.
        """
        if isinstance(destination, TemporaryQueue | TemporaryTopic) and destination not in self._temporary:
            raise InvalidDestinationException(f"Only the connection that has made {destination} receives from it.")

    async def _create(self, destination: Destination) -> None:
        await self._side.run_in_transaction(create_temporary, destination, self._connection_id())

    async def _delete_temporary(self, destination: Destination) -> None:
        await self._side.run_in_transaction(delete_temporary, destination)
        self._temporary.discard(destination)
        self._forget(destination)
