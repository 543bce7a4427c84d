"""Sends under conditions: a second send of a deduplication id, or of a key of which a message waits, sends nothing."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple, Self

from jmsql.exceptions import InvalidDestinationException
from jmsql.messages.encoded_message import SendConditions
from jmsql.store.destinations.lookup import require_temporary
from jmsql.store.rows.message_rows import MessageKey, OutgoingMessage
from jmsql.store.sending.send import queues_are_missing
from jmsql.store.statement import SqlFile, Steps, array_literal, nothing, record, row_count
from jmsql.values.destinations import Destination, TemporaryTopic, Topic
from jmsql.values.postgresql_text import optional_to_postgresql

_sql = SqlFile("conditional")


class _Admission(NamedTuple):
    """The server's answer for a batch of messages; all but the first are None where a queue is missing."""

    first_sequence: int | None
    outcomes: list[int]
    known_ids: list[str | None]
    queue_ids: list[int]
    known_priorities: list[int | None]
    known_sequences: list[int | None]


_admit = _sql.statement("admit", "sending", record(_Admission._make))
_note_sent = _sql.statement("note_sent", "sending", nothing)
forget_ids = _sql.statement("forget_ids", "forgetting deduplication ids", row_count)
forget_keys = _sql.statement("forget_keys", "forgetting keys of messages", row_count)


class Outcome(IntEnum):
    """The outcome of a send, as the server says it."""

    SENT = 0
    DUPLICATE = 1
    """Its deduplication id was sent before."""
    COALESCED = 2
    """A message with its key waits."""


class ConditionalMessage(OutgoingMessage):
    """A message on its way to the server, and the conditions under which it is sent."""

    conditions: SendConditions
    destination_object: Destination
    outcome: Outcome
    known_id: str | None
    """The bare UUID of the message that was sent, before or now, or waits; None: it has none."""

    @classmethod
    def of(cls, message: OutgoingMessage, conditions: SendConditions, destination: Destination) -> Self:
        """Put a message under conditions.

        Raises:
            InvalidDestinationException: It has a key to coalesce and goes to a topic.
        """
        if conditions.coalesce is not None:
            if isinstance(destination, Topic):
                raise InvalidDestinationException(
                    f"A message to {destination} cannot coalesce: each subscription may have handled the last one or "
                    "not. Coalesce messages to queues."
                )
            if message.jms_message_id is None:  # by which it is found again
                message = message._replace(jms_message_id=str(uuid.uuid4()))
        made = cls(*message)
        made.conditions = conditions
        made.destination_object = destination
        made.outcome = Outcome.SENT
        made.known_id = message.jms_message_id
        return made


