"""A visitor's actions: on exactly the chosen messages, in steps, with a line in the log."""

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from jmsql import Queue
from jmsql.admin import BoundedCount, Cancellation, Place, ScheduleSummary
from jmsql.console.access import Visitor
from jmsql.console.database import Database
from jmsql.console.problems import has_unknown_outcome
from jmsql.exceptions import IllegalStateException, InvalidDestinationException, JMSException
from jmsql.logs import contained_logger
from jmsql.public_names import set_module
from jmsql.store.administration import looks
from jmsql.store.administration.delivering import choose_waiting
from jmsql.store.administration.looks import COUNTED, Choice, DestinationLook, Window
from jmsql.store.administration.places import BEGINNING
from jmsql.store.destinations.lookup import last_sequence
from jmsql.store.saying import Saying
from jmsql.store.statement import Steps
from jmsql.values.clock import monotonic
from jmsql.values.destinations import Destination, require_destination

logger = contained_logger("jmsql.console")
_ERROR_CLASS = re.compile(r"\w+(?:\.\w+)*(?=:|$)")

_LONGEST_ACTION = 20.0
"""Seconds after which an action stops between two steps, and says how far it came."""
_LONGEST_COUNT = 1.0
"""Seconds for which messages are counted before an action."""

MESSAGE_ACTIONS = ("retry", "deliver", "move", "purge")
"""The actions on chosen messages."""


@set_module("jmsql.console")
class ActionRecord(NamedTuple):
    """An action, for the log and for `on_action`.

    `number` is how many messages it has changed. `outcome` is "done", "unfinished" if it would have taken too long,
    "unknown: …" if the connection was lost, or why it was refused. `chosen` is None where all messages of the
    selector, the state and the cause were chosen that were there.
    """

    at: datetime
    """The end of the action, by this machine's clock."""
    action: str
    visitor: str
    address: str
    destination: str
    """The queue, the topic, or the topic of the subscription."""
    subscription: str | None
    """The subscription's name, with the client identifier before it if it has one: ``client/name``."""
    selector: str | None
    state: str | None
    """The state that messages had to have; None: any."""
    cause: str | None
    """The group of dead letters, as the address of the page names it; None: all."""
    chosen: int | None
    message_ids: list[str]
    """The identifiers of the messages that were chosen or sent, at most the first 1,000."""
    number: int
    outcome: str

    def as_json(self) -> str:
        """Return one line of JSON, in which no name or selector can look like another line."""
        return json.dumps(self._asdict() | {"at": self.at.isoformat()})


class Done(NamedTuple):
    """The outcome of an action on messages: how many it has changed, and which origins of dead letters are gone."""

    number: int
    unfinished: bool = False
    gone: dict[str, int] = {}  # noqa: RUF012 - a default that nothing changes


class Actor(NamedTuple):
    """The visitor that uses an action, and the address of the request."""

    visitor: Visitor
    address: str


