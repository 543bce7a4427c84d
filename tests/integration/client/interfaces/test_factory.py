"""Administered objects: connection factories and queues can be stored, compared and sent about (JMS 1.1, 4.2)."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
from functools import partial

import pytest

from jmsql import ConnectionFactory, InvalidDestinationException, JMSException, Queue, Topic
from jmsql.admin import Administration
from tests.background import Background
from tests.texts import receive_texts, send_texts


def test_factory_survives_pickling(factory: ConnectionFactory, queue: Queue) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        restored = pickle.loads(pickle.dumps(factory, protocol))
        assert restored == factory
        assert hash(restored) == hash(factory)
    with pickle.loads(pickle.dumps(factory)).create_connection() as connection:
        connection.start()
        session = connection.create_session()
        send_texts(session, queue, "a")
        assert receive_texts(session.create_consumer(queue), 1) == ["a"]


def test_factory_is_immutable(factory: ConnectionFactory) -> None:
    for name in ("url", "schema", "client_id", "control_url"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(factory, name, "another")
    assert dataclasses.replace(factory, client_id="mine") != factory


@pytest.mark.parametrize("destination", [Queue("orders"), Queue("bestellungen/größe 'x' \"y\" % 名前"), Topic("news")])
def test_destinations_survive_pickling(destination: Queue | Topic) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(destination, protocol)) == destination
    assert copy.deepcopy(destination) == destination
    assert {destination: 1}[copy.copy(destination)] == 1


def test_queues_are_equal_by_kind_and_name() -> None:
    assert Queue("a") == Queue("a")
    assert Queue("a") != Queue("A")
    assert len({Queue("a"), Topic("a"), Queue("a")}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        Queue("a").name = "b"  # type: ignore[misc]


@pytest.mark.parametrize("name", ["", "x" * 256, "nul\0", "half \ud800"])
def test_impossible_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidDestinationException, match="name"):
        Queue(name)


@pytest.mark.parametrize(
    "name", ["x" * 255, " ", "'; drop table message; --", 'quoted "name"', "100 %s", "名前", "\t\n"]
)
def test_any_other_name_is_a_queue_of_its_own(factory: ConnectionFactory, name: str) -> None:
    with factory.create_connection() as connection:
        connection.start()
        session = connection.create_session()
        send_texts(session, Queue(name), name)
        assert receive_texts(session.create_consumer(Queue(name)), 1) == [name]


@pytest.mark.parametrize("url", ["", "orders", "mysql://host/db", "sqlite://", "postgresql+asyncpg://host/db", "://"])
def test_another_url_than_one_of_postgresql_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JMSQL_URL", "neither is this")
    with pytest.raises(JMSException, match="postgresql://"):
        ConnectionFactory(url).create_connection()


@pytest.mark.parametrize("schema", ["", 5, "x" * 55, "x\0y", "o'neil"])
def test_impossible_schema_is_refused_in_a_sentence(factory: ConnectionFactory, schema: str) -> None:
    with pytest.raises(JMSException, match=r"The schema cannot be named .*: choose a name of 1 to 54 bytes"):
        dataclasses.replace(factory, schema=schema).create_connection()
    assert factory.url is not None
    with pytest.raises(JMSException, match=r"The schema cannot be named .*: choose a name of 1 to 54 bytes"):
        Administration(factory.url, schema=schema)


def test_environment_names_the_database_where_the_factory_does_not(
    factory: ConnectionFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert factory.url is not None
    monkeypatch.setenv("JMSQL_URL", factory.url)
    with ConnectionFactory().create_connection() as connection:
        assert connection.metadata.jms_provider_name == "jmsql"


def test_threads_share_a_factory(factory: ConnectionFactory) -> None:
    all_connected = threading.Barrier(4)

    def exchange(number: int) -> list[str]:
        with factory.create_connection() as connection:
            all_connected.wait(60)
            connection.start()
            session, own = connection.create_session(), Queue(f"queue {number}")
            send_texts(session, own, str(number))
            return receive_texts(session.create_consumer(own), 1)

    exchanging = [Background(partial(exchange, number)) for number in range(4)]
    assert [each.result() for each in exchanging] == [["0"], ["1"], ["2"], ["3"]]
