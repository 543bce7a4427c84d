"""Transactions that end messages of one batch side by side: every order of their steps, and every end.

A transaction ends a message, decides whether it was the last one, as it else does at its commit, and ends itself.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Collection, Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest

Connection = psycopg.Connection[Any]

ENDS = ("commit", "rollback", "kill", "prepare")
LEVELS = ("read committed", "read committed", "repeatable read")
DECIDE = "set constraints jmsql_internal.batch_may_have_ended immediate"
CLOSING = -1
MOVING = -2


class Batches:
    """Batches, seen and ended by SQL, with no client of jmsql."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.sql = psycopg.connect(url, autocommit=True)
        self.sql.execute("insert into jmsql_internal.queue (name) values ('parts'), ('ends'), ('target')")

    def connect(self) -> Connection:
        connection = psycopg.connect(self._url, autocommit=True)
        connection.execute("set lock_timeout = '3s'")  # none waits for another
        return connection

    def kill(self, connection: Connection) -> None:
        """End a connection; its transaction has been rolled back afterwards."""
        self.sql.execute("select pg_terminate_backend(%s, 60000)", (connection.info.backend_pid,))
        connection.close()

    def open(self, members: int, sentinels: Collection[int] = ()) -> int:
        """Open a batch with so many messages, and leave it open. Chance makes the sentinels unless some are named."""
        with self.sql.transaction():
            [(batch,)] = self.sql.execute("insert into jmsql_internal.batch (name) values ('a') returning batch_id")
            self.sql.execute(
                "insert into jmsql_internal.batch_callback (batch_id, event, queue_id) "
                "select %s, 'end', queue_id from jmsql_internal.queue where name = 'ends'",
                (batch,),
            )
            for number in range(members):
                self.add(self.sql, int(batch), str(number), number in sentinels if sentinels else None)
        return int(batch)

    def add(self, connection: Connection, batch: int, body: str, is_sentinel: bool | None = None) -> None:
        """Insert a message of a batch."""
        connection.execute(
            "insert into jmsql_internal.message (sequence, queue_id, inverse_priority, jms_message_id, "
            "jms_delivery_mode, message_type, properties, property_types, text_body) "
            "select case when %s::boolean then s.next * 64 when not %s then s.next * 64 + 1 else s.next end, "
            "queue_id, 5, %s, 2, 'TextMessage', %s, %s, %s from jmsql_internal.queue "
            "cross join nextval('jmsql_internal.message_sequence') as s (next) where name = 'parts'",
            (
                is_sentinel,
                is_sentinel,
                uuid4(),
                json.dumps({"JMS_jmsql_Batch": batch}),
                '{"JMS_jmsql_Batch": "long"}',
                body,
            ),
        )

    def callbacks(self) -> list[Any]:
        return [
            json_body
            for (json_body,) in self.sql.execute(
                "select json_body from jmsql_internal.message join jmsql_internal.queue q using (queue_id) "
                "where q.name = 'ends'"
            )
        ]

    def outstanding(self, batch: int) -> int:
        [(number,)] = self.sql.execute("select count(*) from jmsql_internal.open_members(%s, null)", (batch,))
        return int(number)

    def forget(self) -> None:
        self.sql.execute("delete from jmsql_internal.message; delete from jmsql_internal.batch_check")
        self.sql.execute("delete from jmsql_internal.batch_member; delete from jmsql_internal.batch")

    def left_checks(self) -> int:
        """Do the maintenance, and return how many checks it leaves."""
        self.sql.execute("select jmsql_internal.check_batches(100)")
        [(number,)] = self.sql.execute("select count(*) from jmsql_internal.batch_check")
        return int(number)


@pytest.fixture
def batches(jmsql_clean_url: str) -> Iterator[Batches]:
    found = Batches(jmsql_clean_url)
    yield found
    for (identifier,) in found.sql.execute("select gid from pg_prepared_xacts where database = current_database()"):
        found.sql.execute(f"rollback prepared '{identifier}'".encode())
    found.sql.close()


