"""Several consumers of one queue: each message goes to one of them, at whatever moment they meet."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from jmsql.exceptions import TransactionRolledBackException
from jmsql.selectors import Selector
from jmsql.store.history.keeping import QueuesWithHistory
from jmsql.store.receiving import receive
from jmsql.store.receiving.acknowledge import Recipient
from jmsql.store.receiving.redelivery import Release, record_attempts, record_first_deliveries
from jmsql.store.rows.message_rows import ClaimedRow, LockedRow, MessageRow
from jmsql.store.statement import Query
from jmsql.testing import wait_for
from tests.gate import Gate, gate_closed
from tests.integration.store.conftest import (
    FROM_THE_FRONT,
    Client,
    OpenClient,
    as_claimed,
    as_locked,
    bodies,
    key,
    send,
)
from tests.integration.store.plans import Plan

CONNECTION = 1

RECIPIENT = Recipient()


@dataclass(frozen=True)
class _KnowingClient:
    """A client that knows that no queue keeps history."""

    connection_id: int = CONNECTION
    may_ask_to_dequeue: bool = True
    queues_with_history: QueuesWithHistory = field(default_factory=lambda: QueuesWithHistory(1.0, is_told=True))


every_recipient = pytest.mark.parametrize(
    "recipient", [Recipient(), Recipient(_KnowingClient())], ids=["perhaps with history", "without history"]
)


def lock(client: Client, queue_id: int, selector: Selector | None = None) -> list[LockedRow]:
    return as_locked(client.run(receive.lock(queue_id, selector, FROM_THE_FRONT, 2)))


def dequeue(client: Client, queue_id: int, selector: Selector | None = None) -> list[MessageRow]:
    return client.run(receive.dequeue(queue_id, selector, FROM_THE_FRONT, 2))


def claim(client: Client, queue_id: int, selector: Selector | None = None, limit: int = 2) -> list[ClaimedRow]:
    return as_claimed(client.run(receive.claim(queue_id, selector, FROM_THE_FRONT, limit, CONNECTION)))


every_way = pytest.mark.parametrize("fetch", [lock, dequeue, claim])
Fetch = Callable[..., Sequence[MessageRow]]


@every_way
def test_messages_come_in_their_order(fetch: Fetch, client: Client, queue_id: int) -> None:
    send(client, "first", "second", "third")

    assert bodies(fetch(client, queue_id)) == ["first", "second"]


@every_way
def test_locked_messages_are_passed_over(fetch: Fetch, client: Client, open_client: OpenClient, queue_id: int) -> None:
    send(client, "first", "second", "third", "fourth")
    locker = open_client(transactions=True)
    assert bodies(lock(locker, queue_id)) == ["first", "second"]

    assert bodies(fetch(client, queue_id)) == ["third", "fourth"]


@pytest.mark.parametrize("has_been_outrun", [True, False])
def test_the_lock_manager_is_not_asked_about_messages_locked_by_the_transaction(
    has_been_outrun: bool, client: Client, open_client: OpenClient, queue_id: int
) -> None:
    send(client, *"abcdefghijklmnopqr")
    locker, receiver = open_client(transactions=True), open_client(transactions=True)
    query = receive.lock(queue_id, None, FROM_THE_FRONT, 6)
    assert bodies(locker.run(query)) == [*"abcdef"]
    if has_been_outrun:
        send(client, "s")  # by a transaction that is younger, and has ended

    assert _rows_to_lock(receiver, query) == 6
    assert bodies(receiver.run(query)) == [*"ghijkl"]
    assert _rows_to_lock(receiver, query) == 6  # its own


def _rows_to_lock(client: Client, query: Query[Any]) -> int:
    """Run a statement, and return how many rows it has tried to lock."""
    explained = b"explain (analyze, format json) " + query.statement.encoded("jmsql")
    row = client.connection.execute(explained, query.parameters).fetchone()
    assert row is not None
    return sum(
        round(node["Actual Rows"] * node["Actual Loops"])
        for parent in Plan(row[0][0]["Plan"]).nodes
        if parent["Node Type"] == "LockRows"
        for node in parent["Plans"]
    )


def test_a_transaction_finds_messages_locked_since_a_savepoint_again(
    client: Client, open_client: OpenClient, queue_id: int
) -> None:
    send(client, "first", "second")
    receiver = open_client(transactions=True)
    receiver.connection.execute("savepoint before")
    assert bodies(lock(receiver, queue_id)) == ["first", "second"]
    assert bodies(lock(receiver, queue_id)) == ["first", "second"]

    receiver.connection.execute("rollback to savepoint before")

    assert bodies(lock(receiver, queue_id)) == ["first", "second"]


@every_way
def test_claimed_messages_are_passed_over(fetch: Fetch, client: Client, queue_id: int) -> None:
    send(client, "first", "second", "third", "fourth")
    assert bodies(claim(client, queue_id)) == ["first", "second"]

    assert bodies(fetch(client, queue_id)) == ["third", "fourth"]


@every_way
def test_messages_that_a_transaction_releases_are_there_again(
    fetch: Fetch, client: Client, open_client: OpenClient, queue_id: int
) -> None:
    send(client, "first", "second")
    locker = open_client(transactions=True)
    locker.run(RECIPIENT.delete_locked(lock(locker, queue_id), [queue_id]))

    locker.connection.rollback()

    assert bodies(fetch(client, queue_id)) == ["first", "second"]


@every_way
def test_released_messages_are_there_again_and_counted(fetch: Fetch, client: Client, queue_id: int) -> None:
    send(client, "first", "second")
    claimed = claim(client, queue_id)
    delivered, prefetched = (Release(key(queue_id, row), row.handle) for row in claimed)

    client.run(RECIPIENT.release([Release(delivered.key, delivered.claim_id, attempts=1), prefetched]))

    assert [(row.text_body, row.delivery_count or 0) for row in fetch(client, queue_id)] == [
        ("first", 1),
        ("second", 0),
    ]


@every_way
def test_a_message_that_waits_for_its_next_attempt_is_passed_over(fetch: Fetch, client: Client, queue_id: int) -> None:
    send(client, "first", "second")
    row = claim(client, queue_id)[0]
    client.run(
        RECIPIENT.release([Release(key(queue_id, row), row.handle, attempts=1, delay=60.0, error="out of stock")])
    )

    assert bodies(fetch(client, queue_id)) == []
    assert client.rows("select state, last_error from jmsql.messages where body = 'first'") == [
        ("waiting", "out of stock")
    ]


def test_deliveries_counted_late_are_added_to_the_recorded_ones(
    client: Client, open_client: OpenClient, queue_id: int
) -> None:
    send(client, "first", "second")
    locker = open_client(transactions=True)
    keys = [key(queue_id, row) for row in lock(locker, queue_id)]
    client.run(record_attempts([Release(keys[1], attempts=1)]))  # by who had rolled back before they were locked

    claim_id = client.run(record_first_deliveries(keys, CONNECTION))

    client.run(RECIPIENT.release([Release(each, claim_id, attempts=1) for each in keys]))
    locker.connection.rollback()
    assert [row.delivery_count for row in claim(client, queue_id)] == [1, 2]


@every_recipient
@pytest.mark.parametrize("strangers", [0, 10], ids=["close together", "far apart"])
def test_a_commit_forgets_the_deliveries_of_its_own_claims_alone(
    strangers: int, recipient: Recipient, client: Client, open_client: OpenClient, queue_id: int
) -> None:
    send(client, "first", *["between"] * (strangers + 1), "last")
    mine = open_client(transactions=True)
    fetched = mine.run(receive.lock(queue_id, None, FROM_THE_FRONT, strangers + 3))
    keys = [key(queue_id, row) for row in fetched]
    client.run(record_first_deliveries(keys[1:-1], CONNECTION + 1))
    own = [keys[0], keys[-1]]
    claim_id = client.run(record_first_deliveries(own, CONNECTION))

    for query in recipient.last_deletions(as_locked([fetched[0], fetched[-1]]), {queue_id}, own, [claim_id] * 2):
        mine.run(query)
    mine.connection.commit()

    found = client.connection.execute("select sequence from jmsql_internal.delivery order by sequence").fetchall()
    assert [sequence for (sequence,) in found] == [each.sequence for each in keys[1:-1]]


@pytest.mark.parametrize("fetch", [lock, dequeue])  # claims are made outside of transactions
def test_a_transaction_passes_over_its_own_messages(fetch: Fetch, open_client: OpenClient, queue_id: int) -> None:
    sender = open_client(transactions=True)
    send(sender, "mine")

    assert fetch(sender, queue_id) == []


@every_way
@pytest.mark.parametrize("winner", [dequeue, claim])
def test_a_consumer_delayed_after_its_snapshot_does_not_get_messages_taken_meanwhile(
    fetch: Fetch, winner: Fetch, client: Client, open_client: OpenClient, queue_id: int
) -> None:
    send(client, "only one")
    late = open_client()
    with ThreadPoolExecutor() as executor:
        with gate_closed(open_client().connection):
            held_up = executor.submit(fetch, late, queue_id, cast(Selector, Gate()))
            wait_for(lambda: client.rows("select from pg_locks where locktype = 'advisory' and not granted"))
            assert bodies(winner(client, queue_id)) == ["only one"]
        assert held_up.result() == []


def test_consumers_at_once_share_a_queue_without_loss_or_duplicate(
    client: Client, open_client: OpenClient, queue_id: int
) -> None:
    sent = {str(number) for number in range(600)}
    send(client, *sent)
    start = threading.Barrier(3)

    def by_locks(consumer: Client) -> list[str | None]:
        received: list[str | None] = []
        start.wait()
        while rows := consumer.run(receive.lock(queue_id, None, FROM_THE_FRONT, 7)):
            consumer.run(RECIPIENT.delete_locked(as_locked(rows), [queue_id]))
            consumer.connection.commit()
            received += bodies(rows)
        consumer.connection.rollback()  # it may have locked what it then found to be claimed
        return received

    def by_dequeues(consumer: Client) -> list[str | None]:
        received: list[str | None] = []
        start.wait()
        while rows := dequeue(consumer, queue_id):
            received += bodies(rows)
        return received

    def by_claims(consumer: Client) -> list[str | None]:
        received: list[str | None] = []
        start.wait()
        while rows := claim(consumer, queue_id, limit=7):
            received += bodies(rows)
            consumer.run(RECIPIENT.acknowledge([(key(queue_id, row), row.handle) for row in rows]))
        return received

    with ThreadPoolExecutor() as executor:
        shares = [
            executor.submit(by_locks, open_client(transactions=True)),
            executor.submit(by_dequeues, open_client()),
            executor.submit(by_claims, open_client()),
        ]
        received = [body for share in shares for body in share.result()]

    # One that found all that is left in other hands went home; a later consumer finds what came back, if any.
    received += bodies(client.run(receive.dequeue(queue_id, None, FROM_THE_FRONT, 1000)))
    assert len(received) == len(sent)
    assert set(received) == sent


@every_recipient
class TestTheFence:
    """A claim that was taken away acknowledges nothing."""

    def test_an_acknowledgement_deletes_claimed_messages(
        self, recipient: Recipient, client: Client, queue_id: int
    ) -> None:
        send(client, "first", "second")
        claimed = claim(client, queue_id)

        acknowledged = client.run(recipient.acknowledge([(key(queue_id, row), row.handle) for row in claimed]))

        assert acknowledged == 2
        assert client.rows("select count(*) from jmsql_internal.message") == [(0,)]
        assert client.rows("select count(*) from jmsql_internal.delivery") == [(0,)]

    def test_a_lost_claim_does_not_acknowledge(self, recipient: Recipient, client: Client, queue_id: int) -> None:
        send(client, "contested")
        lost = claim(client, queue_id)[0]
        client.run(recipient.release([Release(key(queue_id, lost), lost.handle, attempts=1)]))
        current = claim(client, queue_id)[0]

        assert client.run(recipient.acknowledge([(key(queue_id, lost), lost.handle)])) == 0
        assert client.run(recipient.acknowledge([(key(queue_id, current), current.handle)])) == 1

    @pytest.mark.parametrize("strangers", [0, 10], ids=["close together", "far apart"])
    def test_each_message_is_acknowledged_by_its_own_claim(
        self, strangers: int, recipient: Recipient, client: Client, queue_id: int
    ) -> None:
        """Also where the claim that was lost and the one that holds its message now are the same session's."""
        send(client, "first", *["between"] * strangers, "last")
        [lost] = claim(client, queue_id, limit=1)
        if strangers:
            client.run(receive.claim(queue_id, None, FROM_THE_FRONT, strangers, CONNECTION + 1))
        client.run(recipient.release([Release(key(queue_id, lost), lost.handle, attempts=1)]))
        first, last = claim(client, queue_id)

        acknowledged = [(key(queue_id, last), last.handle), (key(queue_id, lost), lost.handle)]
        assert client.run(recipient.acknowledge(acknowledged)) == 1

        assert client.rows("select count(*) from jmsql_internal.message") == [(1 + strangers,)]
        assert client.run(recipient.acknowledge([(key(queue_id, first), first.handle)])) == 1
        assert client.rows("select distinct connection_id from jmsql_internal.delivery") == [(CONNECTION + 1,)] * bool(
            strangers
        )

    @pytest.mark.parametrize(
        ("strangers", "are_whole"),
        [(0, False), (0, True), (10, False)],
        ids=["close together", "whole claim", "far apart"],
    )
    def test_a_commit_fails_if_a_claim_is_lost(
        self, strangers: int, are_whole: bool, recipient: Recipient, client: Client, queue_id: int
    ) -> None:
        send(client, "first", *["between"] * strangers, "last")
        first, *_, last = claim(client, queue_id, limit=strangers + 2)
        client.run(recipient.release([Release(key(queue_id, first), first.handle)]))

        with pytest.raises(TransactionRolledBackException, match="The message was taken away") as failure:
            client.run(recipient.last_acknowledgement([(queue_id, [first, last])], are_whole=are_whole))

        assert failure.value.error_code == "JMS05"
        assert client.rows("select count(*) from jmsql_internal.message") == [(2 + strangers,)]

    def test_a_commit_that_deletes_whole_claims_spares_other_messages(
        self, recipient: Recipient, client: Client, queue_id: int
    ) -> None:
        send(client, "other", "first", "claimed by others", "last")
        [other] = claim(client, queue_id, limit=1)
        [first] = claim(client, queue_id, limit=1)
        client.run(receive.claim(queue_id, None, FROM_THE_FRONT, 1, CONNECTION + 1))
        [last] = claim(client, queue_id, limit=1)

        client.run(recipient.last_acknowledgement([(queue_id, [first, last])], are_whole=True))
        client.run(recipient.last_acknowledgement([(queue_id, [other])], are_whole=True))

        assert client.rows("select text_body from jmsql_internal.message") == [("claimed by others",)]
        assert client.rows("select connection_id from jmsql_internal.delivery") == [(CONNECTION + 1,)]

    def test_a_claim_is_not_deleted_as_a_whole_if_it_has_other_messages(
        self, recipient: Recipient, client: Client, queue_id: int
    ) -> None:
        send(client, "first", "between", "last")
        first, _, last = claim(client, queue_id, limit=3)

        if recipient.is_restricted:  # it names each message
            client.run(recipient.last_acknowledgement([(queue_id, [first, last])], are_whole=True))
            assert client.rows("select text_body from jmsql_internal.message") == [("between",)]
            return
        with pytest.raises(TransactionRolledBackException):
            client.run(recipient.last_acknowledgement([(queue_id, [first, last])], are_whole=True))
        assert client.rows("select count(*) from jmsql_internal.message") == [(3,)]

    def test_a_lost_claim_does_not_release(self, recipient: Recipient, client: Client, queue_id: int) -> None:
        send(client, "contested")
        lost = claim(client, queue_id)[0]
        client.run(recipient.release([Release(key(queue_id, lost), lost.handle, attempts=1)]))
        claim(client, queue_id)

        client.run(recipient.release([Release(key(queue_id, lost), lost.handle, attempts=1)]))

        assert client.rows("select state, delivery_count from jmsql.messages") == [("claimed", 1)]