class Actions:
    """Carries out visitors' actions, and records them."""

    def __init__(
        self, database: Database, *, hidden: bool, on_action: Callable[[ActionRecord], object] | None = None
    ) -> None:
        self._database = database
        self._hidden = hidden
        self._on_action = on_action

    # Messages

    def newest(self) -> int:
        """Return the sequence up to which messages are there now."""
        return self._database.read(last_sequence)

    def count(self, action: str, queue_id: int, choice: Choice) -> BoundedCount:
        """Count the messages that an action would be for, to a limit."""
        return self._database.read(self._counted(action, queue_id, choice))

    def _choose(self, action: str, queue_id: int, choice: Choice, after: Place) -> Steps[Window]:
        choose = choose_waiting if action == "deliver" else looks.choose
        return choose(queue_id, choice, after, hidden=self._hidden)

    def _counted(self, action: str, queue_id: int, choice: Choice) -> Steps[BoundedCount]:
        number, place, started = 0, BEGINNING, monotonic()
        while True:
            window = yield from self._choose(action, queue_id, choice, place)
            number += len(window.places)
            if number > COUNTED:
                return BoundedCount(COUNTED, has_more=True)
            if window.next is None:
                return BoundedCount(number)
            if monotonic() - started > _LONGEST_COUNT:
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
        """Retry, deliver, move or purge messages.

        Args:
            actor: The visitor.
            action: One of `MESSAGE_ACTIONS`.
            look: Where the messages are.
            places: Which ones; None: the choice's.
            choice: Which ones, if no places are given.
            target: The name of the queue to which they move.

        Raises:
            JMSException: PostgreSQL has refused, or there is no such queue. Earlier steps stay done.
        """
        done = 0
        unfinished = False
        outcome = "failed"
        gone: Counter[str] = Counter()
        message_ids: list[str] = []
        try:
            said = _said_by(actor) if places is not None else self._said_by_choice(actor, look.queue_id, choice)

            def change(some: Sequence[Place]) -> None:
                nonlocal done
                wanted = some[: COUNTED - len(message_ids)]
                message_ids.extend(self._database.read(looks.message_ids(look.queue_id, wanted)))
                number, without_origin = self._change(action, said, look.queue_id, some, target)
                done += number
                gone.update(without_origin)

            if places is not None:
                change(places)
            else:
                unfinished = self._walk(action, look.queue_id, choice, change)
            outcome = "unfinished" if unfinished else "done"
        except JMSException as error:
            outcome = _failed(error)
            raise
        finally:
            name = action if target is None else f"{action} to {target}"
            if places is not None:
                self._note(actor, name, look, outcome, done, message_ids, chosen=len(places))
            else:
                self._note(actor, name, look, outcome, done, message_ids, choice=choice)
        return Done(done, unfinished, dict(gone))

    def _said_by_choice(self, actor: Actor, queue_id: int, choice: Choice) -> Saying:
        if choice.cause is None:
            return _said_by(actor, choice)
        group = self._database.read(looks.dead_letter_group(queue_id, choice.cause, hidden=self._hidden))
        return _said_by(actor, choice, group)

    def _change(
        self, action: str, said: Saying, number: int, places: Sequence[Place], target: str | None
    ) -> tuple[int, dict[str, int]]:
        with self._database.administration(said) as administration:
            if action == "purge":
                return administration.purge(number, places=places), {}
            if action == "deliver":
                return administration.deliver(number, places=places), {}
            if action == "retry":
                retry = administration.retry(number, places=places)
                return sum(retry.returned.values()), retry.gone
            return administration.move(number, Queue(_required_name(target)), places=places), {}

    def _walk(self, action: str, queue_id: int, choice: Choice, change: Callable[[list[Place]], None]) -> bool:
        """Change the chosen messages, window by window, and return whether it stopped before the end."""
        started = monotonic()
        place: Place | None = BEGINNING
        while place is not None:
            if monotonic() - started > _LONGEST_ACTION:
                return True
            window = self._database.read(self._choose(action, queue_id, choice, place))
            change(window.places)
            place = window.next
        return False

    # Destinations

    def set_paused(self, actor: Actor, destination: Destination, *, paused: bool) -> None:
        """Stop the delivery from a destination, or let it go on."""
        action = "pause" if paused else "resume"
        with self._noted(actor, action, destination), self._database.administration(_said_by(actor)) as administration:
            administration.alter(destination, paused=paused)

    def pause_schedule(self, actor: Actor, schedule: ScheduleSummary, *, paused: bool) -> None:
        """Pause a schedule, or let it go on."""
        action = f"{'pause' if paused else 'resume'} schedule {schedule.name}"
        noted = self._noted(actor, action, require_destination(schedule.destination))
        with noted, self._database.administration(_said_by(actor)) as administration:
            change = administration.pause_schedule if paused else administration.resume_schedule
            change(schedule.name)

    def send_scheduled(self, actor: Actor, schedule: ScheduleSummary) -> str:
        """Send the message of a schedule, and return the message's identifier."""
        action = f"send schedule {schedule.name}"
        noted = self._noted(actor, action, require_destination(schedule.destination))
        with noted, self._database.administration(_said_by(actor)) as administration:
            message_id = administration.send_scheduled(schedule.name)
            noted.message_ids = [message_id]
            return message_id

    def cancel(self, actor: Actor, look: DestinationLook, message_id: str) -> Cancellation:
        """Cancel a message, in each queue and subscription that holds it, and end its handler."""
        noted = self._noted(actor, "cancel", look)
        with noted, self._database.administration(_said_by(actor)) as administration:
            outcome = administration.cancel(message_id)
            if outcome in {Cancellation.removed, Cancellation.asked}:
                noted.message_ids = [message_id]
            return outcome

    def unsubscribe(self, actor: Actor, look: DestinationLook, name: str) -> None:
        """Delete a durable subscription, if its name is repeated.

        Raises:
            IllegalStateException: The name is another, or it has a consumer.
        """
        if look.subscription is None or name != look.subscription:
            raise IllegalStateException("The name is another. Nothing was deleted.")
        with (
            self._noted(actor, "delete subscription", look),
            self._database.administration(_said_by(actor)) as administration,
        ):
            administration.unsubscribe(look.subscription, look.client_id)

    def send(self, actor: Actor, destination: Destination, text: str, *, priority: int, jms_type: str | None) -> str:
        """Send a text, and return the message's identifier."""
        noted = self._noted(actor, "send", destination)
        with noted, self._database.context() as context:
            message = context.create_text_message(text)
            if jms_type:
                message.jms_type = jms_type
            context.create_producer(priority=priority).send(destination, message)
            message_id = message.jms_message_id or ""
            noted.message_ids = [message_id]
            return message_id

    def _noted(self, actor: Actor, action: str, subject: DestinationLook | Destination) -> "_Noted":
        return _Noted(lambda outcome, ids: self._note(actor, action, subject, outcome, len(ids), ids))

    def _note(
        self,
        actor: Actor,
        action: str,
        subject: DestinationLook | Destination,
        outcome: str,
        number: int,
        message_ids: list[str],
        *,
        choice: Choice = Choice(),  # noqa: B008 - immutable
        chosen: int | None = None,
    ) -> None:
        look = subject if isinstance(subject, DestinationLook) else None
        destination = subject.destination if isinstance(subject, DestinationLook) else subject
        record = ActionRecord(
            at=datetime.now(UTC),
            action=action,
            visitor=actor.visitor.name,
            address=actor.address,
            destination=destination.uri,
            subscription=None if look is None else _subscription(look),
            selector=None if choice.selector is None else choice.selector.text,
            state=None if choice.state is None else choice.state.value,
            cause=choice.cause,
            chosen=chosen,
            message_ids=message_ids,
            number=number,
            outcome=outcome,
        )
        logger.info("%s", record.as_json())
        if self._on_action is not None:
            try:
                self._on_action(record)
            except Exception:  # the action itself has succeeded
                logger.exception("Function on_action has failed.")


