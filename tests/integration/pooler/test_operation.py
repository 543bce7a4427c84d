"""Administrators see that they work through a pooler, and can do so."""

from __future__ import annotations

from jmsql import ConnectionFactory, Queue
from jmsql.client._sync.link.opening import open_runner
from jmsql.doctor import Health, Thresholds, examine
from jmsql.store.administration.measurement import LONGEST_LOOK
from jmsql.store.administration.overview import measure
from tests.texts import send_texts


def test_the_doctor_names_the_pooler(jmsql_factory: ConnectionFactory, direct_factory: ConnectionFactory) -> None:
    found = {}
    for factory in (jmsql_factory, direct_factory):
        assert factory.url is not None
        with open_runner(factory.url, factory.schema) as runner:
            [found[factory.url]] = [each for each in examine(runner, Thresholds()) if each.check == "pooler"]
    through, direct = found.values()
    assert (through.health, direct.health) == (Health.note, Health.ok)
    assert "control_url" in (through.advice or "")


def test_measurements_are_the_same_through_it(
    jmsql_factory: ConnectionFactory, direct_factory: ConnectionFactory
) -> None:
    with jmsql_factory.create_connection() as connection:
        send_texts(connection.create_session(), Queue("orders"), "a", "b")
    depths = []
    for factory in (jmsql_factory, direct_factory):
        assert factory.url is not None
        with open_runner(factory.url, factory.schema, statement_timeout=LONGEST_LOOK) as runner:
            depths.append([(str(each.destination), str(each.ready)) for each in runner.run(measure())])
    assert depths[0] == depths[1] == [("queue://orders", "2")]
    with open_runner(jmsql_factory.url or "", jmsql_factory.schema) as runner:
        timeout = runner.connection.execute("show statement_timeout").fetchone()
    assert timeout == ("0",), "no other client is to find what one has set"