def schedules(number: int, most: int) -> list[tuple[tuple[int, ...], tuple[str, ...], tuple[str, ...]]]:
    """Return orders of the three steps of so many transactions, with their ends and isolation levels."""
    chance = random.Random(number)
    orders: list[tuple[int, ...]]
    if number == 2:
        orders = sorted(set(itertools.permutations([0, 0, 0, 1, 1, 1])))
        every = [
            (order, ends, ("read committed",) * 2) for order in orders for ends in itertools.product(ENDS, repeat=2)
        ]
        return chance.sample(every, most)
    chosen = []
    for _ in range(most):
        steps = [*range(number)] * 3
        chance.shuffle(steps)
        chosen.append(
            (
                tuple(steps),
                tuple(chance.choice(("commit", *ENDS)) for _ in range(number)),
                tuple(chance.choice(LEVELS) for _ in range(number)),
            )
        )
    return chosen


@pytest.mark.parametrize(("number", "most"), [(2, 40), (3, 24), (4, 16)])
@pytest.mark.parametrize("others", [(), (CLOSING,), (MOVING,)], ids=["ends", "with the end of the block", "a move"])
def test_the_callback_is_sent_once(batches: Batches, number: int, most: int, others: tuple[int, ...]) -> None:
    connections = [batches.connect() for _ in range(number)]
    for order, ends, levels in schedules(number, most):
        case = (order, ends, levels)
        members = number - len(others)
        extra = 1 if MOVING in others else 0
        batch = batches.open(members + extra)
        if CLOSING not in others:
            batches.sql.execute("update jmsql_internal.batch set closed = true where batch_id = %s", (batch,))
        steps = [0] * number
        prepared: list[str] = []
        for each in order:
            connection = connections[each]
            what = others[0] if each == 0 and others else each - len(others)
            if steps[each] == 0:
                connection.execute(f"begin isolation level {levels[each]}".encode())
                if what == CLOSING:
                    connection.execute("update jmsql_internal.batch set closed = true where batch_id = %s", (batch,))
                elif what == MOVING:
                    connection.execute("select jmsql.move('parts', 'target', max_messages => 1)")
                else:
                    # By addresses, as clients do: from the end, so that the first one moves.
                    body = str(members + extra - 1 - what)
                    if each % 2:  # two numbers of a transaction in the row: a multixact
                        connection.execute(
                            "select from jmsql_internal.message where text_body = %s for update", (body,)
                        )
                        connection.execute("savepoint inner_block")
                    connection.execute("delete from jmsql_internal.message where text_body = %s", (body,))
            elif steps[each] == 1:
                connection.execute(DECIDE)
            elif ends[each] == "kill":
                batches.kill(connection)
                connections[each] = batches.connect()
            elif ends[each] == "prepare" and what != MOVING:  # which has notified
                prepared.append(f"{batch} {each}")
                connection.execute(f"prepare transaction '{prepared[-1]}'".encode())
            else:
                connection.execute(b"rollback" if ends[each] == "rollback" else b"commit")
            steps[each] += 1
            if batches.callbacks():
                assert batches.outstanding(batch) == 0, case
        batches.sql.execute("select jmsql_internal.check_batches(100)")
        for identifier in prepared:
            batches.sql.execute(f"commit prepared '{identifier}'".encode())
            if batches.callbacks():
                assert batches.outstanding(batch) == 0, case
        batches.sql.execute("select jmsql_internal.check_batches(100)")
        if batches.outstanding(batch):
            assert batches.callbacks() == [], case
            batches.sql.execute("update jmsql_internal.batch set closed = true where batch_id = %s", (batch,))
            batches.sql.execute("delete from jmsql_internal.message where text_body is not null")
        batches.sql.execute("select jmsql_internal.check_batches(100)")
        total = members + extra
        found = batches.callbacks()
        assert len(found) == 1, case
        [callback] = found
        assert callback["total"] == callback["done"] == total, case
        batches.forget()
    for connection in connections:
        connection.close()


