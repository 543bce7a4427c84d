"""A consumer's way through its queue: it does not look back, except to sweep."""

from __future__ import annotations

import pytest

from jmsql.exceptions import JMSException
from jmsql.selectors import Selector
from jmsql.store.receiving.acknowledge import Recipient
from jmsql.store.receiving.late_messages import ScanStart
from jmsql.store.receiving.reader import QueueReader, ScanPosition
from jmsql.store.receiving.receive import GroupScan, claim, dequeue, highest_sequences, lock
from jmsql.store.rows.message_rows import LastRow, MessageRow
from jmsql.store.sending.send import send as store_send
from jmsql.store.statement import Steps
from jmsql.testing import wait_for
from jmsql.timings import InternalTimings
from tests.integration.store.conftest import FROM_THE_FRONT, Client, OpenClient, as_locked, bodies, send, text_message


@pytest.fixture
def reader(queue_id: int) -> QueueReader:
    return QueueReader(queue_id, None, dequeue, ScanPosition(InternalTimings().sweep_interval))


def test_each_read_goes_on_where_the_last_one_ended(reader: QueueReader, client: Client) -> None:
    send(client, "first", "second", "third")

    assert [bodies(client.run(reader.read(1))) for _ in range(4)] == [["first"], ["second"], ["third"], []]


def test_late_messages_are_found_when_nothing_else_is_there(
    reader: QueueReader, client: Client, open_client: OpenClient
) -> None:
    late = open_client(transactions=True)
    send(late, "sent first, committed last")
    send(client, "sent last, committed first")
    assert bodies(client.run(reader.read(1))) == ["sent last, committed first"]

    late.connection.commit()

    assert bodies(wait_for(lambda: client.run(reader.read(1)))) == ["sent first, committed last"]


def test_late_messages_are_found_in_a_queue_that_never_ends(
    reader: QueueReader, client: Client, open_client: OpenClient
) -> None:
    late = open_client(transactions=True)
    send(late, "late")
    send(client, "early")
    assert bodies(client.run(reader.read(1))) == ["early"]
    late.connection.commit()

    def next_one() -> bool:
        send(client, "more")
        return bodies(client.run(reader.read(1))) == ["late"]

    wait_for(next_one)


def test_a_consumer_with_a_selector_scans_mismatches_only_once(client: Client, queue_id: int) -> None:
    send(client, "other", "other", "other")
    reader = QueueReader(
        queue_id, Selector.parse("color = 'blue'"), dequeue, ScanPosition(InternalTimings().sweep_interval)
    )

    assert client.run(reader.read(10)) == []

    (highest,) = client.rows("select max(sequence) from jmsql_internal.message")
    assert reader.position.bounds.lowest[5] == highest[0] + 1


def names_of_statements(client: Client, steps: Steps[object]) -> list[str]:
    names = []
    try:
        query = next(steps)
        while True:
            names.append(query.statement.name)
            query = steps.send(client.run(query))
    except StopIteration:
        return names


def test_a_read_that_finds_nothing_asks_once_for_groups_and_for_messages_further_back(
    reader: QueueReader, client: Client
) -> None:
    send(client, "only")
    assert bodies(client.run(reader.read(1))) == ["only"]
    reader.position.bounds.swept(0.0)

    assert names_of_statements(client, reader.read(1)) == ["take", "has_messages"]


def test_may_find_is_true_while_a_read_may_find_a_message(
    reader: QueueReader, client: Client, open_client: OpenClient, queue_id: int
) -> None:
    assert not client.run(reader.may_find())
    send(client, "late", "early")
    assert client.run(reader.may_find())
    other = open_client(transactions=True)
    assert len(other.run(lock(queue_id, None, FROM_THE_FRONT, 2))) == 2
    reader.position.bounds.swept(0.0)
    assert not client.run(reader.may_find()), "another one has locked them"
    other.connection.rollback()
    assert client.run(reader.may_find())
    assert bodies(client.run(reader.read(2))) == ["late", "early"]
    assert not client.run(reader.may_find())