class ConditionalSends:
    """The sends of a transaction under conditions, and their outcomes."""

    def __init__(self) -> None:
        self.collected: list[ConditionalMessage] = []
        """The messages that are collected, and not inserted."""
        self.duplicates = Counter[Destination]()
        """The number of messages not sent, since their deduplication ids were."""
        self.coalesced = Counter[Destination]()
        """The number of messages not sent, since messages with their keys wait."""
        self.locked: list[MessageKey] = []
        """Messages, or the places of messages, that are locked until the transaction ends."""
        self._admitted = set[int]()
        """The messages of a batch, by `id`, that were admitted and are not inserted yet; the batch keeps them alive."""

    @property
    def unsent(self) -> Counter[Destination]:
        """The number of messages not sent."""
        return self.duplicates + self.coalesced

    def send(
        self,
        topic: Topic | None,
        messages: Sequence[OutgoingMessage],
        insert: Callable[[Sequence[OutgoingMessage]], Steps[None]],
    ) -> Steps[None]:
        """Insert the messages of a batch that have no conditions, or whose conditions hold.

        Args:
            topic: The topic of all of them; None: they go to queues.
            messages: The messages; all of them have a delivery time to wait for, or none has.
            insert: Inserts messages, in one transaction with this.

        Raises:
            InvalidDestinationException: A queue does not exist; nothing was sent.
            JMSException: PostgreSQL refused.
        """
        if isinstance(topic, TemporaryTopic):
            yield from require_temporary(topic)
        conditional = [message for message in messages if isinstance(message, ConditionalMessage)]
        if not conditional:
            yield from insert(messages)
            return
        admission = yield from _admit.bind(
            topic=None if topic is None else topic.name,
            queues=array_literal(message.destination for message in conditional),
            message_ids=array_literal(message.jms_message_id for message in conditional),
            deduplication_ids=array_literal(
                optional_to_postgresql(message.conditions.deduplication_id) for message in conditional
            ),
            coalesce_keys=array_literal(optional_to_postgresql(message.conditions.coalesce) for message in conditional),
            replacing=array_literal(message.conditions.replaces for message in conditional),
            expiring=array_literal(message.jms_expiration is not None for message in conditional),
            delivery_times=array_literal(message.jms_delivery_time for message in conditional),
        )
        if admission.first_sequence is None:
            raise queues_are_missing(message.destination for message in messages)
        self._settle(conditional, admission)
        sent = _settle_batch(messages)
        if sent:
            yield from insert(sent)
        self._admitted.clear()
        self._count(conditional)
        with_key = [
            message
            for message in conditional
            if message.conditions.coalesce is not None and message.outcome is Outcome.SENT
        ]
        if with_key:
            yield from _note_sent.bind(
                queues=array_literal(message.destination for message in with_key),
                message_ids=array_literal(message.jms_message_id for message in with_key),
                coalesce_keys=array_literal(
                    optional_to_postgresql(message.conditions.coalesce) for message in with_key
                ),
                delivery_times=array_literal(message.jms_delivery_time for message in with_key),
                inverse_priorities=array_literal(message.inverse_priority for message in with_key),
                first_sequence=admission.first_sequence,
            )

    def _settle(self, conditional: Sequence[ConditionalMessage], admission: _Admission) -> None:
        """Give each message its outcome."""
        keys = zip(admission.queue_ids, admission.known_priorities, admission.known_sequences, strict=True)
        answers = zip(conditional, admission.outcomes, admission.known_ids, keys, strict=True)
        for message, outcome, known_id, (queue_id, priority, sequence) in answers:
            message.outcome = Outcome(outcome)
            is_admitted = id(message) in self._admitted
            if message.outcome is Outcome.DUPLICATE and is_admitted and known_id == message.jms_message_id:
                # A queue of the batch was deleted after the admission, so nothing was inserted, and this is the next
                # attempt in the same transaction. The id that it finds is its own, and so is its key.
                message.outcome = Outcome.SENT if message.conditions.coalesce is None else Outcome.COALESCED
                message.known_id = None if message.outcome is Outcome.COALESCED else known_id
            else:
                message.known_id = message.jms_message_id if message.outcome is Outcome.SENT else known_id
            if message.outcome is not Outcome.DUPLICATE:
                self._admitted.add(id(message))
            if priority is not None and sequence is not None:  # until the commit, others pass over it or its place
                self.locked.append(MessageKey(queue_id, priority, sequence))

    def _count(self, conditional: Sequence[ConditionalMessage]) -> None:
        for message in conditional:
            if message.outcome is Outcome.DUPLICATE:
                self.duplicates[message.destination_object] += 1
            elif message.outcome is Outcome.COALESCED:
                self.coalesced[message.destination_object] += 1


def _settle_batch(messages: Sequence[OutgoingMessage]) -> list[OutgoingMessage]:
    """Return those messages that are to be sent, with one of each key.

    The server says of a message that it waits for one of the same batch by naming none. The first one of a key has its
    place, and the last one that replaces others is sent there.
    """
    sent: list[OutgoingMessage] = []
    places: dict[tuple[str, str], int] = {}
    coalesced: list[tuple[ConditionalMessage, int]] = []
    for message in messages:
        if isinstance(message, ConditionalMessage) and message.conditions.coalesce is not None:
            key = message.destination, message.conditions.coalesce
            if message.outcome is Outcome.COALESCED and message.known_id is None and key not in places:
                # As for an id above: the first one of its key, admitted by an attempt before.
                message.outcome, message.known_id = Outcome.SENT, message.jms_message_id
            elif message.outcome is Outcome.COALESCED and message.known_id is None:
                place = places[key]
                if message.conditions.replaces:
                    before = sent[place]
                    assert isinstance(before, ConditionalMessage)
                    before.outcome, message.outcome = Outcome.COALESCED, Outcome.SENT
                    sent[place], message.known_id = message, message.jms_message_id
                    coalesced.append((before, place))
                else:
                    coalesced.append((message, place))
                continue
            if message.outcome is Outcome.SENT:
                places[key] = len(sent)
        if not isinstance(message, ConditionalMessage) or message.outcome is Outcome.SENT:
            sent.append(message)
    for message, place in coalesced:
        message.known_id = sent[place].jms_message_id
    return sent


def outcomes(messages: Sequence[OutgoingMessage]) -> tuple[int, int]:
    """Return how many messages were not sent: duplicates, and coalesced ones."""
    found = Counter(message.outcome for message in messages if isinstance(message, ConditionalMessage))
    return found[Outcome.DUPLICATE], found[Outcome.COALESCED]
