"""Listeners that stop and close their own connection, beside others that run: Jakarta Messaging 3.1, chapter 6.1.5."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from jmsql import Connection, ConnectionFactory, IllegalStateException, Message, Queue, Session, TextMessage
from jmsql.testing import receive_all, wait_for
from tests.background import Background
from tests.compliance.held_listener import HeldListener

pytestmark = pytest.mark.usefixtures("maintenance_suspended")

PATIENCE = 60.0


def listen(connection: Connection, queue: Queue, work: Callable[[Message], object]) -> tuple[Session, HeldListener]:
    """Make a session with a listener that is called and held."""
    session = connection.create_session()
    listener = HeldListener(work)
    session.create_consumer(queue).message_listener = listener
    with connection.create_session() as sender:
        sender.create_producer(queue).send(TextMessage("first"))
        sender.create_producer(queue).send(TextMessage("second"))
    listener.wait_until_called()
    return session, listener


def test_stop_in_a_listener_waits_for_the_listeners_of_other_sessions(connection: Connection) -> None:
    _, other = listen(connection, Queue("others"), lambda _: None)
    stopped: list[bool] = []

    def stop(_: Message) -> None:
        if not stopped:  # with the second message it would keep that of the other session back
            connection.stop()
            stopped.append(other.has_returned)

    _, listener = listen(connection, Queue("own"), stop)
    listener.release()
    wait_for(lambda: not connection._client.started)
    assert stopped == []
    other.release()
    wait_for(lambda: listener.has_returned)
    assert stopped == [True]
    assert listener.errors == []
    connection.stop()  # waits until the message is acknowledged
    assert (len(listener.messages), len(other.messages)) == (1, 1)
    connection.start()
    wait_for(lambda: (len(listener.messages), len(other.messages)) == (2, 2))


def test_stop_in_the_listener_of_a_context_waits_for_those_of_its_siblings(jmsql_factory: ConnectionFactory) -> None:
    queue, others = Queue("own"), Queue("others")
    with jmsql_factory.create_context() as context, context.create_context(context.session_mode) as sibling:
        other = HeldListener()
        sibling.create_consumer(others).message_listener = other
        with jmsql_factory.create_context() as sender:
            sender.create_producer().send(others, "text").send(queue, "first").send(queue, "second")
        other.wait_until_called()
        heard: list[bool] = []

        def stop(_: Message) -> None:
            context.stop()
            heard.append(other.has_returned)

        context.create_consumer(queue).message_listener = stop
        connection = context._connection
        assert connection is not None
        wait_for(lambda: not connection._client.started)
        assert heard == []
        other.release()
        wait_for(lambda: heard == [True])
        context.stop()
        assert heard == [True]
        context.start()
        wait_for(lambda: heard == [True, True])


@pytest.mark.parametrize("second", ["stop", "close", "session"])
@pytest.mark.parametrize("first", ["stop", "close"])
def test_listeners_do_not_wait_for_each_other(connection: Connection, first: str, second: str) -> None:
    sessions: list[Session] = []

    def work(method: str) -> Callable[[Message], object]:
        return lambda _: sessions[0].close() if method == "session" else getattr(connection, method)()

    session, one = listen(connection, Queue("one"), work(first))
    _, other = listen(connection, Queue("other"), work(second))
    sessions.append(session)
    one.release()
    wait_for(lambda: connection._sessions.waits and not connection._client.started)
    other.release()
    wait_for(lambda: one.has_returned and other.has_returned)
    assert one.errors == []
    # Who closes what another one is closing already need not wait.
    assert [type(error) for error in other.errors] == [IllegalStateException] * ((first, second) != ("close", "close"))


def test_a_listener_closes_a_session_that_does_nothing_while_another_listener_waits_for_it(
    connection: Connection,
) -> None:
    idle = connection.create_session()
    idle.create_consumer(Queue("idle")).message_listener = lambda _: None
    _, one = listen(connection, Queue("one"), lambda _: connection.stop())
    _, other = listen(connection, Queue("other"), lambda _: idle.close())
    one.release()
    wait_for(lambda: connection._sessions.waits and not connection._client.started)
    other.release()
    wait_for(lambda: one.has_returned and other.has_returned)
    assert one.errors + other.errors == []
    assert idle._state.closed


def test_two_listeners_do_not_close_each_others_sessions(connection: Connection) -> None:
    sessions: list[Session] = []
    first, one = listen(connection, Queue("one"), lambda _: sessions[1].close())
    second, other = listen(connection, Queue("other"), lambda _: sessions[0].close())
    sessions += [first, second]
    one.release()
    wait_for(lambda: connection._sessions.waits)
    other.release()
    wait_for(lambda: one.has_returned and other.has_returned)
    assert one.errors == []
    assert [type(error) for error in other.errors] == [IllegalStateException]
    assert second._state.closed
    assert not first._state.closed


def test_a_listener_may_stop_and_close_once_another_has_stopped(connection: Connection) -> None:
    first, one = listen(connection, Queue("one"), lambda _: connection.stop())
    one.release()
    wait_for(lambda: one.has_returned)
    first.close()
    connection.start()

    def stop_and_close(_: Message) -> None:
        connection.stop()
        connection.close()

    session, other = listen(connection, Queue("other"), stop_and_close)
    other.release()
    wait_for(lambda: connection._client.closed and session._state.closed and other.has_returned)
    assert other.errors == []


def test_a_receive_under_way_ends_before_stop_in_a_listener_returns(
    connection: Connection, others: Session, queue: Queue
) -> None:
    consumer = connection.create_session().create_consumer(queue)
    receiving = Background(consumer.receive)
    receiving.wait_until_it_waits()
    stopped = threading.Event()

    def stop(_: Message) -> None:
        connection.stop()
        others.create_producer(queue).send(TextMessage("late"))
        stopped.set()

    _, listener = listen(connection, Queue("own"), stop)
    listener.release()
    assert stopped.wait(PATIENCE)
    consumer.close()
    assert receiving.result() is None
    assert len(receive_all(others.create_consumer(queue))) == 1


def test_a_listener_closes_its_own_context_beside_others(jmsql_factory: ConnectionFactory, queue: Queue) -> None:
    context = jmsql_factory.create_context()
    with jmsql_factory.create_context() as sender:
        sender.create_producer().send(queue, "text")
        closed = threading.Event()

        def close(message: Message) -> None:
            context.close()
            assert message.get_body(str) == "text"
            closed.set()

        context.create_consumer(queue).message_listener = close
        assert closed.wait(PATIENCE)
        connection = context._connection
        assert connection is not None
        wait_for(lambda: connection._client.closed and not connection._sessions)
        assert receive_all(sender.create_consumer(queue)) == []