class Racer:
    """A session that ends messages of batches, one transaction after the other, whose steps others interleave."""

    def __init__(self, batches: Batches, chance: random.Random) -> None:
        self._batches = batches
        self._chance = chance
        self._connection = batches.connect()
        self.ended: list[str] | None = None  # by the open transaction
        self._added: list[str] = []

    def close(self) -> None:
        self._connection.close()

    def begin(self, batch: int, waiting: list[str], name: str, *, may_add: bool) -> None:
        """Begin a transaction that ends one or two of the messages, and may add one."""
        chance, connection = self._chance, self._connection
        connection.execute(f"begin isolation level {chance.choice(LEVELS)}".encode())
        self.ended, self._added = [], []
        if may_add and chance.random() < 0.2:
            connection.execute("select jmsql_internal.hold_batch(%s)", (batch,))
            self._batches.add(connection, batch, name, chance.random() < 0.7)
            self._added.append(name)
        for _ in range(chance.choice((1, 1, 1, 2))):
            if waiting:
                body = waiting.pop(chance.randrange(len(waiting)))
                self.ended.append(body)
                if chance.random() < 0.1:
                    connection.execute("savepoint inner_block")
                    connection.execute("delete from jmsql_internal.message where text_body = %s", (body,))
                    connection.execute("rollback to savepoint inner_block")
                connection.execute("delete from jmsql_internal.message where text_body = %s", (body,))

    def end(self, prepared: dict[str, tuple[list[str], list[str]]]) -> tuple[int, list[str]]:
        """End it in some way; return how many messages it has ended, and which wait afterwards."""
        assert self.ended is not None
        ended, self.ended = self.ended, None
        how = self._chance.choice(("commit", "commit", "commit", *ENDS))
        if self._chance.random() < 0.3:
            self._connection.execute(DECIDE)
        if how == "prepare":
            name = str(uuid4())
            self._connection.execute(f"prepare transaction '{name}'".encode())
            prepared[name] = (ended, self._added)
            return 0, []
        if how == "kill":
            self._batches.kill(self._connection)
            self._connection = self._batches.connect()
        else:
            self._connection.execute(how.encode())
        return (len(ended), self._added) if how == "commit" else (0, ended)


def race(batches: Batches, racers: list[Racer], chance: random.Random, case: str) -> None:
    """Open a batch, and let the racers end its messages: one callback is sent, and only after the end."""
    members = chance.randint(2, 14)
    sentinels = {number for number in range(members) if chance.random() < 0.3} or {0}
    batch = batches.open(members, sentinels)
    batches.sql.execute("update jmsql_internal.batch set closed = true where batch_id = %s", (batch,))
    waiting = [str(number) for number in range(members)]
    prepared: dict[str, tuple[list[str], list[str]]] = {}
    ended, serial = 0, itertools.count(members)
    while waiting or prepared or any(racer.ended is not None for racer in racers):
        racer = chance.choice(racers)
        if prepared and (chance.random() < 0.1 or (not waiting and all(each.ended is None for each in racers))):
            name = chance.choice(list(prepared))
            removed, added = prepared.pop(name)
            decision = chance.choice(("commit", "rollback"))
            batches.sql.execute(f"{decision} prepared '{name}'".encode())
            ended += len(removed) if decision == "commit" else 0
            waiting += added if decision == "commit" else removed
        elif racer.ended is not None:
            number, found = racer.end(prepared)
            ended += number
            waiting += found
        elif waiting:
            racer.begin(batch, waiting, str(next(serial)), may_add=ended < members)
        if chance.random() < 0.2:  # as a claim does
            batches.sql.execute("select from jmsql_internal.message for update skip locked")
        if chance.random() < 0.1:
            batches.sql.execute("select jmsql_internal.check_batches(100)")
        if batches.callbacks():
            assert batches.outstanding(batch) == 0, case
    assert batches.left_checks() == 0, case
    [callback] = batches.callbacks()
    assert callback["total"] == callback["done"] == ended, case
    batches.forget()


