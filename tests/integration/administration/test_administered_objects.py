"""Connection factories and destinations in the database, by name."""

from __future__ import annotations

import pickle

import pytest
import sqlalchemy

from jmsql import ConnectionFactory, JMSException, Queue, TemporaryQueue, Topic, lookup
from jmsql.admin import Administration
from jmsql.domains import QueueConnectionFactory, TopicConnectionFactory
from jmsql.timings import InternalTimings
from jmsql.xa import XAConnectionFactory, XAQueueConnectionFactory, XATopicConnectionFactory
from tests.integration.client.server import Server

pytestmark = pytest.mark.usefixtures("maintenance_suspended")


@pytest.mark.parametrize(
    "kind",
    [
        ConnectionFactory,
        QueueConnectionFactory,
        TopicConnectionFactory,
        XAConnectionFactory,
        XAQueueConnectionFactory,
        XATopicConnectionFactory,
    ],
)
def test_a_factory_makes_connections_as_before(
    administration: Administration, jmsql_factory: ConnectionFactory, kind: type[ConnectionFactory]
) -> None:
    factory = kind(jmsql_factory.url, client_id="web", automatic_creation=False)
    administration.bind("jms/factory", factory)
    found = lookup("jms/factory", jmsql_factory)
    assert isinstance(found, kind)
    assert (type(found), found.client_id, found.schema, found.automatic_creation) == (kind, "web", "jmsql", False)
    assert pickle.loads(pickle.dumps(found)) == found
    with found.create_connection() as connection:
        assert connection.client_id == "web"


def test_a_factory_keeps_the_timings_that_are_not_the_defaults(
    administration: Administration, jmsql_factory: ConnectionFactory, server: Server
) -> None:
    stored = "select object -> 'timings' from jmsql_internal.binding where name = 'jms/factory'"
    administration.bind("jms/factory", ConnectionFactory(jmsql_factory.url))
    assert server.rows(stored) == [(None,)]
    assert lookup("jms/factory", jmsql_factory) == ConnectionFactory(jmsql_factory.url)
    factory = ConnectionFactory(jmsql_factory.url, timings=InternalTimings(sweep_interval=2.5, connect_timeout=3))
    administration.bind("jms/factory", factory)
    assert server.rows(stored) == [({"sweep_interval": 2.5, "connect_timeout": 3},)]
    assert lookup("jms/factory", jmsql_factory) == factory


@pytest.mark.parametrize(
    ("timings", "complaint"),
    [
        ('{"nap": 1}', "Timings have no nap"),
        ('{"sweep_interval": "1"}', "sweep_interval is a number"),
        ('{"sweep_interval": 0}', "sweep_interval is a number of seconds from"),
        ('{"connect_timeout": 2.5}', "connect_timeout is a whole number"),
        ("[]", r"whose timings are \[\]"),
    ],
)
def test_timings_that_this_release_does_not_take(
    administration: Administration, jmsql_factory: ConnectionFactory, server: Server, timings: str, complaint: str
) -> None:
    administration.bind("jms/factory", ConnectionFactory(jmsql_factory.url))
    server.rows(
        "update jmsql_internal.binding set object = object || jsonb_build_object('timings', %s::jsonb)", timings
    )
    with pytest.raises(JMSException, match=f"'jms/factory' is bound to a factory.*{complaint}.*bind it again"):
        lookup("jms/factory", jmsql_factory)


@pytest.mark.parametrize("destination", [Queue("orders"), Topic("prices")])
def test_a_destination(
    administration: Administration, jmsql_factory: ConnectionFactory, destination: Queue | Topic
) -> None:
    administration.bind("jms/destination", destination)
    assert lookup("jms/destination", jmsql_factory.url) == destination
    assert administration.bindings() == {"jms/destination": destination}
    administration.bind("jms/destination", Queue("another"))
    assert lookup("jms/destination", jmsql_factory.url) == Queue("another")
    administration.unbind("jms/destination")
    assert administration.bindings() == {}


def test_in_the_database_of_the_environment(
    administration: Administration, jmsql_factory: ConnectionFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert jmsql_factory.url is not None
    monkeypatch.setenv("JMSQL_URL", jmsql_factory.url)
    administration.bind("jms/factory", ConnectionFactory())
    assert lookup("jms/factory") == ConnectionFactory()


def test_no_password_is_stored(administration: Administration, server: Server) -> None:
    administration.bind(
        "jms/factory",
        ConnectionFactory(
            "postgresql://app:entirely-secret@db/shop?sslpassword=entirely-secret",
            control_url="postgresql://db/shop?user=app&password=entirely-secret",
        ),
    )
    [(stored,)] = server.rows("select object::text from jmsql_internal.binding")
    assert "secret" not in stored
    found = administration.bindings()["jms/factory"]
    assert isinstance(found, ConnectionFactory)
    assert found.url is not None
    assert sqlalchemy.make_url(found.url).username == "app"


def test_refusals(administration: Administration, jmsql_factory: ConnectionFactory) -> None:
    with pytest.raises(JMSException, match=r"Nothing is bound to 'jms/orders'.*`jmsql binding bind`"):
        lookup("jms/orders", jmsql_factory)
    with pytest.raises(JMSException, match="Nothing is bound"):
        administration.unbind("jms/orders")
    with pytest.raises(JMSException, match="1 to 255"):
        administration.bind("", Queue("orders"))
    with pytest.raises(JMSException, match="Expected a connection factory"):
        administration.bind("jms/orders", TemporaryQueue("orders"))