def test_a_poll_finds_late_messages(reader: QueueReader, client: Client, open_client: OpenClient) -> None:
    late = open_client(transactions=True)
    send(late, "sent first, committed last")
    send(client, "sent last, committed first")
    assert bodies(client.run(reader.read(1))) == ["sent last, committed first"]
    assert not client.run(reader.may_find())

    late.connection.commit()

    wait_for(lambda: client.run(reader.may_find()))
    assert bodies(wait_for(lambda: client.run(reader.read(1)))) == ["sent first, committed last"]


def test_a_look_leaves_groups_to_a_read(reader: QueueReader, client: Client, queue_id: int) -> None:
    assert not client.run(reader.may_find())
    client.rows(
        "insert into jmsql_internal.message (queue_id, inverse_priority, jms_delivery_mode, message_type, properties) "
        f"select {queue_id}, 5, 2, 'Message', '{{\"JMSXGroupID\": \"a\"}}' returning 1"
    )
    assert client.run(reader.may_find())
    assert len(client.run(reader.read(1, may_have_changed=False))) == 1
    assert client.run(reader.may_find())


def test_first_group_of_a_queue_is_found_at_once(reader: QueueReader, client: Client, queue_id: int) -> None:
    send(client, "of no group")
    assert len(client.run(reader.read(1))) == 1
    reader.position.bounds.swept(60.0)  # as after a long sweep: no other is due for twenty minutes
    client.rows(
        "insert into jmsql_internal.message (queue_id, inverse_priority, jms_delivery_mode, message_type, properties) "
        f"select {queue_id}, 5, 2, 'Message', '{{\"JMSXGroupID\": \"a\"}}' returning 1"
    )

    assert len(client.run(reader.read(1))) == 1


def test_a_reader_that_has_just_found_a_message_does_not_ask_for_groups(client: Client, queue_id: int) -> None:
    asked: list[str] = []
    reader = QueueReader(queue_id, None, dequeue, ScanPosition(InternalTimings().sweep_interval))

    def read(*, may_have_changed: bool) -> int:
        steps = iter(reader.read(1, may_have_changed=may_have_changed))
        try:
            query = next(steps)
            while True:
                asked.append(query.statement.name)
                query = steps.send(client.run(query))
        except StopIteration as end:
            return len(end.value)

    send(client, "a", "b")
    for _ in range(2):
        assert read(may_have_changed=False) == 1
    reader.position.bounds.swept(60.0)
    assert read(may_have_changed=False) == 0
    assert asked == ["take"] * 3
    assert read(may_have_changed=False) == 0
    assert asked == ["take"] * 4 + ["has_groups"], "it has found nothing before, and may have missed something"
    send(client, "c")
    assert read(may_have_changed=False) == 1
    assert read(may_have_changed=True) == 0
    assert asked[-3:] == ["take", "take", "has_groups"]


def test_the_end_of_a_queue_with_groups_is_looked_up_only_after_a_batch_that_was_not_full(
    client: Client, queue_id: int
) -> None:
    asked: list[str] = []
    reader = QueueReader(queue_id, None, lock, ScanPosition(InternalTimings().sweep_interval))

    def read(limit: int) -> int:
        steps = iter(reader.read(limit))
        try:
            query = next(steps)
            while True:
                asked.append(query.statement.name)
                query = steps.send(client.run(query))
        except StopIteration as end:
            return len(end.value)

    client.rows(
        "insert into jmsql_internal.message (queue_id, inverse_priority, jms_delivery_mode, message_type, properties) "
        f"select {queue_id}, 5, 2, 'Message', '{{\"JMSXGroupID\": \"a\"}}' from generate_series(1, 3) returning 1"
    )
    assert read(1) == 1  # it finds out that there are groups, and sweeps
    reader.position.bounds.swept(60.0)
    asked.clear()
    assert read(1) == 1
    assert "highest_sequences" not in asked
    assert read(5) < 5
    assert "highest_sequences" not in asked
    read(5)
    assert asked.count("highest_sequences") == 1


