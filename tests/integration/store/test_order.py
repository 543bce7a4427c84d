"""A session's messages come to a consumer in the order in which they were sent, whatever transactions run beside."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from jmsql.selectors import Selector
from jmsql.store.destinations import lookup
from jmsql.store.receiving.acknowledge import Recipient
from jmsql.store.receiving.reader import QueueReader, ScanPosition
from jmsql.store.receiving.receive import claim, claim_for_transaction, dequeue, lock
from jmsql.store.rows.message_rows import ClaimedRow, MessageKey, MessageRow
from jmsql.store.sending.send import send
from jmsql.store.statement import Steps
from tests.integration.store.conftest import Client, OpenClient, as_claimed, as_locked, text_message

CONNECTION = 1
NEVER = 3600.0
"""Seconds between sweeps, so that none hides what the bounds miss."""

BLUE = Selector.parse("color = 'blue'")
FETCHES: dict[str, Any] = {
    "lock": lock,
    "claim": lambda queue, selector, start, limit, groups: claim(
        queue, selector, start, limit, CONNECTION, None, groups
    ),
    "claim for a transaction": partial(claim_for_transaction, CONNECTION),
    "dequeue": dequeue,
    "dequeue in a transaction": dequeue,
}
IN_TRANSACTIONS = {"lock", "dequeue in a transaction"}
SHARING = {"lock", "claim for a transaction"}
RECIPIENT = Recipient()
numbers = itertools.count()


@dataclass
class Sender:
    """A session that sends, with what its open transaction has sent."""

    name: str
    client: Client
    count: int = 0
    pending: list[str] = field(default_factory=list)


@dataclass
class Consumer:
    """A session that receives, and sends in the transaction in which it does."""

    kind: str
    selector: Selector | None
    sender: Sender
    reader: QueueReader
    received: list[str] = field(default_factory=list)
    delivered: list[MessageRow] = field(default_factory=list)
    """The messages that the open transaction has received."""
    scan: tuple[Steps[list[MessageRow]], Any] | None = None
    """A read whose first statement has run, with its result."""


class Model:
    """Senders and consumers of one queue, whose statements are interleaved."""

    def __init__(
        self,
        clients: Sequence[Client],
        consumers: Sequence[tuple[str, Selector | None]],
        *,
        grouped: bool,
        shared: bool,
    ) -> None:
        self.queue = f"order {next(numbers)}"
        self.clients = iter(clients)
        self.grouped = grouped
        self.position = ScanPosition(NEVER) if shared else None
        """The position of the consumers that lock messages, as those of one client have it."""
        self.senders = [Sender(f"sender {number}", next(self.clients)) for number in range(2)]
        self.writer = next(self.clients)
        """A transaction that has nothing to do with messages."""
        self.queue_id = self.senders[0].client.run(lookup.queue_id(self.queue))
        self.senders[0].client.connection.commit()
        self.consumers = [
            Consumer(kind, selector, Sender(f"consumer {number}", next(self.clients)), self.reader(kind, selector))
            for number, (kind, selector) in enumerate(consumers)
        ]
        self.sent: dict[str, str] = {}
        """The committed messages, with their properties."""
        self.returned: set[str] = set()
        """Messages that a rollback, or a consumer without a claim, has returned. They may come again after others."""

    def reader(self, kind: str, selector: Selector | None) -> QueueReader:
        position = self.position if selector is None and kind in SHARING else None
        return QueueReader(self.queue_id, selector, FETCHES[kind], position or ScanPosition(NEVER))

    def send(self, sender: Sender, count: int, choice: int) -> None:
        messages = []
        for _ in range(count):
            sender.count += 1
            color, group, priority = ("blue", "red")[choice % 5 // 4], choice % 3, 4 + choice % 4 // 3
            properties = f'{{"color": "{color}"}}'
            if self.grouped and group:
                properties = f'{{"color": "{color}", "JMSXGroupID": "{group}"}}'
            body = f"{sender.name}/{sender.count}/{priority}/{group if self.grouped else 0}/{color}"
            message = text_message(body, queue=self.queue)
            messages.append(message._replace(inverse_priority=priority, properties=properties))
            sender.pending.append(body)
            choice //= 2
        sender.client.run(send(messages))

    def end(self, sender: Sender, *, commits: bool) -> None:
        (sender.client.connection.commit if commits else sender.client.connection.rollback)()
        if commits:
            self.sent.update(dict.fromkeys(sender.pending, self.queue))
        sender.pending.clear()

    def begin_to_receive(self, consumer: Consumer, limit: int) -> None:
        """Run the first statement of a read, which ends with the consumer's next step."""
        self.end_scan(consumer)
        if consumer.kind in SHARING:
            read = consumer.reader.read(limit, look_everywhere=False)
            consumer.scan = read, consumer.sender.client.run(next(read))

    def end_scan(self, consumer: Consumer) -> None:
        if consumer.scan is not None:
            (read, result), consumer.scan = consumer.scan, None
            self.received(consumer, consumer.sender.client.run(_rest(read, result)))

    def receive(self, consumer: Consumer, limit: int, *, looks_everywhere: bool) -> int:
        if consumer.kind.startswith("dequeue"):
            limit = 1
        self.end_scan(consumer)
        read = consumer.reader.read(limit, look_everywhere=looks_everywhere)
        return self.received(consumer, consumer.sender.client.run(read))

    def received(self, consumer: Consumer, rows: list[MessageRow]) -> int:
        client = consumer.sender.client
        if consumer.kind == "claim for a transaction":
            unclaimed = [row for row in rows if not isinstance(row, ClaimedRow)]
            assert not unclaimed or self.grouped
            for row in unclaimed:  # of a queue with groups; else nothing is known of deliveries
                consumer.reader.returned(row.inverse_priority, row.sequence)
            self.returned.update(str(row.text_body) for row in unclaimed)  # others have passed over their locks
            rows = [row for row in rows if row not in unclaimed]
        consumer.received += [str(row.text_body) for row in rows]
        if consumer.kind == "lock" and rows:
            client.run(RECIPIENT.delete_locked(as_locked(rows), {self.queue_id}))
        elif consumer.kind.startswith("claim") and rows:
            keys = [(MessageKey(self.queue_id, *row[:2]), row.handle) for row in as_claimed(rows)]
            assert client.run(RECIPIENT.acknowledge(keys)) == len(rows)
        if consumer.kind in IN_TRANSACTIONS:
            consumer.delivered += rows
        else:
            client.connection.commit()
            self._free(rows)
        return len(rows)

    def settle(self, consumer: Consumer, *, commits: bool) -> None:
        self.end_scan(consumer)
        if commits and not consumer.sender.pending:
            consumer.reader.sent_nothing()
        self.end(consumer.sender, commits=commits)
        if not commits:
            self.returned.update(str(row.text_body) for row in consumer.delivered)
            for other in self.consumers:
                for row in consumer.delivered:
                    other.reader.returned(row.inverse_priority, row.sequence)
            if consumer.kind.startswith("dequeue"):  # a caller's rollback is not noticed
                consumer.reader = self.reader(consumer.kind, consumer.selector)
        self._free(consumer.delivered)
        consumer.delivered = []

    def _free(self, rows: Sequence[MessageRow]) -> None:
        for group in {row.group_hash for row in rows if row.group_hash is not None}:
            for consumer in self.consumers:
                consumer.reader.freed(group)

    def step(self, action: str, who: int, choice: int) -> None:
        consumer = self.consumers[who % len(self.consumers)]
        sender = self.senders[who % len(self.senders)]
        match action:
            case "send":
                self.send(sender, 1 + choice % 3, choice)
            case "send in the consumer's transaction":
                self.end_scan(consumer)
                self.send(consumer.sender, 1, choice)
                if consumer.kind not in IN_TRANSACTIONS:
                    self.end(consumer.sender, commits=True)
            case "commit":
                self.end(sender, commits=True)
            case "roll back":
                self.end(sender, commits=False)
            case "begin to receive":
                self.begin_to_receive(consumer, 1 + choice % 4)
            case "receive":
                self.receive(consumer, 1 + choice % 4, looks_everywhere=choice > 6)
            case "commit what was received":
                self.settle(consumer, commits=True)
            case "roll back what was received":
                self.settle(consumer, commits=False)
            case "sweep":
                consumer.reader.position.bounds._next_sweep = 0.0
            case "write":
                if choice % 2:
                    self.writer.rows("select pg_current_xact_id()")
                else:
                    self.writer.connection.commit()

    def finish(self) -> None:
        for sender in self.senders:
            self.end(sender, commits=True)
        self.writer.connection.commit()
        for consumer in self.consumers:
            self.settle(consumer, commits=True)
        empty = 0
        for consumer in itertools.cycle(self.consumers):
            consumer.reader.position.bounds._next_sweep = 0.0
            empty = 0 if self.receive(consumer, 10, looks_everywhere=True) else empty + 1
            self.settle(consumer, commits=True)
            if empty == len(self.consumers):
                break
        received = [body for consumer in self.consumers for body in consumer.received]
        assert len(set(received) - self.returned) == len([body for body in received if body not in self.returned])
        everything = any(consumer.selector is None for consumer in self.consumers)
        expected = {body for body in self.sent if everything or body.endswith("blue")}
        if not any(consumer.kind == "claim for a transaction" and self.grouped for consumer in self.consumers):
            assert set(received) == expected
        for consumer in self.consumers:
            self._check_order(consumer)

    def _check_order(self, consumer: Consumer) -> None:
        last: dict[tuple[str, ...], int] = defaultdict(int)
        for body in consumer.received:
            if body not in self.returned:
                sender, number, *place, _ = body.split("/")
                assert last[sender, *place] < int(number), consumer
                last[sender, *place] = int(number)