def _subscription(look: DestinationLook) -> str | None:
    if not look.is_subscription:
        return None
    name = look.subscription or f"number {look.queue_id}"
    return name if look.client_id is None else f"{look.client_id}/{name}"


def _said_by(actor: Actor, choice: Choice | None = None, group: looks.DeadLetterGroup | None = None) -> Saying:
    """Return the remarks for the activity on an action that may take several steps, on the letters of a group."""
    name = actor.visitor.name or None
    if choice is None:
        return Saying(name).in_steps()
    details = [] if choice.state is None else [f"state {choice.state.value}"]
    details += [] if choice.cause is None else [f"a group of dead letters{'' if group is None else _named(group)}"]
    selector = None if choice.selector is None else choice.selector.text
    return Saying(name, selector, ", ".join(details) or None).in_steps()


def _named(group: looks.DeadLetterGroup) -> str:
    """Return the origin and the class of the error, and no more of its text, which the activity would keep for long."""
    error = None if group.error is None else _ERROR_CLASS.match(group.error)
    return f" of {group.origin or 'an unknown origin'}, {group.reason if error is None else error[0]}"


class _Noted:
    """Notes how a block ends."""

    def __init__(self, note: Callable[[str, list[str]], None]) -> None:
        self._note = note
        self.message_ids: list[str] = []

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._note("done" if error is None else _failed(error), self.message_ids)


def _failed(error: BaseException) -> str:
    is_unknown = isinstance(error, JMSException) and has_unknown_outcome(error)
    return f"unknown: {error}" if is_unknown else f"refused: {error}"


def _required_name(name: str | None) -> str:
    if not name:
        raise InvalidDestinationException("Name the queue to which the messages move.")
    return name.removeprefix("queue://")
