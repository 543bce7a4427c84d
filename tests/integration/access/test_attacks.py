"""What roles with little access have tried, to get more of it or to be in the way of others."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg import sql

from jmsql import AcknowledgeMode, ConnectionFactory, JMSException, JMSSecurityException, Queue, Session, Topic, migrate
from jmsql.admin import Administration
from jmsql.store.receiving.late_messages import ScanStart
from jmsql.store.receiving.receive import ask_to_dequeue, dequeue
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.testing import receive_all, wait_for
from tests.integration.access.conftest import Plain
from tests.slowness import scaled
from tests.texts import send_texts, texts_of

ORDERS, SECRETS, PRICES = Queue("orders"), Queue("secrets"), Topic("prices")
REFUSED = (psycopg.errors.InsufficientPrivilege, psycopg.errors.CheckViolation)
TEMPORARY = "temporary-00000000-0000-0000-0000-00000000000a"


def numbers(database: psycopg.Connection[Any], name: str) -> int:
    """The number of a queue."""
    row = database.execute("select queue_id from jmsql_internal.queue where name = %s", [name]).fetchone()
    assert row is not None
    return int(row[0])


def connect_by_hand(plain: psycopg.Connection[Any]) -> int:
    """Be a client, as far as the tables say."""
    row = plain.execute("select jmsql_internal.connect_client('here', 1)").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("kind", ["sender", "receiver"])
def test_a_subscription_names_no_queue_of_others(
    kind: str, plain: Plain, owner: psycopg.Connection[Any], session: Session
) -> None:
    send_texts(session, SECRETS, "hidden")
    secrets = numbers(owner, "secrets")
    thief = plain(kind)
    mine = connect_by_hand(thief)
    thief.execute("insert into jmsql_internal.topic (name, connection_id) values (%s, %s)", [TEMPORARY, mine])
    with pytest.raises(REFUSED):
        thief.execute(
            "insert into jmsql_internal.subscription (queue_id, topic_id, durable, shared, no_local) "
            "select %s, topic_id, false, false, false from jmsql_internal.topic where name = %s",
            [secrets, TEMPORARY],
        )
    thief.execute(
        "insert into jmsql_internal.subscription (topic_id, durable, shared, no_local) "
        "select topic_id, false, false, false from jmsql_internal.topic where name = %s",
        [TEMPORARY],
    )
    with pytest.raises(REFUSED):
        thief.execute("update jmsql_internal.subscription set queue_id = %s", [secrets])
    assert thief.execute("select * from jmsql.messages").fetchall() == []
    assert texts_of(receive_all(session.create_consumer(SECRETS))) == ["hidden"]


def test_a_named_queue_outlives_a_subscription_that_names_it(owner: psycopg.Connection[Any], session: Session) -> None:
    """Forged before it was refused: maintenance ends the subscription, which has no consumer."""
    send_texts(session, SECRETS, "hidden")
    owner.execute(
        "with t as (insert into jmsql_internal.topic (name) values ('forged') returning topic_id) "
        "insert into jmsql_internal.subscription (queue_id, topic_id, durable, shared, no_local) "
        "select q.queue_id, t.topic_id, false, false, false from jmsql_internal.queue q, t where q.name = 'secrets'"
    )
    wait_for(lambda: owner.execute("select from jmsql_internal.subscription").fetchall() == [])
    assert texts_of(receive_all(session.create_consumer(SECRETS))) == ["hidden"]


def test_an_administrator_becomes_no_owner(plain: Plain, roles: dict[str, str], owner: psycopg.Connection[Any]) -> None:
    clerk = plain("administrator")
    tables = owner.execute(
        """
        select oid::regclass::text from pg_class
        where relnamespace in ('jmsql'::regnamespace, 'jmsql_internal'::regnamespace) and relkind in ('r', 'p', 'v')
        """
    ).fetchall()
    clerk.execute("create function pg_temp.mine() returns trigger language plpgsql as 'begin return null; end'")
    for (table,) in tables:
        for statement in (
            f"create trigger mine after insert on {table} for each statement execute function pg_temp.mine()",
            f"create rule mine as on insert to {table} do also select 1",
            f"truncate {table}",
            f"alter table {table} disable row level security",
        ):
            with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.WrongObjectType)):
                clerk.execute(statement.encode())
    for statement in (
        "insert into jmsql_internal.permission values (current_user::regrole, 'administer', null)",
        "create table jmsql.mine ()",
        "create function jmsql.mine() returns void language sql as ''",
        "create table jmsql_internal.mine ()",
        "create function jmsql_internal.mine() returns void language sql as ''",
        "update jmsql_internal.queue set name = 'DLQ'",
        "update jmsql_internal.connection set user_name = 'postgres'",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            clerk.execute(statement.encode())
    with pytest.raises(psycopg.Error):
        clerk.execute(
            "select jmsql_internal.permit('postgres; alter role current_user superuser', array['send'], null)"
        )
    assert owner.execute("select rolsuper from pg_roles where rolname = %s", [roles["administrator"]]).fetchone() == (
        False,
    )


def test_the_calling_role_is_known_though_another_one_has_connected(
    plain: Plain, roles: dict[str, str], owner: psycopg.Connection[Any]
) -> None:
    """ANALYZE runs a table's index expressions with its owner's rights, in the session of the role that analyzes."""
    owner.execute(sql.SQL("create schema thieves authorization {}").format(sql.Identifier(roles["sender"])))
    try:
        thief = plain("sender")
        thief.execute(
            """
            create function thieves.mine(integer) returns integer language plpgsql immutable as $$
            begin
                if session_user = 'postgres' then
                    perform jmsql_internal.permit((select r.rolname
                    from pg_roles r join pg_namespace n on n.nspowner = r.oid
                                          where n.nspname = 'thieves'), array['administer'], null);
                end if;
                return 1;
            end $$;
            create table thieves.bait as select generate_series(1, 10) as n;
            create index on thieves.bait (thieves.mine(n));
            """
        )
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permit"):
            owner.execute("analyze thieves.bait")
    finally:
        owner.execute("drop schema thieves cascade")


class TestTemporaryDestinations:
    @pytest.mark.parametrize("kind", ["sender", "receiver"])
    @pytest.mark.parametrize("table", ["queue", "topic"])
    def test_have_names_that_nothing_else_has(self, kind: str, table: str, plain: Plain) -> None:
        thief = plain(kind)
        mine = connect_by_hand(thief)
        for name in ("DLQ", "orders of tomorrow", "temporary", f"{TEMPORARY}\n"):
            with pytest.raises(REFUSED):
                thief.execute(
                    f"insert into jmsql_internal.{table} (name, connection_id) values (%s, %s)".encode(), [name, mine]
                )

    def test_nothing_else_has_such_a_name(self, plain: Plain, session: Session, owner: psycopg.Connection[Any]) -> None:
        for name in ("queue", "topic"):
            with pytest.raises(psycopg.Error, match="reserved") as refusal:
                owner.execute(f"select jmsql.create_{name}(%s)".encode(), [TEMPORARY])
            assert refusal.value.sqlstate == "JMS01"
            with pytest.raises(REFUSED):
                plain("sender to all").execute(
                    f"insert into jmsql_internal.{name} (name) values (%s)".encode(), [TEMPORARY]
                )

    def test_go_with_a_connection_of_ones_own(self, plain: Plain) -> None:
        theirs = connect_by_hand(plain("receiver"))
        with pytest.raises(REFUSED):
            plain("sender").execute(
                "insert into jmsql_internal.queue (name, connection_id) values (%s, %s)", [TEMPORARY, theirs]
            )

    def test_can_be_changed_only_by_their_makers(
        self, plain: Plain, url_of: Callable[[str], str], session: Session
    ) -> None:
        thief = plain("sender to all")
        mine = connect_by_hand(thief)
        with ConnectionFactory(url_of("receiver")).create_connection() as connection:
            connection.start()
            receiving = connection.create_session()
            queue = receiving.create_temporary_queue()
            send_texts(session, queue, "for the receiver")
            assert thief.execute("update jmsql_internal.queue set connection_id = %s", [mine]).rowcount == 0
            assert thief.execute("update jmsql_internal.queue set connection_id = null").rowcount == 0
            with pytest.raises(REFUSED):
                thief.execute(
                    "insert into jmsql_internal.queue (name, connection_id) values (%s, %s) "
                    "on conflict (name) do update set connection_id = excluded.connection_id",
                    [queue.name, mine],
                )
            assert texts_of(receive_all(receiving.create_consumer(queue))) == ["for the receiver"]

    def test_take_no_dead_letters(self, plain: Plain, owner: psycopg.Connection[Any], session: Session) -> None:
        thief = plain("receiver")
        mine = connect_by_hand(thief)
        thief.execute("insert into jmsql_internal.queue (name, connection_id) values (%s, %s)", [TEMPORARY, mine])
        with pytest.raises(psycopg.Error, match="temporary"):
            owner.execute(
                "select jmsql.alter_destination('orders', jsonb_build_object('dead_letter_queue', %s::text))",
                [TEMPORARY],
            )
        send_texts(session, ORDERS, "dead")
        thief.execute(
            "insert into jmsql_internal.delivery (queue_id, inverse_priority, sequence, dead_letter_queue_id) "
            "select m.queue_id, m.inverse_priority, m.sequence, q.queue_id "
            "from jmsql_internal.message m, jmsql_internal.queue q "
            "where q.name = %s",
            [TEMPORARY],
        )
        wait_for(lambda: owner.execute("select queue from jmsql.dead_letters").fetchall() == [("DLQ",)])


def test_the_dead_letter_queue_is_there_from_the_start(jmsql_clean_url: str) -> None:
    migrate(jmsql_clean_url, "jmsql_fresh")
    with psycopg.connect(jmsql_clean_url, autocommit=True) as database:
        made = database.execute("select name, connection_id from jmsql_fresh_internal.queue").fetchall()
        database.execute("drop schema jmsql_fresh, jmsql_fresh_internal cascade")
    assert made == [("DLQ", None)]


def test_no_role_reads_a_body_by_its_number(plain: Plain, owner: psycopg.Connection[Any], session: Session) -> None:
    first, second = (session.create_consumer(PRICES) for _ in range(2))
    send_texts(session, PRICES, "x" * 3000)
    [(body,)] = owner.execute("select body_id from jmsql_internal.body").fetchall()
    thief = plain("sender")
    mine = connect_by_hand(thief)
    thief.execute("insert into jmsql_internal.queue (name, connection_id) values (%s, %s)", [TEMPORARY, mine])
    for table in ("message", "delayed_message"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="body"):
            thief.execute(
                f"insert into jmsql_internal.{table} "
                "(queue_id, message_type, inverse_priority, jms_delivery_mode, body_id, jms_delivery_time) "
                "select queue_id, 'TextMessage', 5, 2, %s, 0 from jmsql_internal.queue "
                "where name = %s".encode(),
                [body, TEMPORARY],
            )
    assert thief.execute("select text_body from jmsql_internal.body").fetchall() == []
    with pytest.raises(psycopg.Error):
        thief.execute(
            "insert into jmsql_internal.body (body_id, text_body) overriding system value values (%s, 'mine')",
            [body + 1],
        )
    assert texts_of(receive_all(first)) + texts_of(receive_all(second)) == ["x" * 3000] * 2


class TestForgery:
    def test_of_history(self, plain: Plain, owner: psycopg.Connection[Any], session: Session) -> None:
        # Made before there is a history, for which a client makes tables while privileges are given.
        attackers = [plain(kind) for kind in ("sender", "receiver", "sender to all", "receiver from all")]
        owner.execute("select jmsql.alter_destination('orders', '{\"history\": true}')")
        send_texts(session, ORDERS, "a")
        for attacker in attackers:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                attacker.execute("select jmsql_internal.keep_history(array['(0,1)'::tid], array[1], 'expired', null)")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                attacker.execute("select jmsql_internal.make_history_partition('1999-01-01')")
        assert owner.execute("select from jmsql_internal.message_history").fetchall() == []

    def test_messages_that_a_role_removes_are_in_the_history(
        self, plain: Plain, owner: psycopg.Connection[Any], session: Session, roles: dict[str, str]
    ) -> None:
        receiver = plain("receiver")
        owner.execute("select jmsql.alter_destination('orders', '{\"history\": true}')")
        send_texts(session, ORDERS, "a")
        theirs = session._receiving.connection.control.connection_id
        receiver.execute(
            "insert into jmsql_internal.removal (messages, connection_id) select array_agg(ctid), %s "
            "from jmsql_internal.message",
            [theirs],
        )
        assert owner.execute("select from jmsql_internal.message").fetchall() == []
        assert owner.execute(
            "select text_body, user_name, connection_id from jmsql_internal.message_history"
        ).fetchall() == [("a", roles["receiver"], None)]

    @pytest.mark.parametrize(
        ("kind", "statement"),
        [
            ("sender", "insert into jmsql_internal.removal (messages) values (array[%s::tid])"),
            ("browser of all", "insert into jmsql_internal.removal (messages) values (array[%s::tid])"),
            ("receiver", "insert into jmsql_internal.removal (messages, role) values (array[%s::tid], 'postgres')"),
        ],
    )
    def test_of_a_removal(
        self, kind: str, statement: str, plain: Plain, owner: psycopg.Connection[Any], session: Session
    ) -> None:
        send_texts(session, SECRETS, "hidden")
        send_texts(session, ORDERS, "a")
        addresses = [str(address) for (address,) in owner.execute("select ctid::text from jmsql_internal.message")]
        attacker = plain(kind)
        for address in addresses:
            with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
                attacker.execute(statement.encode(), [address])
        assert owner.execute("select count(*) from jmsql_internal.message").fetchone() == (2,)

    @pytest.mark.parametrize(
        ("kind", "statement"),
        [
            ("sender", "insert into jmsql_internal.dequeue (queue_id, lowest) values (%s, %s) returning text_body"),
            (
                "browser of all",
                "insert into jmsql_internal.dequeue (queue_id, lowest) values (%s, %s) returning text_body",
            ),
            (
                "receiver",
                "insert into jmsql_internal.dequeue (queue_id, lowest, role) values (%s, %s, 'postgres') returning 1",
            ),
        ],
    )
    def test_of_a_request_to_dequeue(
        self, kind: str, statement: str, plain: Plain, owner: psycopg.Connection[Any], session: Session
    ) -> None:
        send_texts(session, SECRETS, "hidden")
        send_texts(session, ORDERS, "a")
        attacker = plain(kind)
        for queue in ("secrets", "orders"):
            with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
                assert attacker.execute(statement.encode(), [numbers(owner, queue), [0] * 10]).fetchall() == []
        assert owner.execute("select count(*) from jmsql_internal.message").fetchone() == (2,)

    def test_of_a_queue_to_dequeue_from(
        self, plain: Plain, owner: psycopg.Connection[Any], session: Session, roles: dict[str, str]
    ) -> None:
        receiver = plain("receiver")
        owner.execute("select jmsql.alter_destination('orders', '{\"history\": true}')")
        send_texts(session, SECRETS, "hidden")
        send_texts(session, ORDERS, "a")
        request = (
            "insert into jmsql_internal.dequeue (queue_id, lowest, connection_id) values (%s, %s, %s) "
            "returning text_body, role"
        )
        theirs = session._receiving.connection.control.connection_id
        for queue in (numbers(owner, "secrets"), 0, None):
            assert receiver.execute(request, [queue, [0] * 10, theirs]).fetchall() == []
        queue = numbers(owner, "orders")
        assert receiver.execute(request, [queue, None, theirs]).fetchall() == []
        assert receiver.execute(request, [queue, [0] * 10, theirs]).fetchall() == [("a", roles["receiver"])]
        assert owner.execute(
            "select text_body, user_name, connection_id from jmsql_internal.message_history"
        ).fetchall() == [("a", roles["receiver"], None)]

    def test_of_numbers(self, plain: Plain, owner: psycopg.Connection[Any]) -> None:
        sender = plain("sender to all")
        for statement in (
            (
                "insert into jmsql_internal.connection (connection_id, host, process_id) overriding system value "
                "values (99, 'x', 1)"
            ),
            "select setval('jmsql_internal.message_sequence', 1000000)",
            "select setval('jmsql_internal.connection_connection_id_seq', 1000000)",
            (
                "insert into jmsql_internal.message (sequence, queue_id, message_type, inverse_priority, "
                "jms_delivery_mode) "
                "select 9223372036854775807, queue_id, 'TextMessage', 5, 2 "
                "from jmsql_internal.queue where name = 'orders'"
            ),
            (
                "insert into jmsql_internal.message (transaction_id, queue_id, message_type, inverse_priority, "
                "jms_delivery_mode) select '1', queue_id, 'TextMessage', 5, 2 "
                "from jmsql_internal.queue where name = 'orders'"
            ),
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                sender.execute(statement.encode())

    @pytest.mark.parametrize("column", ["jms_timestamp", "jms_expiration", "jms_delivery_time"])
    @pytest.mark.parametrize("milliseconds", [-1, -(2**63), 2**63 - 1, 253402300800000])
    def test_of_times(self, column: str, milliseconds: int, plain: Plain, owner: psycopg.Connection[Any]) -> None:
        for who in (plain("sender"), owner):
            for table in ("message", "delayed_message"):
                with pytest.raises(psycopg.errors.CheckViolation):
                    who.execute(
                        f"insert into jmsql_internal.{table} "
                        "(queue_id, message_type, inverse_priority, jms_delivery_mode, "
                        f"jms_delivery_time{'' if column == 'jms_delivery_time' else ', ' + column}) "
                        f"select queue_id, 'TextMessage', 5, 2, "
                        f"{milliseconds if column == 'jms_delivery_time' else f'0, {milliseconds}'} "
                        "from jmsql_internal.queue where name = 'orders'".encode()
                    )

    def test_a_role_forges_no_headers_of_the_provider(self, plain: Plain, owner: psycopg.Connection[Any]) -> None:
        insert = (
            "insert into jmsql_internal.message (queue_id, message_type, inverse_priority, jms_delivery_mode, "
            "properties) "
            "select queue_id, 'TextMessage', 5, 2, %s::jsonb from jmsql_internal.queue where name = 'orders'"
        )
        for properties in (
            '{"JMS_jmsql_DeadLetterReason": "x"}',
            '{"a": 1, "JMS_jmsql_OriginalDestination": "q"}',
            '{"JMS\\u005fjmsql_Deliveries": null}',
            '{"JMS_jmsql_Batch": 0}',
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                plain("sender").execute(insert.encode(), [properties])
        for own in (
            '{"a": "JMS_jmsql_Deliveries"}',
            '{"a": {"JMS_jmsql_Deliveries": 1}}',
            '{"\\"JMS_jmsql_Deliveries": 1, "jms_jmsql_batch": 1}',
        ):
            plain("sender").execute(insert.encode(), [own])
        assert owner.execute("delete from jmsql_internal.message").rowcount == 3
        for who in (plain("sender"), owner):
            for other in ("[1]", '[{"JMS_jmsql_Deliveries": 1}]', '"JMS_jmsql_Deliveries"'):
                with pytest.raises((psycopg.errors.CheckViolation, psycopg.errors.InsufficientPrivilege)):
                    who.execute(insert.encode(), [other])
        nonsense = (
            '{"JMS_jmsql_DeadLetterReason": {"a": 1}, "JMS_jmsql_Deliveries": "many", "JMS_jmsql_FirstFailure": 1e99, '
            '"JMS_jmsql_DeadLetterTime": "never", "JMS_jmsql_OriginalExpiration": [], "JMS_jmsql_LastError": 7}'
        )
        owner.execute(insert.encode(), [nonsense])
        assert len(owner.execute("select * from jmsql.dead_letters").fetchall()) == 1
        assert len(owner.execute("select * from jmsql.messages").fetchall()) == 1
        owner.execute("select jmsql.retry('orders')")

    def test_the_planner_inlines_the_condition_on_properties(self, plain: Plain) -> None:
        # Each message of a restricted role is checked: a call of the function would take longer than the insertion.
        call = "select jmsql_internal.may_send_properties(p) from (values ('{}'::jsonb), (null)) v (p)"
        plan = str(plain("sender").execute(f"explain (verbose) {call}".encode()).fetchall())
        assert "jsonpath" in plan
        assert "may_send_properties" not in plan

    def test_of_the_state_of_a_delivery(self, plain: Plain, session: Session) -> None:
        send_texts(session, ORDERS, "a")
        receiver = plain("receiver")
        for column, value in (
            ("delivery_count", "2147483647"),
            ("delivery_count", "-1"),
            ("first_failed_at", "'infinity'"),
            ("next_attempt", "'infinity'"),
            ("next_attempt", "'20000-01-01'"),
            ("last_error", "repeat('x', 100001)"),
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                receiver.execute(
                    f"insert into jmsql_internal.delivery (queue_id, inverse_priority, sequence, {column}) "
                    f"select queue_id, inverse_priority, sequence, {value} from jmsql_internal.message".encode()
                )

    def test_of_others_connections(self, plain: Plain, owner: psycopg.Connection[Any], session: Session) -> None:
        theirs = session._receiving.connection.control.connection_id
        session.create_consumer(ORDERS)
        attacker = plain("receiver from all")
        mine = connect_by_hand(attacker)
        assert (
            attacker.execute(
                "update jmsql_internal.connection set closing = true where connection_id <> %s", [mine]
            ).rowcount
            == 0
        )
        assert attacker.execute("update jmsql_internal.consumer set consumers = 0").rowcount == 0
        for statement in (
            "insert into jmsql_internal.consumer (connection_id, queue_id, selector, consumers) values (%s, 1, '', 5)",
            "insert into jmsql_internal.connection (host, process_id, user_name) values (%s, 1, 'postgres')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                attacker.execute(statement.encode(), [theirs])
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            attacker.execute(
                "update jmsql_internal.connection set heartbeat_at = 'infinity' where connection_id = %s", [mine]
            )
        with pytest.raises(psycopg.errors.CheckViolation):
            attacker.execute(
                "insert into jmsql_internal.connection (host, process_id, heartbeat_at, heartbeat_timeout) "
                "values ('here', 1, clock_timestamp(), '1 hour')"
            )
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            attacker.execute("update jmsql_internal.connection set heartbeat_timeout = '1 hour'")

    def test_a_role_forges_no_counters(self, plain: Plain, owner: psycopg.Connection[Any], session: Session) -> None:
        send_texts(session, SECRETS, "a")
        secrets, orders = numbers(owner, "secrets"), numbers(owner, "orders")
        for who, destination, sent in (("sender", secrets, 5), ("sender", orders, 2**63 - 1), ("sender", orders, -5)):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                plain(who).execute(
                    "insert into jmsql_internal.destination_counters as t (destination_id, sent) values (%s, %s) "
                    "on conflict (destination_id) do update set sent = excluded.sent",
                    [destination, sent],
                )


def test_a_client_identifier_is_taken_from_nobody_who_lives(
    plain: Plain, session: Session, url_of: Callable[[str], str]
) -> None:
    with ConnectionFactory(url_of("receiver")).create_connection() as connection:
        connection.client_id = "mine"
        thief = plain("receiver from all")
        mine = connect_by_hand(thief)
        with pytest.raises(psycopg.errors.UniqueViolation):
            thief.execute("update jmsql_internal.connection set client_id = 'mine' where connection_id = %s", [mine])
    thief.execute("update jmsql_internal.connection set client_id = 'mine' where connection_id = %s", [mine])


def test_a_restricted_client_loses_and_doubles_nothing(
    url_of: Callable[[str], str], session: Session, owner: psycopg.Connection[Any]
) -> None:
    """Its acknowledgements ask for removals, in each mode."""
    sent = [f"{number}" for number in range(60)]
    send_texts(session, ORDERS, *sent)
    received: list[str] = []
    with ConnectionFactory(url_of("receiver")).create_connection() as connection:
        connection.start()
        for mode in (AcknowledgeMode.AUTO, AcknowledgeMode.CLIENT, AcknowledgeMode.TRANSACTED):
            with connection.create_session(mode) as its_session:
                consumer = its_session.create_consumer(ORDERS)
                for count in range(20):
                    message = consumer.receive(timeout=60)
                    assert message is not None
                    received.append(str(message.get_body(str)))
                    if mode is AcknowledgeMode.CLIENT and count % 5 == 4:
                        message.acknowledge()
                    elif mode is AcknowledgeMode.TRANSACTED and count % 5 == 4:
                        its_session.commit()
    assert received == sent
    assert owner.execute("select count(*) from jmsql_internal.message").fetchone() == (0,)
    wait_for(lambda: owner.execute("select from jmsql_internal.delivery").fetchall() == [])


def test_a_role_dequeues_the_same_messages_as_the_owner(
    plain: Plain, owner: psycopg.Connection[Any], session: Session
) -> None:
    """Roles have a trigger dequeue, the owner sends a statement of its own."""
    texts = ["claimed", "waits", "expired", "pending", "locked", "delivered before", "urgent", "plain", "is last"]
    send_texts(session, ORDERS, *texts)
    queue = numbers(owner, "orders")
    sequences = dict(owner.execute("select text_body, sequence from jmsql_internal.message").fetchall())
    for text, column, value in (
        ("claimed", "claim_id", "7"),
        ("waits", "next_attempt", "now() + interval '1 hour'"),
        ("delivered before", "delivery_count", "2"),
    ):
        owner.execute(
            f"insert into jmsql_internal.delivery (queue_id, inverse_priority, sequence, {column}) "
            f"values (%s, 5, %s, {value})".encode(),
            [queue, sequences[text]],
        )
    owner.execute("update jmsql_internal.message set jms_expiration = 1 where text_body = 'expired'")
    owner.execute("update jmsql_internal.message set inverse_priority = 0 where text_body = 'urgent'")
    with owner.transaction():
        owner.execute(
            "update jmsql_internal.message set transaction_id = pg_current_xact_id() where text_body = 'pending'"
        )
        owner.execute(
            "insert into jmsql_internal.pending_transaction (write_id, queue_ids, first_sequence, last_sequence) "
            "values ('w', '{}', 0, 0)"
        )
    receiver = plain("receiver")
    start = ScanStart([0] * 10)
    found: list[str | None] = []
    with psycopg.connect(owner.info.dsn, autocommit=True) as other, other.transaction():
        other.execute("select from jmsql_internal.message where text_body = 'locked' for update")
        while True:
            with owner.transaction(force_rollback=True):
                theirs = PsycopgRunner(owner, "jmsql").run(dequeue(queue, None, start, 1))
            rows = PsycopgRunner(receiver, "jmsql").run(ask_to_dequeue(queue, start.lowest, 0))
            without = [[row._replace(snapshot=None) for row in each] for each in (rows, theirs)]
            assert without[0] == without[1]
            assert all(row.snapshot is not None for row in rows)
            if not rows:
                break
            found.append(rows[0].text_body)
            if rows[0].text_body == "plain":
                owner.execute("select jmsql.pause('queue://orders')")
                assert PsycopgRunner(receiver, "jmsql").run(ask_to_dequeue(queue, start.lowest, 0)) == []
                owner.execute("select jmsql.resume('queue://orders')")
    assert found == ["urgent", "delivered before", "plain", "is last"]
    assert owner.execute("select count(*) from jmsql_internal.delivery").fetchone() == (2,)
    with receiver.transaction():
        receiver.execute("set transaction isolation level repeatable read")
        assert PsycopgRunner(receiver, "jmsql").run(ask_to_dequeue(queue, start.lowest, 0)) == []


def test_a_role_receives_messages_of_groups_singly(
    url_of: Callable[[str], str], session: Session, owner: psycopg.Connection[Any]
) -> None:
    message = session.create_text_message("of a group")
    message.set_string_property("JMSXGroupID", "g")
    session.create_producer(ORDERS).send(message)
    send_texts(session, ORDERS, "a")
    with ConnectionFactory(url_of("receiver")).create_connection() as connection:
        connection.start()
        with connection.create_session() as its_session:
            assert texts_of(receive_all(its_session.create_consumer(ORDERS))) == ["of a group", "a"]
    assert owner.execute("select count(*) from jmsql_internal.message").fetchone() == (0,)


def test_automatic_creation_holds_for_clients_that_speak_sql(
    plain: Plain, owner: psycopg.Connection[Any], url_of: Callable[[str], str]
) -> None:
    owner.execute("update jmsql_internal.configuration set automatic_creation = false")
    try:
        for table in ("queue", "topic"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                plain("sender to all").execute(f"insert into jmsql_internal.{table} (name) values ('mine')".encode())
    finally:
        owner.execute("update jmsql_internal.configuration set automatic_creation = true")
    plain("sender to all").execute("insert into jmsql_internal.queue (name) values ('mine')")
    with Administration(url_of("sender to all")) as administration, pytest.raises(JMSSecurityException):
        administration.create_queue("another")


def test_an_invalid_selector_of_a_subscription_does_not_prevent_publishing(
    plain: Plain, session: Session, owner: psycopg.Connection[Any]
) -> None:
    subscriber = session.create_consumer(PRICES)
    for selector in ("((", "", "weight >"):
        plain("receiver from all").execute(
            "insert into jmsql_internal.subscription (topic_id, selector, durable, shared, no_local, name) "
            "select topic_id, %s, true, true, false, %s from jmsql_internal.topic where name = 'prices'",
            [selector, f"forged {selector}"],
        )
    send_texts(session, PRICES, "a")
    assert texts_of(receive_all(subscriber)) == ["a"]
    assert owner.execute("select count(*) from jmsql_internal.message").fetchone() == (1,)  # "" chooses all


def test_nothing_waits_for_a_role_that_locks(plain: Plain, session: Session) -> None:
    attacker = plain("receiver from all")
    with attacker.transaction():
        for table in ("message", "delivery", "queue", "subscription", "connection", "removal"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), attacker.transaction():
                attacker.execute(f"lock table jmsql_internal.{table} in access exclusive mode".encode())
        started = time.monotonic()
        send_texts(session, ORDERS, "a")
        assert texts_of(receive_all(session.create_consumer(ORDERS))) == ["a"]
        assert time.monotonic() - started < scaled(10.0)


def test_numbers_and_times_that_others_could_not_read_are_refused(plain: Plain, owner: psycopg.Connection[Any]) -> None:
    owner.execute("select jmsql.send('orders', 'a')")  # no client, which would write its counters down
    orders = numbers(owner, "orders")
    thief = plain("receiver")
    mine = connect_by_hand(thief)
    rows: dict[str, dict[str, Any]] = {
        "destination_counters": {"destination_id": orders},
        "delivery": {"queue_id": orders, "inverse_priority": 5, "sequence": 1},
        "result": {
            "queue_id": orders,
            "message_id": "00000000-0000-0000-0000-00000000000a",
            "deliveries": 1,
            "state": "done",
            "finished_at": "now",
            "kept_until": "now",
        },
        "reported_progress": {
            "queue_id": orders,
            "inverse_priority": 5,
            "sequence": 1,
            "claim_id": 1,
            "note": "",
            "reported_at": "now",
        },
        "consumer": {"connection_id": mine, "queue_id": orders, "selector": "", "consumers": 1},
    }
    numbers_of_columns = {
        "calls": ("9223372036854775807", "-1"),
        "waited": ("Infinity", "NaN", "-1"),
        "handled": ("Infinity", "NaN", "-1"),
    }
    times = ("infinity", "-infinity", "0001-01-01 BC", "10000-01-01")
    columns = [
        *(("destination_counters", column, values) for column, values in numbers_of_columns.items()),
        *(("delivery", column, times) for column in ("claimed_at", "claim_expires_at", "first_failed_at")),
        *(("result", column, times) for column in ("sent_at", "started_at", "finished_at", "kept_until")),
        ("reported_progress", "reported_at", times),
        ("consumer", "last_at", times),
    ]
    with thief.transaction():
        for table, row in rows.items():
            thief.execute(insertion(table, row), list(row.values()))
        for table, column, values in columns:
            for value in values:
                with pytest.raises(psycopg.errors.InsufficientPrivilege), thief.transaction():
                    thief.execute(f"update jmsql_internal.{table} set {column} = %s".encode(), [value])
                row = rows[table] | {column: value}
                if table != "consumer":  # no role may insert the time
                    with pytest.raises(psycopg.errors.InsufficientPrivilege), thief.transaction():
                        thief.execute(insertion(table, row) + b" on conflict do nothing", list(row.values()))


def insertion(table: str, row: dict[str, Any]) -> bytes:
    places = ", ".join(["%s"] * len(row))
    return f"insert into jmsql_internal.{table} ({', '.join(row)}) values ({places})".encode()


def test_batches_are_subject_to_the_policies(url_of: Callable[[str], str], owner: psycopg.Connection[Any]) -> None:
    with ConnectionFactory(url_of("sender to all")).create_connection() as connection:
        send_texts(connection.create_session(transacted=True), SECRETS, *map(str, range(60)))
    with ConnectionFactory(url_of("sender")).create_connection() as connection:
        session = connection.create_session(transacted=True)
        send_texts(session, ORDERS, *map(str, range(60)))
        with pytest.raises(JMSException):
            send_texts(session, SECRETS, *map(str, range(60)))
    found = "select count(*) from jmsql_internal.message m join jmsql_internal.queue using (queue_id) where name = %s"
    assert [owner.execute(found, [queue.name]).fetchone() for queue in (ORDERS, SECRETS)] == [(60,), (60,)]


def test_callbacks_of_batches_are_subject_to_the_policies_of_messages(
    plain: Plain, session: Session, owner: psycopg.Connection[Any]
) -> None:
    send_texts(session, ORDERS, "a")
    sender = plain("sender")
    (batch,) = sender.execute("insert into jmsql_internal.batch (name) values ('own') returning batch_id").fetchone()  # type: ignore[misc]
    [(orders,)] = owner.execute("select queue_id from jmsql_internal.queue where name = %s", [ORDERS.name])
    add = "insert into jmsql_internal.batch_callback (batch_id, event, queue_id, properties) values (%s, 'end', %s, %s)"
    for properties in ('{"JMS_jmsql_DeadLetterReason": "rejected"}', '{"JMS_jmsql_Batch": 0}', "[1]", "1"):
        with pytest.raises(psycopg.Error):
            sender.execute(add, [batch, orders, properties])
    sender.execute(add, [batch, orders, '{"kind": "end"}'])
    for properties in ("[1]", "null"):
        with pytest.raises(psycopg.errors.CheckViolation):
            owner.execute("update jmsql_internal.batch_callback set properties = %s", [properties])