def _rest(read: Steps[list[MessageRow]], result: Any) -> Steps[list[MessageRow]]:
    """Go on with a read after its first statement."""
    try:
        query = read.send(result)
        while True:
            query = read.send((yield query))
    except StopIteration as end:
        rows: list[MessageRow] = end.value
        return rows


@pytest.fixture
def clients(open_client: OpenClient) -> list[Client]:
    return [open_client(transactions=True) for _ in range(6)]


ACTIONS = {
    "send": 6,
    "commit": 5,
    "roll back": 1,
    "receive": 8,
    "begin to receive": 4,
    "commit what was received": 2,
    "roll back what was received": 1,
    "send in the consumer's transaction": 1,
    "sweep": 1,
    "write": 1,
}
WEIGHTED = [action for action, weight in ACTIONS.items() for _ in range(weight)]
STEPS = st.lists(st.tuples(st.sampled_from(WEIGHTED), st.integers(0, 5), st.integers(0, 9)), min_size=20, max_size=60)
# A scan passes the first part of a transaction.
LATE = [
    *(("send", 0, 0), ("send", 1, 0), ("commit", 1, 0), ("receive", 0, 0)),
    *(("send", 0, 0), ("commit", 0, 0), ("receive", 0, 0), ("receive", 0, 0)),
]
# The second consumer has locked a message that it does not claim, while the first receives the next one.
LOCKED_MEANWHILE = [
    *(("send", 0, 1), *[("send", 0, 0)] * 5, ("commit", 0, 0), ("receive", 0, 0), ("receive", 1, 0)),
    *(("begin to receive", 1, 0), ("receive", 0, 0)),
]
CONSUMERS = st.lists(
    st.tuples(st.sampled_from(list(FETCHES)), st.sampled_from([None, None, BLUE])), min_size=1, max_size=3
)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(consumers=CONSUMERS, steps=STEPS, grouped=st.sampled_from([False, False, True]), shared=st.booleans())
@example(consumers=[("dequeue", None)], grouped=False, shared=False, steps=LATE)
@example(consumers=[("lock", None)], grouped=False, shared=False, steps=LATE)
@example(consumers=[("lock", None), ("lock", None)], grouped=False, shared=True, steps=LATE)
@example(consumers=[("claim", BLUE)], grouped=True, shared=False, steps=LATE)
@example(
    consumers=[("lock", None), ("claim for a transaction", None)], grouped=True, shared=False, steps=LOCKED_MEANWHILE
)
def test_messages_of_a_session_come_in_the_order_in_which_they_were_sent(
    clients: list[Client],
    consumers: list[tuple[str, Selector | None]],
    grouped: bool,
    shared: bool,
    steps: list[tuple[str, int, int]],
) -> None:
    model = Model(clients, consumers, grouped=grouped, shared=shared)
    try:
        for action, who, choice in steps:
            model.step(action, who, choice)
        model.finish()
    finally:
        for client in clients:
            client.connection.rollback()