def test_groups_that_are_free_again_do_not_keep_the_scan_from_later_messages(client: Client, queue_id: int) -> None:
    def insert(first: int, count: int, group: str) -> list[int]:
        rows = client.rows(
            "insert into jmsql_internal.message "
            "(queue_id, inverse_priority, jms_delivery_mode, message_type, sequence, properties) "
            f"select {queue_id}, 5, 2, 'Message', n, jsonb_build_object('JMSXGroupID', {group}) "
            f"from generate_series({first}, {first + count - 1}) as n returning group_hash"
        )
        return [row[0] for row in rows]

    reader = QueueReader(queue_id, None, dequeue, ScanPosition(InternalTimings().sweep_interval))
    insert(1000, 1, "'first'")
    assert len(client.run(reader.read(100))) == 1
    insert(2000, 200, "null")
    for group in insert(1, 20, "'group ' || n"):
        reader.freed(group)

    found = 0
    while rows := client.run(reader.read(100, look_everywhere=False)):
        found += len(rows)
    assert found == 220


def test_later_messages_of_a_group_that_is_free_again_do_not_hide_earlier_ones(
    client: Client, open_client: OpenClient, queue_id: int
) -> None:
    for text, group in [("a1", "a"), ("b1", "b"), ("c1", "c"), ("d1", "d"), ("e1", "e"), ("a2", "a")]:
        client.run(store_send([text_message(text)._replace(properties=f'{{"JMSXGroupID": "{group}"}}')]))
    reader = QueueReader(queue_id, None, lock, ScanPosition(3600.0))
    consumer = open_client(transactions=True)
    first = consumer.run(reader.read(2))
    assert bodies(first) == ["a1", "b1"]
    consumer.connection.rollback()
    assert first[0].group_hash is not None
    reader.freed(first[0].group_hash)
    rows = consumer.run(reader.read(4))
    assert bodies(rows) == ["a1", "c1", "d1", "a2"]
    consumer.run(Recipient().delete_locked(as_locked(rows), {queue_id}))

    assert bodies(consumer.run(reader.read(1, look_everywhere=False))) == ["e1"]


def test_places_without_messages_do_not_narrow_later_scans(client: Client, queue_id: int) -> None:
    def insert(first: int, count: int) -> list[int]:
        rows = client.rows(
            "insert into jmsql_internal.message "
            "(queue_id, inverse_priority, jms_delivery_mode, message_type, sequence, properties) "
            f"select {queue_id}, 5, 2, 'Message', n, jsonb_build_object('JMSXGroupID', n) "
            f"from generate_series({first}, {first + count - 1}) as n returning group_hash"
        )
        return [row[0] for row in rows]

    reader = QueueReader(queue_id, None, dequeue, ScanPosition(3600.0))
    insert(1000, 1)
    assert len(client.run(reader.read(100))) == 1
    for group in insert(1, 15):
        reader.freed(group)
    insert(2000, 400)
    assert len(client.run(reader.read(2, look_everywhere=False))) == 2
    client.rows("delete from jmsql_internal.message where sequence < 1000 returning 1")

    client.run(reader.read(100, look_everywhere=False))

    assert len(client.run(reader.read(100, look_everywhere=False))) == 100


@pytest.mark.parametrize("limit", [1, 2])
def test_claims_that_a_scan_for_late_messages_meets_again_hide_no_others(
    client: Client, open_client: OpenClient, queue_id: int, limit: int
) -> None:
    running = open_client(transactions=True)
    running.rows("select pg_current_xact_id()")
    texts = [str(number) for number in range(2 * limit)]
    send(client, *texts)

    def fetch(
        queue_id: int, selector: Selector | None, start: ScanStart, limit: int, groups: GroupScan | None = None
    ) -> Steps[list[MessageRow]]:
        return claim(queue_id, selector, start, limit, connection_id=1, groups=groups)

    reader = QueueReader(queue_id, None, fetch, ScanPosition(3600.0))
    assert bodies(client.run(reader.read(limit))) == texts[:limit]
    running.connection.commit()

    assert bodies(client.run(reader.read(limit, look_everywhere=False))) == texts[limit:]