@pytest.mark.parametrize("seed", [203, 213])
def test_sessions_that_leave_the_look_to_sentinels_miss_no_end(batches: Batches, seed: int) -> None:
    chance = random.Random(seed)
    racers = [Racer(batches, chance) for _ in range(4)]
    for number in range(20):
        race(batches, racers, chance, f"{seed} {number}")
    for racer in racers:
        racer.close()


def test_a_session_that_ends_messages_of_two_batches_by_turns_looks_once_for_each(batches: Batches) -> None:
    number = 8
    for _ in range(2):
        batches.open(number, {number - 1})
    calls = "select pg_stat_get_xact_function_calls('jmsql_internal.find_witness(jsonb,uuid,bigint)'::regprocedure)"
    with batches.connect() as connection:
        connection.execute("set track_functions = 'all'; begin")
        for body in range(number - 1):
            connection.execute("delete from jmsql_internal.message where text_body = %s", (str(body),))
        assert connection.execute(calls).fetchone() == (2,)
        connection.execute("rollback")


@pytest.mark.parametrize("is_prepared", [False, True])
def test_a_message_that_a_handler_adds_keeps_the_batch_whose_other_message_is_purged(
    batches: Batches, is_prepared: bool
) -> None:
    batch = batches.open(1)
    batches.sql.execute("update jmsql_internal.batch set closed = true")
    with batches.connect() as handler, batches.connect() as late:
        handler.execute(f"begin; select jmsql_internal.hold_batch({batch})".encode())
        handler.execute(
            "insert into jmsql_internal.message (queue_id, inverse_priority, jms_message_id, jms_delivery_mode, "
            "message_type, properties, property_types) "
            "select queue_id, 5, gen_random_uuid(), 2, 'Message', properties, property_types "
            "from jmsql_internal.message limit 1"
        )
        if is_prepared:
            handler.execute("prepare transaction 'handler'")
        assert batches.sql.execute("select jmsql.purge('parts')").fetchone() == (1,)
        assert (batches.callbacks(), batches.left_checks()) == ([], 1)
        handler.execute("commit prepared 'handler'" if is_prepared else "commit")
        assert (batches.callbacks(), batches.left_checks()) == ([], 0)
        batches.sql.execute("begin; delete from jmsql_internal.message; set constraints all immediate")
        hold = "select jmsql_internal.hold_batch(%s)"
        with pytest.raises(psycopg.Error, match="is being ended"):
            late.execute(hold, (batch,))
        batches.sql.execute("commit")
        assert late.execute(hold, (batch,)).fetchone() == (False,)
    [callback] = batches.callbacks()
    assert (callback["total"], callback["done"], callback["cancelled"]) == (2, 1, 1)


def test_a_sentinel_that_is_rolled_back_after_its_session_has_gone_on_is_not_relied_on(batches: Batches) -> None:
    batch = batches.open(2, {-1})
    batches.sql.execute("update jmsql_internal.batch set closed = true")
    with batches.connect() as handler:
        handler.execute(f"begin; select jmsql_internal.hold_batch({batch})".encode())
        batches.add(handler, batch, "added", is_sentinel=True)
        handler.execute("delete from jmsql_internal.message where text_body = '0'; prepare transaction 'handler'")
        handler.execute("delete from jmsql_internal.message where text_body = '1'")
        handler.execute("rollback prepared 'handler'")
        handler.execute("delete from jmsql_internal.message where text_body = '0'")
    assert batches.left_checks() == 0
    [callback] = batches.callbacks()
    assert callback["done"] == 2


def test_a_handler_at_a_strict_level_that_is_prepared_does_not_hold_up_the_end_of_the_block(batches: Batches) -> None:
    batch = batches.open(1)
    with batches.connect() as handler, batches.connect() as opener, batches.connect() as late:
        for each in (handler, late):
            each.execute("begin isolation level repeatable read; select from jmsql_internal.batch")
        handler.execute("select jmsql_internal.hold_batch(%s)", (batch,))
        batches.add(handler, batch, "added")
        handler.execute("delete from jmsql_internal.message where text_body = '0'; prepare transaction 'handler'")
        opener.execute("update jmsql_internal.batch set closed = true")
        assert (batches.callbacks(), batches.left_checks()) == ([], 1)
        handler.execute("commit prepared 'handler'")
        assert (batches.callbacks(), batches.left_checks()) == ([], 0)
        batches.sql.execute("delete from jmsql_internal.message")
        with pytest.raises(psycopg.errors.SerializationFailure):
            late.execute("select jmsql_internal.hold_batch(%s)", (batch,))
    [callback] = batches.callbacks()
    assert callback["done"] == 2


