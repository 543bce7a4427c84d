"""Looks of `Administration` that cost little: the overview, pages by place, and what is done to chosen places."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import psycopg
import pytest

import jmsql
from jmsql import Queue, Topic
from jmsql.admin import Administration, BoundedCount, BrowsedMessage, OverviewOrder, Place
from jmsql.store.administration import looks
from jmsql.testing import receive_all, wait_for
from tests.integration.access.role_kinds import PASSWORD, roles_of_each_kind
from tests.leadership import SUSPEND_MAINTENANCE

ORDERS = Queue("orders")


@pytest.fixture
def administration(jmsql_factory: jmsql.ConnectionFactory) -> Iterator[Administration]:
    with Administration(jmsql_factory) as administration:
        yield administration


def send(factory: jmsql.ConnectionFactory, name: str, *texts: str, **settings: Any) -> None:
    with factory.create_context(session_mode=jmsql.AcknowledgeMode.TRANSACTED) as context:
        for text in texts:
            message = context.create_text_message(text)
            message.set_int_property("number", int(text) if text.isdecimal() else -1)
            context.create_producer(**settings).send(Queue(name), message)
        context.commit()


def names(administration: Administration, *arguments: Any, **settings: Any) -> list[str]:
    found = administration.overview(*arguments, **settings)
    return [each.subscription or each.destination.name for each in found if each.destination.name != "DLQ"]


def texts(browsed: Iterator[BrowsedMessage]) -> list[str]:
    return [each.message.get_body(str) or "" for each in browsed]


def places(administration: Administration, queue: Queue | str = ORDERS) -> list[Place]:
    return [each.delivery.place for each in administration.browse(queue, limit=10_000)]


class TestOverview:
    def test_the_oldest_come_first_and_those_without_messages_last(
        self, administration: Administration, jmsql_factory: jmsql.ConnectionFactory
    ) -> None:
        administration.create_queue("empty")
        administration.subscribe("prices", "risk", shared=True)
        send(jmsql_factory, "second", "x")
        send(jmsql_factory, "first", "x")
        send(jmsql_factory, "second", "x", priority=9)  # an older one waits behind it
        with jmsql_factory.create_context() as context:
            context.create_producer().send(Topic("prices"), "x")
        assert names(administration) == ["second", "first", "risk", "empty", "prices"]
        assert names(administration, 2) == ["second", "first"]
        risk = administration.overview(order="age", kind="subscription")[0]
        assert (risk.kind, risk.destination, risk.ready, risk.messages) == (
            "subscription", Topic("prices"), BoundedCount(1), BoundedCount(1),
        )  # fmt: skip
        assert risk.oldest is not None

    def test_queues_with_as_many_messages_keep_their_order(
        self, administration: Administration, jmsql_factory: jmsql.ConnectionFactory
    ) -> None:
        send(jmsql_factory, "one", "1", "2")
        send(jmsql_factory, "two", "1")
        send(jmsql_factory, "three", "1")
        send(jmsql_factory, "two", "2")  # from its first message to its last are the most sequences
        assert names(administration, order=OverviewOrder.depth) == ["one", "two", "three"]

    def test_other_orders(self, administration: Administration, jmsql_factory: jmsql.ConnectionFactory) -> None:
        send(jmsql_factory, "one", "1")
        send(jmsql_factory, "three", "1", "2", "3")
        send(jmsql_factory, "two", "1", "2", delivery_delay=3600.0)
        assert names(administration, order=OverviewOrder.depth) == ["three", "two", "one"]
        assert names(administration, order="name") == ["one", "three", "two"]
        with jmsql_factory.create_context() as context:  # closing it writes down what it has counted
            assert len(receive_all(context.create_consumer(Queue("three")))) == 3
        administration.overview(order="busy")
        with jmsql_factory.create_context() as context:
            context.create_producer().send(Queue("two"), "x")
        assert names(administration, order="busy")[0] == "two"

    def test_messages_are_counted_to_a_limit(
        self, administration: Administration, jmsql_factory: jmsql.ConnectionFactory
    ) -> None:
        send(jmsql_factory, "orders", *map(str, range(7)))
        send(jmsql_factory, "orders", *map(str, range(6)), delivery_delay=3600.0)
        [few] = administration.overview(kind="queue", like="orders", count_limit=5)
        assert (few.ready, few.delayed) == (BoundedCount(5, has_more=True), BoundedCount(5, has_more=True))
        assert (str(few.messages), str(few.claimed)) == ("10+", "0")
        for most in (7, 1000, None):
            [all_of_them] = administration.overview(like="orders", count_limit=most)
            assert (all_of_them.ready, all_of_them.delayed) == (BoundedCount(7), BoundedCount(6))
        assert str(BoundedCount(1000, has_more=True)) == "1,000+"

    def test_states_are_told_apart_as_an_exact_count_does(
        self, administration: Administration, jmsql_factory: jmsql.ConnectionFactory, jmsql_clean_url: str
    ) -> None:
        send(jmsql_factory, "orders", *map(str, range(6)))
        with jmsql_factory.create_connection() as connection:
            session = connection.create_session(acknowledge_mode=jmsql.AcknowledgeMode.CLIENT)
            connection.start()
            consumer = session.create_consumer(ORDERS)
            assert consumer.receive(timeout=60) is not None
            with psycopg.connect(jmsql_clean_url) as database:
                database.execute(SUSPEND_MAINTENANCE)  # which would remove what has expired
                database.execute("update jmsql_internal.message set jms_expiration = 1 where sequence = "
                                 "(select max(sequence) from jmsql_internal.message)")  # fmt: skip
                counted = database.execute(
                    "select ready, claimed, waiting, delayed, expired, redelivered from jmsql.queues "
                    "where queue = 'orders'"
                ).fetchone()
            for most in (1000, None):
                [orders] = administration.overview(like="orders", count_limit=most)
                found = (orders.ready, orders.claimed, orders.waiting, orders.delayed, orders.expired)
                assert tuple(each.number for each in (*found, orders.redelivered) if each is not None) == counted
                assert (orders.oldest_claim is None) is (counted is not None and counted[1] == 0)

    def test_rates_are_those_since_the_overview_before(
        self, administration: Administration, jmsql_factory: jmsql.ConnectionFactory
    ) -> None:
        send(jmsql_factory, "orders", "1")
        [first] = administration.overview(like="orders")
        assert (first.incoming, first.outgoing) == (None, None)
        send(jmsql_factory, "orders", "2", "3")
        [second] = administration.overview(like="orders")
        assert second.incoming is not None
        assert second.incoming > 0
        assert second.outgoing == 0.0
        [third] = administration.overview(like="orders")
        assert third.incoming == 0.0

    def test_names_are_chosen_by_a_pattern_of_sql(self, administration: Administration) -> None:
        for name in ("orders.new", "orders.old", "orders_old", "mails", "a%b", "acb"):
            administration.create_queue(name)
        administration.subscribe("orders.topic", "all", shared=True)
        for order in OverviewOrder:
            for most in (1000, None):
                assert sorted(names(administration, 50, order, like="orders.%", count_limit=most)) == [
                    "all", "orders.new", "orders.old", "orders.topic"
                ]  # fmt: skip
                assert names(administration, 50, order, like="orders_old", kind="queue", count_limit=most) in (
                    ["orders.old", "orders_old"], ["orders_old", "orders.old"],
                )  # fmt: skip
                assert names(administration, 50, order, like=r"a\%b", count_limit=most) == ["a%b"]
                assert names(administration, 50, order, like="al_", count_limit=most) == ["all"]

    @pytest.mark.parametrize(
        ("wrong", "error", "advice"),
        [
            ({"limit": 0}, ValueError, "Expected limit as a number from 1 on, got 0."),
            ({"limit": "3"}, TypeError, "Expected limit as an int from 1 on, got '3'."),
            ({"limit": True}, TypeError, "Expected limit as an int from 1 on, got True."),
            ({"count_limit": 0}, ValueError, "Expected count_limit as a number from 1 on, got 0."),
            ({"count_limit": 1.5}, TypeError, "Expected count_limit as an int from 1 on, got 1.5."),
            ({"order": "size"}, ValueError, "Expected order as one of age, depth, busy, name, got 'size'."),
            ({"kind": "queues"}, ValueError, "Expected kind as one of queue, subscription, topic, got 'queues'."),
            ({"like": 5}, TypeError, "Expected a pattern of SQL's LIKE such as 'orders.%', got 5."),
            ({"like": "a\\"}, ValueError, "ends with a backslash that escapes nothing. Double it."),
            ({"like": "a\\\\\\"}, ValueError, "ends with a backslash that escapes nothing. Double it."),
            ({"like": "a\0"}, ValueError, "PostgreSQL cannot store the pattern"),
            ({"like": "\ud800"}, ValueError, "PostgreSQL cannot store the pattern"),
        ],
    )
    def test_wrong_arguments_are_refused(
        self, administration: Administration, wrong: dict[str, Any], error: type[Exception], advice: str
    ) -> None:
        with pytest.raises(error, match=re.escape(advice)):
            administration.overview(**wrong)

    @pytest.mark.parametrize("order", OverviewOrder)
    def test_a_backslash_that_escapes_itself_is_a_pattern(
        self, administration: Administration, order: OverviewOrder
    ) -> None:
        administration.create_queue("a\\")
        administration.create_queue("b")
        assert names(administration, 50, order, like="a\\\\") == ["a\\"]

    @pytest.mark.parametrize("order", OverviewOrder)
    def test_role_sees_how_much_waits_where_it_may_browse(
        self, administration: Administration, jmsql_factory: jmsql.ConnectionFactory, jmsql_clean_url: str,
        order: OverviewOrder,
    ) -> None:  # fmt: skip
        send(jmsql_factory, "orders", "1")
        send(jmsql_factory, "secrets", "1")
        with psycopg.connect(jmsql_clean_url, autocommit=True) as database, roles_of_each_kind(database) as roles:
            database.execute("select jmsql.grant_access('orders', %s, 'browse')", [roles["browser"]])
            url = psycopg.conninfo.make_conninfo(jmsql_clean_url, user=roles["browser"], password=PASSWORD)
            with Administration(_url(url)) as restricted:
                found = {each.destination.name: each.messages for each in restricted.overview(50, order)}
                assert (found["orders"], found["secrets"]) == (BoundedCount(1), None)
                assert restricted.depth("orders").number == 1
                with pytest.raises(jmsql.JMSSecurityException):
                    restricted.depth("secrets")
                with pytest.raises(jmsql.JMSSecurityException):
                    restricted.at("secrets", Place(5, 1))
            database.execute("delete from jmsql_internal.permission")


def _url(conninfo: str) -> str:
    parts = psycopg.conninfo.conninfo_to_dict(conninfo)
    return (
        f"postgresql://{parts['user']}:{parts['password']}@/{parts['dbname']}?host={parts['host']}&port={parts['port']}"
    )


class TestPages:
    def test_pages_go_on_behind_a_place_and_miss_nothing(
        self, administration: Administration, jmsql_factory: jmsql.ConnectionFactory
    ) -> None:
        send(jmsql_factory, "orders", *map(str, range(5)))
        send(jmsql_factory, "orders", "5", priority=9)
        send(jmsql_factory, "orders", "6", "7", delivery_delay=3600.0)
        seen: list[str] = []
        after: Place | None = None
        while page := list(administration.browse(ORDERS, after=after, limit=2)):
            seen += texts(iter(page))
            after = page[-1].delivery.place
            if len(seen) == 4:
                administration.purge(ORDERS, places=[after])  # its place is still one to go on behind
        assert seen == ["5", "0", "1", "2", "3", "4", "6", "7"]

    def test_selector_that_chooses_few_among_many_finds_them(
        self, administration: Administration, jmsql_factory: jmsql.ConnectionFactory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(looks, "WINDOW", 3)
        send(jmsql_factory, "orders", *map(str, range(20)))
        assert texts(administration.browse(ORDERS, "number = 2 OR number = 11 OR number = 19")) == ["2", "11", "19"]
        first = next(administration.browse(ORDERS, "number > 4"))
        assert texts(islice(administration.browse(ORDERS, "number > 4", after=first.delivery.place), 2)) == ["6", "7"]

    def test_message_is_found_at_its_place_until_it_is_gone(
        self, administration: Administration, jmsql_factory: jmsql.ConnectionFactory
    ) -> None:
        send(jmsql_factory, "orders", "now")
        send(jmsql_factory, "orders", "later", delivery_delay=3600.0)
        for place, text in zip(places(administration), ("now", "later"), strict=True):
            found = administration.at("orders", place)
            assert found is not None
            assert (found.message.get_body(str), found.delivery.place) == (text, place)
            assert Place.parse(str(place)) == place
            [by_id] = administration.message(found.message.jms_message_id or "")
            assert by_id.delivery.place == place
        place = places(administration)[0]
        assert administration.purge(ORDERS, places=[place]) == 1
        assert administration.at(ORDERS, place) is None
        with pytest.raises(jmsql.InvalidDestinationException):
            administration.at("nowhere", place)

    @pytest.mark.parametrize("text", ["", "p", "5.1", "p10.1", "p5.-1", "x5.1", "p5.1 ", "p5.9999999999999999999"])
    def test_another_value_than_a_place_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match="place of a message"):
            Place.parse(text)

    def test_subscriptions_go_by_number(
        self, administration: Administration, jmsql_factory: jmsql.ConnectionFactory
    ) -> None:
        administration.subscribe("prices", "risk", shared=True)
        with jmsql_factory.create_context() as context:
            for text in ("1", "2"):
                context.create_producer().send(Topic("prices"), text)
        [risk] = administration.overview(kind="subscription")
        assert texts(administration.browse(risk.number)) == ["1", "2"]
        assert administration.depth(risk.number) == BoundedCount(2)
        first, second = (each.delivery.place for each in administration.browse_subscription("risk"))
        assert texts(administration.browse_subscription("risk", after=first)) == ["2"]
        assert administration.purge(risk.number, places=[first]) == 1
        assert administration.move(risk.number, administration.create_queue("kept"), places=[second]) == 1
        assert texts(administration.browse("kept")) == ["2"]
        with pytest.raises(jmsql.InvalidDestinationException, match="number 99999"):
            administration.depth(99999)


class TestChosenPlaces:
    def test_exactly_those_are_purged_and_moved(
        self, administration: Administration, jmsql_factory: jmsql.ConnectionFactory
    ) -> None:
        send(jmsql_factory, "orders", *map(str, range(6)))
        send(jmsql_factory, "orders", "6", "7", delivery_delay=3600.0)
        found = places(administration)
        other = administration.create_queue("other")
        done: list[int] = []
        assert administration.move(ORDERS, other, places=[found[1], found[7]], progress=done.append) == 2
        assert done == [1, 2]
        assert administration.purge(ORDERS, places=[found[0], found[0], found[1], found[6]]) == 2
        assert texts(administration.browse(ORDERS)) == ["2", "3", "4", "5"]
        assert texts(administration.browse(other)) == ["1", "7"]
        assert administration.purge(ORDERS, places=[]) == 0

    def test_dead_letters_go_back(self, administration: Administration, jmsql_factory: jmsql.ConnectionFactory) -> None:
        administration.create_queue("orders", maximum_deliveries=1)
        send(jmsql_factory, "orders", "0", "1", "2")
        with jmsql_factory.create_context(session_mode=jmsql.AcknowledgeMode.TRANSACTED) as context:
            consumer = context.create_consumer(ORDERS)
            for _ in range(3):
                assert consumer.receive(timeout=60) is not None
                context.rollback()
            wait_for(lambda: administration.depth("DLQ").number == 3)  # maintenance may have to move one
        send(jmsql_factory, "DLQ", "no dead letter")
        *letters, other = places(administration, "DLQ")
        retried = administration.retry(places=[letters[0], letters[2], other])
        assert (retried.returned, retried.left) == ({"queue://orders": 2}, 1)
        assert sorted(texts(administration.browse(ORDERS))) == ["0", "2"]
        assert texts(administration.browse("DLQ")) == ["1", "no dead letter"]

    @pytest.mark.parametrize("action", ["move", "retry"])
    def test_dead_letters_that_go_elsewhere_lose_their_results(
        self, action: str, administration: Administration, jmsql_factory: jmsql.ConnectionFactory, jmsql_url: str
    ) -> None:
        orders = administration.create_queue("orders", maximum_deliveries=1)
        with psycopg.connect(jmsql_url, autocommit=True) as database:
            database.execute(
                "insert into jmsql_internal.result_keeping (queue_id, seconds) "
                "select queue_id, 3600 from jmsql_internal.queue where name = 'orders'"
            )
            send(jmsql_factory, "orders", "0", "1")
            with jmsql_factory.create_context(session_mode=jmsql.AcknowledgeMode.TRANSACTED) as context:
                consumer = context.create_consumer(ORDERS)
                for _ in range(2):
                    assert consumer.receive(timeout=60) is not None
                    context.rollback()
                wait_for(lambda: administration.depth("DLQ").number == 2)  # maintenance may have to move one
            gone, kept = administration.browse("DLQ")
            if action == "move":
                assert administration.move("DLQ", orders, places=[gone.delivery.place]) == 1
            else:
                assert administration.retry(places=[gone.delivery.place]).returned == {"queue://orders": 1}
            results = database.execute("select message_id, state from jmsql.results").fetchall()
            assert results == [(kept.message.jms_message_id, "failed")]

    def test_another_value_than_a_place_or_a_number_is_refused(self, administration: Administration) -> None:
        administration.create_queue("orders")
        administration.create_queue("orders.old")
        uses: list[Callable[[Any], object]] = [
            lambda place: administration.at(ORDERS, place),
            lambda place: list(administration.browse(ORDERS, after=place)),
            lambda place: administration.retry(ORDERS, places=[place]),
            lambda place: administration.purge(ORDERS, places=[place]),
            lambda place: administration.move(ORDERS, "orders.old", places=[place]),
        ]
        for use in uses:
            with pytest.raises(
                TypeError, match=r"as delivery\.place or Place\.parse\('p5\.1234'\) is one, got 'p5\.1'"
            ):
                use("p5.1")
            for wrong in (Place(10, 1), Place(5, 2**63), Place(5, -1), Place(2**63, 1, delayed=True)):
                with pytest.raises(ValueError, match="No message can be at Place"):
                    use(wrong)
        with pytest.raises(ValueError, match="limit as a number from 0 on, got -1"):
            administration.browse(ORDERS, limit=-1)
        for number in (0, -1, 2**31, 10**30):
            with pytest.raises(jmsql.InvalidDestinationException, match=f"of the number {number}"):
                administration.depth(number)
            with pytest.raises(jmsql.InvalidDestinationException, match=f"of the number {number}"):
                list(administration.browse(number))
        with pytest.raises(TypeError, match="number of one, got True"):
            administration.depth(True)
        with pytest.raises(TypeError, match=r"limit as an int from 0 on, got 1\.5"):
            administration.depth(ORDERS, 1.5)  # type: ignore[arg-type]

    def test_places_and_a_selector_are_refused_together(self, administration: Administration) -> None:
        administration.create_queue("orders")
        with pytest.raises(ValueError, match="not both"):
            administration.purge(ORDERS, "a = 1", places=[])
        with pytest.raises(ValueError, match="not both"):
            administration.purge(ORDERS, places=[], newest=1)
        with pytest.raises(ValueError, match="not both"):
            administration.move(ORDERS, "DLQ", places=[], limit=1)
        with pytest.raises(ValueError, match="goes with places"):
            administration.purge(1)
        with pytest.raises(jmsql.JMSException, match="in that queue already"):
            administration.move(ORDERS, ORDERS, places=[Place(5, 1)])


class TestDepth:
    def test_it_is_counted_to_a_limit(
        self, administration: Administration, jmsql_factory: jmsql.ConnectionFactory, jmsql_clean_url: str
    ) -> None:
        send(jmsql_factory, "orders", *map(str, range(5)))
        send(jmsql_factory, "orders", "later", delivery_delay=3600.0)
        expected = {3: BoundedCount(3, has_more=True), 5: BoundedCount(5), 1000: BoundedCount(5)}
        assert {most: administration.depth(ORDERS, most) for most in expected} == expected
        with psycopg.connect(jmsql_clean_url, autocommit=True) as database:
            row = database.execute(
                "select jmsql.depth('orders'), jmsql.depth('queue://orders', 3), "
                "jmsql.depth('orders', count_limit => 0)"
            ).fetchone()
            assert row == (5, 3, 0)
            for wrong, state in (("'nowhere'", "JMS01"), ("'topic://x'", "JMS01"), ("'orders', -1", "JMS03"),
                                 ("'orders', null", "JMS03"), ("null", "JMS01")):  # fmt: skip
                with pytest.raises(psycopg.Error) as refusal:
                    database.execute(f"select jmsql.depth({wrong})")
                assert refusal.value.sqlstate == state, wrong

    def test_the_next_delayed_message_has_a_time(
        self, jmsql_factory: jmsql.ConnectionFactory, jmsql_clean_url: str
    ) -> None:
        send(jmsql_factory, "orders", "now")
        with psycopg.connect(jmsql_clean_url, autocommit=True) as database:
            assert database.execute("select jmsql.next_due('orders')").fetchone() == (None,)
            for delay in (7200.0, 3600.0):
                send(jmsql_factory, "orders", "later", delivery_delay=delay)
            due = "select jmsql.next_due('orders') - now() between interval '50 minutes' and interval '1 hour'"
            assert database.execute(due).fetchone() == (True,)
            with pytest.raises(psycopg.Error) as refusal:
                database.execute("select jmsql.next_due('nowhere')")
            assert refusal.value.sqlstate == "JMS01"

    def test_pending_messages_are_not_counted(
        self, administration: Administration, jmsql_factory: jmsql.ConnectionFactory, jmsql_clean_url: str
    ) -> None:
        send(jmsql_factory, "orders", "1")
        with psycopg.connect(jmsql_clean_url) as database:
            database.execute(
                "insert into jmsql_internal.pending_transaction (write_id, queue_ids, first_sequence, last_sequence) "
                "values ('w', '{}', 0, 0)"
            )
            database.execute(
                "insert into jmsql_internal.message (queue_id, inverse_priority, jms_delivery_mode, message_type) "
                "select queue_id, 5, 2, 'TextMessage' from jmsql_internal.queue where name = 'orders'"
            )
            database.commit()
            assert database.execute("select jmsql.depth('orders')").fetchone() == (1,)
            assert administration.depth("orders").number == 1
            [orders] = administration.overview(like="orders")
            assert orders.ready == BoundedCount(1)
            assert len(list(administration.browse("orders"))) == 1
            database.execute("delete from jmsql_internal.pending_transaction")