def test_a_claim_is_tried_again_after_a_delivery_was_recorded_meanwhile(client: Client, queue_id: int) -> None:
    send(client, "first")
    claiming = claim(queue_id, None, FROM_THE_FRONT, 2, connection_id=1)
    query = next(claiming)

    assert claiming.throw(JMSException("A delivery was recorded.", "23505")) is query
    assert bodies(client.run(query)) == ["first"]


@pytest.mark.parametrize("selector", [None, "color is null"])
def test_a_dequeued_message_tells_if_another_one_follows(
    client: Client, open_client: OpenClient, queue_id: int, selector: str | None
) -> None:
    chosen = None if selector is None else Selector.parse(selector)

    def dequeued(start: ScanStart = FROM_THE_FRONT) -> tuple[list[str | None], object]:
        rows = client.run(dequeue(queue_id, chosen, start, 1, asks=True))
        return bodies(rows), not isinstance(rows[0], LastRow)

    late = open_client(transactions=True)
    send(late, "late")
    send(client, "1", "2")
    assert dequeued() == (["1"], True)
    assert dequeued() == (["2"], False)
    send(client, "3")
    late.connection.commit()
    above, _ = client.run(highest_sequences(queue_id, FROM_THE_FRONT.lowest))
    assert dequeued(ScanStart(above)) == (["3"], True)  # in front of where it looks for the first
    holder = open_client(transactions=True)
    send(client, "4")
    assert bodies(holder.run(lock(queue_id, chosen, FROM_THE_FRONT, 1))) == ["late"]
    assert dequeued() == (["4"], False)


def pass_and_roll_back(reader: QueueReader, consumer: Client, count: int) -> None:
    """Pass messages that are free again, without the client's knowledge, as after a lost connection."""
    assert len(consumer.run(reader.read(count))) == count
    consumer.connection.rollback()
    reader.position.bounds.swept(60.0)  # as after a long sweep: no other is due for twenty minutes


def test_a_reader_that_joins_a_shared_position_finds_messages_below_its_bounds(
    client: Client, open_client: OpenClient, queue_id: int
) -> None:
    send(client, "first", "second", "third")
    consumer, other = open_client(transactions=True), open_client(transactions=True)
    position = ScanPosition(3600.0)
    early = QueueReader(queue_id, None, lock, position)
    pass_and_roll_back(early, consumer, 2)

    joining = QueueReader(queue_id, None, lock, position)

    assert not joining.has_passed
    assert other.run(joining.may_find())
    assert bodies(other.run(joining.read(1, look_everywhere=False))) == ["first"]
    assert bodies(consumer.run(early.read(1, look_everywhere=False))) == ["second"]


def test_an_older_scan_does_not_hide_the_rest_of_a_scan_from_the_front(
    client: Client, open_client: OpenClient, queue_id: int
) -> None:
    send(client, "first", "second", "third", "fourth")
    consumer, other = open_client(transactions=True), open_client(transactions=True)
    position = ScanPosition(3600.0)
    early = QueueReader(queue_id, None, lock, position)
    pass_and_roll_back(early, consumer, 3)
    older = early.read(1, look_everywhere=False)
    found = consumer.run(next(older))

    joining = QueueReader(queue_id, None, lock, position)
    assert bodies(other.run(joining.read(1, look_everywhere=False))) == ["first"]
    with pytest.raises(StopIteration) as end:
        older.send(found)
    assert bodies(end.value.value) == ["fourth"]

    assert bodies(consumer.run(early.read(1, look_everywhere=False))) == ["second"]


def test_a_scan_from_the_front_that_has_stopped_early_goes_on_with_lower_priorities(
    client: Client, open_client: OpenClient, queue_id: int
) -> None:
    client.run(store_send([text_message("low")._replace(inverse_priority=9)]))
    send(client, "first", "second")
    consumer = open_client(transactions=True)
    reader = QueueReader(queue_id, None, lock, ScanPosition(3600.0))
    pass_and_roll_back(reader, consumer, 3)
    reader.position.bounds._next_sweep = 0.0

    reads = [consumer.run(reader.read(1, look_everywhere=False)) for _ in range(3)]

    assert [body for rows in reads for body in bodies(rows)] == ["first", "second", "low"]