def test_messages_that_were_locked_once_end_without_the_maintenance_piling_up_checks(batches: Batches) -> None:
    batch = batches.open(6)
    batches.sql.execute("update jmsql_internal.batch set closed = true")
    batches.sql.execute("begin; select from jmsql_internal.message for update; rollback")
    for number in (5, 0, 4, 1, 3):
        batches.sql.execute("delete from jmsql_internal.message where text_body = %s", (str(number),))
        assert batches.left_checks() == 0
    assert (batches.callbacks(), batches.outstanding(batch)) == ([], 1)
    batches.sql.execute("delete from jmsql_internal.message")
    assert [callback["done"] for callback in batches.callbacks()] == [6]


def test_a_transaction_that_ends_many_messages_looks_once(batches: Batches) -> None:
    batch = batches.open(10)
    batches.sql.execute("update jmsql_internal.batch set closed = true")
    checks = "select last_value from jmsql_internal.batch_check_check_id_seq"
    [(before,)] = batches.sql.execute(checks)
    with batches.connect() as connection:
        connection.execute("begin; delete from jmsql_internal.message where text_body <> '9'")
        connection.execute("savepoint a; delete from jmsql_internal.message; rollback to savepoint a; commit")
        assert (batches.callbacks(), batches.outstanding(batch)) == ([], 1)
        connection.execute("begin; savepoint a; delete from jmsql_internal.message; rollback to savepoint a")
        connection.execute("delete from jmsql_internal.message; commit")
    assert batches.left_checks() == 0
    assert [callback["done"] for callback in batches.callbacks()] == [10]
    [(after,)] = batches.sql.execute(checks)
    assert after - before <= 4


def test_a_batch_that_has_ended_is_found_beside_others_that_wait_for_an_open_transaction(batches: Batches) -> None:
    others = [batches.open(2) for _ in range(9)]
    mine = batches.open(2)
    batches.sql.execute("update jmsql_internal.batch set closed = true")
    member = "delete from jmsql_internal.message where text_body = %s and (properties ->> 'JMS_jmsql_Batch')::bigint"
    with batches.connect() as holding, batches.connect() as first, batches.connect() as second:
        holding.execute("begin")
        holding.execute(f"{member} = any(%s)".encode(), ("1", others))
        batches.sql.execute(f"{member} = any(%s)".encode(), ("0", others))
        for number, ending in enumerate((first, second)):
            ending.execute("begin")
            ending.execute(f"{member} = %s".encode(), (str(number), mine))
        for ending in (first, second):
            ending.execute(DECIDE)
        for ending in (first, second):
            ending.execute("commit")
        assert batches.callbacks() == []
        for _ in range(200):  # one in ten looks finds it
            batches.sql.execute("select jmsql_internal.check_batches(1)")
            if batches.callbacks():
                break
        assert [callback["done"] for callback in batches.callbacks()] == [2]


def test_a_message_that_is_committed_after_the_end_of_its_batch_can_move(batches: Batches) -> None:
    batch = batches.open(1)
    late = batches.connect()
    with late.transaction():
        batches.add(late, batch, "late")
        batches.sql.execute("delete from jmsql_internal.message where text_body = '0'")
        batches.sql.execute("update jmsql_internal.batch set closed = true where batch_id = %s", (batch,))
        assert len(batches.callbacks()) == 1
    late.close()
    batches.sql.execute("select jmsql_internal.remove_batches(1000)")
    assert batches.sql.execute("select jmsql.move('parts', 'target')").fetchone() == (1,)
    assert batches.outstanding(batch) == 1
