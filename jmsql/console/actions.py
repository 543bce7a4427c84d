"""What a visitor can have done: to exactly the messages that were chosen, in steps, with a line in the log."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from jmsql import Queue
from jmsql.admin import BoundedCount, Place
from jmsql.console.access import Visitor
from jmsql.console.database import Database
from jmsql.exceptions import IllegalStateException, InvalidDestinationException, JMSException
from jmsql.public_names import set_module
from jmsql.store.administration import looks
from jmsql.store.administration.looks import COUNTED, Choice, DestinationLook
from jmsql.store.administration.places import BEGINNING
from jmsql.store.destinations.lookup import last_sequence
from jmsql.store.statement import Steps
from jmsql.values.destinations import Destination

logger = logging.getLogger("jmsql.console")

_LONGEST_ACTION = 20.0
"""Seconds after which an action stops between two steps, and says how far it came."""
_LONGEST_COUNT = 1.0
"""Seconds for which messages are counted before an action."""

MESSAGE_ACTIONS = ("retry", "move", "purge")
"""What can be done with chosen messages."""


@set_module("jmsql.console")
class ActionRecord(NamedTuple):
    """An action, for the log and for `on_action`.

    `number` is how many messages it has changed. `outcome` is "done", "unfinished" if it would have taken too long, or
    why it was refused.
    """

    action: str
    visitor: str
    address: str
    destination: str
    selector: str | None
    chosen: int | None
    number: int
    outcome: str


class Done(NamedTuple):
    """How many messages an action has changed, and whether it stopped before the end."""

    number: int
    unfinished: bool = False


class Actor(NamedTuple):
    """The visitor that uses an action, and the address of the request."""

    visitor: Visitor
    address: str


class Actions:
    """Does what visitors ask for, and notes it."""

    def __init__(
        self, database: Database, *, hidden: bool, on_action: Callable[[ActionRecord], object] | None = None
    ) -> None:
        self._database = database
        self._hidden = hidden
        self._on_action = on_action

    # Messages

    def newest(self) -> int:
        """Return the sequence up to which messages are there now."""
        return self._database.look(last_sequence)

    def count(self, queue_id: int, choice: Choice) -> BoundedCount:
        """Count the messages that an action would be for, to a limit."""
        return self._database.look(self._counted(queue_id, choice))

    def _counted(self, queue_id: int, choice: Choice) -> Steps[BoundedCount]:
        number, place, started = 0, BEGINNING, time.monotonic()
        while True:
            window = yield from looks.choose(queue_id, choice, place, hidden=self._hidden)
            number += len(window.places)
            if number > COUNTED:
                return BoundedCount(COUNTED, has_more=True)
            if window.next is None:
                return BoundedCount(number)
            if time.monotonic() - started > _LONGEST_COUNT:
                return BoundedCount(number, has_more=True)
            place = window.next

    def apply(
        self,
        actor: Actor,
        action: str,
        look: DestinationLook,
        *,
        places: Sequence[Place] | None,
        choice: Choice,
        target: str | None = None,
    ) -> Done:
        """Retry, move or purge messages.

        Args:
            actor: The visitor.
            action: One of `MESSAGE_ACTIONS`.
            look: Where the messages are.
            places: Which ones; None: those of the choice.
            choice: Which ones, if no places are given.
            target: The name of the queue to which they move.

        Raises:
            JMSException: PostgreSQL has refused, or there is no such queue. Earlier steps stay done.
        """
        done = 0
        unfinished = False
        outcome = "failed"
        try:

            def change(some: Sequence[Place]) -> None:
                nonlocal done
                done += self._change(action, look.queue_id, some, target)

            if places is not None:
                change(places)
            else:
                unfinished = self._walk(look.queue_id, choice, change)
            outcome = "unfinished" if unfinished else "done"
        except JMSException as error:
            outcome = f"refused: {error}"
            raise
        finally:
            selector = None if places is not None or choice.selector is None else choice.selector.text
            chosen = None if places is None else len(places)
            self._note(
                actor, action if target is None else f"{action} to {target}", look.destination, outcome, done,
                selector=selector, chosen=chosen,
            )  # fmt: skip
        return Done(done, unfinished)

    def _change(self, action: str, number: int, places: Sequence[Place], target: str | None) -> int:
        with self._database.administration() as administration:
            if action == "purge":
                return administration.purge(number, places=places)
            if action == "retry":
                return sum(administration.retry(number, places=places).returned.values())
            return administration.move(number, Queue(_required_name(target)), places=places)

    def _walk(self, queue_id: int, choice: Choice, change: Callable[[list[Place]], None]) -> bool:
        """Change what is chosen, window by window, and tell whether it stopped before the end."""
        started = time.monotonic()
        place: Place | None = BEGINNING
        while place is not None:
            if time.monotonic() - started > _LONGEST_ACTION:
                return True
            window = self._database.look(looks.choose(queue_id, choice, place, hidden=self._hidden))
            change(window.places)
            place = window.next
        return False

    # Destinations

    def set_paused(self, actor: Actor, destination: Destination, *, paused: bool) -> None:
        """Stop the delivery from a destination, or let it go on."""
        action = "pause" if paused else "resume"
        with self._noted(actor, action, destination), self._database.administration() as administration:
            administration.alter(destination, paused=paused)

    def unsubscribe(self, actor: Actor, look: DestinationLook, name: str) -> None:
        """Delete a durable subscription, if its name is repeated.

        Raises:
            IllegalStateException: The name is another, or it has a consumer.
        """
        if look.subscription is None or name != look.subscription:
            raise IllegalStateException("The name is another. Nothing was deleted.")
        with (
            self._noted(actor, "delete subscription", look.destination),
            self._database.administration() as administration,
        ):
            administration.unsubscribe(look.subscription, look.client_id)

    def send(self, actor: Actor, destination: Destination, text: str, *, priority: int, jms_type: str | None) -> str:
        """Send a text, and return the message's identifier."""
        noted = self._noted(actor, "send", destination)
        with noted, self._database.factory.create_context() as context:
            message = context.create_text_message(text)
            if jms_type:
                message.jms_type = jms_type
            context.create_producer(priority=priority).send(destination, message)
            noted.number = 1
            return message.jms_message_id or ""

    def _noted(self, actor: Actor, action: str, destination: Destination) -> _Noted:
        return _Noted(lambda outcome, number: self._note(actor, action, destination, outcome, number))

    def _note(
        self,
        actor: Actor,
        action: str,
        destination: Destination,
        outcome: str,
        number: int,
        *,
        selector: str | None = None,
        chosen: int | None = None,
    ) -> None:
        record = ActionRecord(
            action, actor.visitor.name, actor.address, destination.uri, selector, chosen, number, outcome
        )
        # As JSON, so that no name or selector can look like another line.
        logger.info("%s", json.dumps(record._asdict()))
        if self._on_action is not None:
            try:
                self._on_action(record)
            except Exception:  # what was done is done
                logger.exception("on_action has failed")


class _Noted:
    """Notes how a block ends."""

    def __init__(self, note: Callable[[str, int], None]) -> None:
        self._note = note
        self.number = 0

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._note("done" if error is None else f"refused: {error}", self.number)


def _required_name(name: str | None) -> str:
    if not name:
        raise InvalidDestinationException("Name the queue to which the messages move.")
    return name.removeprefix("queue://")
