"""The connection between a session and the server is cut at every point, one after the other.

Whatever happens, the caller sees JMS exceptions alone, and afterwards every business row and every message is accounted
for. A first run, uncut, counts the requests; then one run for each of them and for each side of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy

import jmsql
from jmsql.testing import receive_all, wait_for
from tests.faults.proxy import CutPoint, CuttingProxy

QUEUE = jmsql.Queue("orders")
NUMBERS = (1, 2)
"""The first is cut while another waits, the second after another was done."""
ATTEMPTS = 5
UNKNOWN_OUTCOME = "08007"
CLAIM_LOST = "JMS05"
CUT = "cut"
"""The name of the connections that are cut, by which the server tells of them."""

pytestmark = pytest.mark.timeout(400)

Scenario = Callable[[jmsql.Connection], None]


@pytest.fixture
def witness(jmsql_factory: jmsql.ConnectionFactory) -> Iterator[jmsql.Session]:
    """A transacted session that nobody cuts. There is a business table."""
    with jmsql_factory.create_connection() as connection:
        connection.start()
        session = connection.create_session(transacted=True)
        session.database.execute(sqlalchemy.text("create table if not exists orders (number int)"))
        session.commit()
        yield session
        session.database.execute(sqlalchemy.text("drop table orders"))
        session.commit()


def rows(witness: jmsql.Session) -> list[int]:
    stored = list(witness.database.scalars(sqlalchemy.text("delete from orders returning number")))
    witness.commit()
    return stored


def messages(witness: jmsql.Session) -> list[int]:
    # What a client could not release before it ended, because it was cut off, maintenance frees.
    claimed = sqlalchemy.text("select count(*) from jmsql_internal.delivery where claim_id is not null")
    wait_for(lambda: witness.database.scalar(claimed) == 0, timeout=60)
    with witness.create_consumer(QUEUE) as consumer:
        numbers = [number(message) for message in receive_all(consumer)]
        witness.commit()
    return numbers


def number(message: jmsql.Message) -> int:
    return message.get_int_property("number")


def numbered(session: jmsql.Session, value: int) -> jmsql.Message:
    message = session.create_message()
    message.set_int_property("number", value)
    return message


def put(witness: jmsql.Session) -> None:
    with witness.create_producer(QUEUE) as producer:
        for value in NUMBERS:
            producer.send(numbered(witness, value))
    witness.commit()


def cut_everywhere(
    factory: jmsql.ConnectionFactory, witness: jmsql.Session, scenario: Scenario, check: Callable[[], None]
) -> None:
    """Run a scenario once for each of its requests, with a cut at that request, and check what it left."""
    assert factory.url is not None
    own = sqlalchemy.make_url(factory.url).update_query_dict({"application_name": CUT})
    url = own.render_as_string(hide_password=False)
    requests = 0
    for cut_point in CutPoint:
        cut_at: int | None = None
        while cut_at is None or cut_at < requests:
            with CuttingProxy(url, cut_at, cut_point) as proxy:
                through_proxy = jmsql.ConnectionFactory(proxy.url, schema=factory.schema, control_url=url)
                try:
                    with through_proxy.create_connection() as connection:
                        connection.start()
                        scenario(connection)
                except jmsql.JMSException:
                    assert cut_at is not None, "nothing was cut"
                requests = proxy.requests if cut_at is None else requests
            wait_for_the_end_of_what_was_cut(witness)
            check()
            cut_at = 0 if cut_at is None else cut_at + 1
    assert requests > len(NUMBERS)


def wait_for_the_end_of_what_was_cut(witness: jmsql.Session) -> None:
    """Wait until the server has ended, too: it may still commit what it was asked to before the cut."""
    backends = sqlalchemy.text("select count(*) from pg_stat_activity where application_name = :cut")

    def have_ended() -> bool:
        number: int | None = witness.database.scalar(backends, {"cut": CUT})
        witness.commit()  # the next look is to see what has changed
        return number == 0

    wait_for(have_ended, timeout=60)


def test_a_transaction_sends_and_stores_together_or_not_at_all(
    jmsql_factory: jmsql.ConnectionFactory, witness: jmsql.Session
) -> None:
    committed: set[int] = set()
    unknown: set[int] = set()

    def place_orders(connection: jmsql.Connection) -> None:
        session = connection.create_session(transacted=True)
        producer = session.create_producer(QUEUE)
        for value in NUMBERS:
            try:
                session.database.execute(sqlalchemy.text("insert into orders values (:number)"), {"number": value})
                producer.send(numbered(session, value))
                session.commit()
                committed.add(value)
            except jmsql.JMSException as error:
                if error.error_code == UNKNOWN_OUTCOME:
                    unknown.add(value)
                session.rollback()
            except sqlalchemy.exc.OperationalError:  # of the application's own statement
                session.rollback()

    def check() -> None:
        stored, sent = rows(witness), messages(witness)
        assert sorted(stored) == sorted(sent), "half of a transaction took effect"
        assert committed <= set(stored) <= committed | unknown
        assert max(Counter(sent).values(), default=1) == 1
        committed.clear()
        unknown.clear()

    cut_everywhere(jmsql_factory, witness, place_orders, check)


def test_a_transaction_receives_and_stores_exactly_once(
    jmsql_factory: jmsql.ConnectionFactory, witness: jmsql.Session
) -> None:
    def take_orders(connection: jmsql.Connection) -> None:
        session = connection.create_session(transacted=True)
        consumer = session.create_consumer(QUEUE)
        for _ in range(ATTEMPTS * len(NUMBERS)):
            try:
                message = consumer.receive(timeout=0)
                if message is None:
                    break
                insert = sqlalchemy.text("insert into orders values (:number)")
                session.database.execute(insert, {"number": number(message)})
                session.commit()
            except (jmsql.JMSException, sqlalchemy.exc.OperationalError):
                session.rollback()

    def check() -> None:
        assert sorted(rows(witness) + messages(witness)) == list(NUMBERS)
        put(witness)

    put(witness)
    cut_everywhere(jmsql_factory, witness, take_orders, check)


def test_a_send_that_succeeded_is_there(jmsql_factory: jmsql.ConnectionFactory, witness: jmsql.Session) -> None:
    succeeded: list[int] = []
    in_doubt: list[int] = []

    def send(connection: jmsql.Connection) -> None:
        session = connection.create_session()
        producer = session.create_producer(QUEUE)
        for value in NUMBERS:
            try:
                producer.send(numbered(session, value))
                succeeded.append(value)
            except jmsql.JMSException as error:
                if error.error_code == UNKNOWN_OUTCOME:
                    in_doubt.append(value)

    def check() -> None:
        sent = messages(witness)
        assert set(succeeded) <= set(sent) <= {*succeeded, *in_doubt}
        assert max(Counter(sent).values(), default=1) == 1
        succeeded.clear()
        in_doubt.clear()

    cut_everywhere(jmsql_factory, witness, send, check)


@pytest.mark.parametrize(
    "mode", [jmsql.AcknowledgeMode.AUTO, jmsql.AcknowledgeMode.DUPS_OK], ids=lambda mode: mode.name
)
def test_no_message_is_lost_between_the_queue_and_receive(
    jmsql_factory: jmsql.ConnectionFactory, witness: jmsql.Session, mode: jmsql.AcknowledgeMode
) -> None:
    received: list[int] = []
    doubled = 1 if mode is jmsql.AcknowledgeMode.AUTO else len(NUMBERS)  # DUPS_OK acknowledges several at a time

    def receive(connection: jmsql.Connection) -> None:
        session = connection.create_session(mode)
        consumer = session.create_consumer(QUEUE)
        for _ in range(ATTEMPTS * len(NUMBERS)):
            try:
                message = consumer.receive(timeout=0)
            except jmsql.JMSException:
                continue
            if message is None:
                break
            received.append(number(message))

    def check() -> None:
        left = messages(witness)
        assert set(received) | set(left) == set(NUMBERS)
        assert len(received) <= len(NUMBERS) + doubled, "only what the cut request was to acknowledge may come twice"
        received.clear()
        put(witness)

    put(witness)
    cut_everywhere(jmsql_factory, witness, receive, check)


def test_acknowledged_messages_are_gone_and_the_rest_comes_again(
    jmsql_factory: jmsql.ConnectionFactory, witness: jmsql.Session
) -> None:
    acknowledged: list[int] = []
    in_doubt: list[int] = []

    def receive(connection: jmsql.Connection) -> None:
        session = connection.create_session(acknowledge_mode=jmsql.AcknowledgeMode.CLIENT)
        consumer = session.create_consumer(QUEUE)
        for _ in range(ATTEMPTS * len(NUMBERS)):
            try:
                message = consumer.receive(timeout=0)
            except jmsql.JMSException:
                continue
            if message is None:
                break
            try:
                message.acknowledge()
                acknowledged.append(number(message))
            except jmsql.JMSException as error:
                # With CLAIM_LOST, the claim was lost before, with an earlier connection.
                assert error.error_code in {UNKNOWN_OUTCOME, CLAIM_LOST}  # noqa: PT017 - a later attempt may succeed
                in_doubt.append(number(message))

    def check() -> None:
        left = messages(witness)
        assert set(acknowledged).isdisjoint(left)
        assert set(acknowledged) | set(in_doubt) | set(left) == set(NUMBERS)
        acknowledged.clear()
        in_doubt.clear()
        put(witness)

    put(witness)
    cut_everywhere(jmsql_factory, witness, receive, check)


def test_messages_whose_claim_was_not_answered_are_delivered_again(
    jmsql_factory: jmsql.ConnectionFactory, witness: jmsql.Session
) -> None:
    assert jmsql_factory.url is not None
    received: set[int] = set()
    with CuttingProxy(jmsql_factory.url) as proxy:
        through_proxy = dataclasses.replace(jmsql_factory, url=proxy.url, control_url=jmsql_factory.url)
        with through_proxy.create_connection() as connection:
            connection.start()
            session = connection.create_session(acknowledge_mode=jmsql.AcknowledgeMode.CLIENT)
            consumer = session.create_consumer(QUEUE)
            assert consumer.receive_no_wait() is None
            put(witness)
            proxy.cut(CutPoint.BEFORE_RESPONSE)

            def has_all() -> bool:
                with contextlib.suppress(jmsql.JMSException):
                    message = consumer.receive(timeout=0.1)
                    received.update([] if message is None else [number(message)])
                return received == set(NUMBERS)

            wait_for(has_all, timeout=60)
    messages(witness)


@pytest.mark.parametrize("deduplication_id", [None, "payment 17"])
def test_a_send_whose_queue_could_not_be_made_again_was_not_sent(
    jmsql_factory: jmsql.ConnectionFactory, witness: jmsql.Session, deduplication_id: str | None
) -> None:
    """The server has refused the send, and the connection that is lost has made the queue at the most."""
    assert jmsql_factory.url is not None
    is_deleted = False

    def cut_the_making(request: bytes) -> None:
        is_send = b"TextMessage" in request or b"payment 17" in request
        if is_deleted and QUEUE.name.encode() in request and not is_send:
            proxy.cut(CutPoint.BEFORE_REQUEST)

    with CuttingProxy(jmsql_factory.url, on_request=cut_the_making) as proxy:
        through_proxy = dataclasses.replace(jmsql_factory, url=proxy.url, control_url=jmsql_factory.url)
        with through_proxy.create_connection() as connection:
            session = connection.create_session()
            jmsql.send(session, QUEUE, "a")
            witness.database.execute(sqlalchemy.text("delete from jmsql_internal.queue where name = 'orders'"))
            witness.commit()
            is_deleted = True
            with pytest.raises(jmsql.JMSException) as raised:
                jmsql.send(session, QUEUE, "a", deduplication_id=deduplication_id)
            is_deleted = False
    assert raised.value.error_code == "08006"
    assert messages(witness) == []
