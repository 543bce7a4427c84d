"""Administered objects in the database: connection factories and destinations, by name (JMS 1.1, chapter 4.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jmsql.client._async.connection.factory import ConnectionFactory
from jmsql.client._async.domains import QueueConnectionFactory, TopicConnectionFactory
from jmsql.client._async.link.opening import ConnectionOnDemand, default_url, open_runner
from jmsql.client._async.xa import XAConnectionFactory, XAQueueConnectionFactory, XATopicConnectionFactory
from jmsql.concurrency.tasks import in_thread
from jmsql.exceptions import JMSException
from jmsql.public_names import set_module
from jmsql.store.administration import bindings
from jmsql.store.connections.database_url import parse_url
from jmsql.store.schema.version import DEFAULT_SCHEMA
from jmsql.store.wire._async.runner import Runner
from jmsql.timings import Timings, from_differences
from jmsql.values.destinations import Destination, Queue, Topic

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine


AdministeredObject = ConnectionFactory | Queue | Topic
"""The objects that can be bound to a name."""

# An administered object is stored as a document: the name of its class, and its parameters, without a password. Of the
# timings it has the differences from the defaults, which may change in a later release.


_FACTORIES = {
    kind.__name__: kind
    for kind in (
        ConnectionFactory,
        QueueConnectionFactory,
        TopicConnectionFactory,
        XAConnectionFactory,
        XAQueueConnectionFactory,
        XATopicConnectionFactory,
    )
}
_DESTINATIONS: dict[str, type[Queue | Topic]] = {"Queue": Queue, "Topic": Topic}


class AdministeredObjects:
    """The administered objects that are kept in a schema."""

    def __init__(self, runner: Runner | ConnectionOnDemand) -> None:
        self._runner = runner

    async def bind(self, name: str, administered: ConnectionFactory | Destination) -> None:
        """Keep an object under a name."""
        if not isinstance(name, str) or not 0 < len(name) <= 255:
            raise JMSException(f"Expected a name of 1 to 255 characters for an administered object, got {name!r}.")
        await self._runner.run(bindings.bind(name, _to_document(administered)))

    async def unbind(self, name: str) -> None:
        """Forget an object."""
        if not await self._runner.run(bindings.unbind(name)):
            raise _unknown(name)

    async def lookup(self, name: str) -> AdministeredObject:
        """Return an object."""
        document = await self._runner.run(bindings.find_binding(name))
        if document is None:
            raise _unknown(name)
        return _from_document(name, document)

    async def all(self) -> dict[str, AdministeredObject]:
        """Return all objects, by name."""
        found = await self._runner.run(bindings.bindings)
        return {name: _from_document(name, document) for name, document in found.items()}


@set_module("jmsql.asyncio")
async def lookup(
    name: str, database: str | ConnectionFactory | AsyncEngine | None = None, *, schema: str | None = None
) -> AdministeredObject:
    """Return the connection factory or destination that an administrator has bound to a name.

    Args:
        name: Such as ``jms/orders``.
        database: Where to look: a URL, a connection factory, or a SQLAlchemy engine. None: the URL of the
            environment variable ``JMSQL_URL``, else the embedded server.
        schema: The PostgreSQL schema of jmsql's tables; None: the factory's, else ``jmsql``.

    Raises:
        JMSException: Nothing is bound to the name, or the database cannot be reached.
    """
    timings = Timings()
    if isinstance(database, ConnectionFactory):
        schema = database.schema if schema is None else schema
        timings = database.timings
        database = database.url
    schema = DEFAULT_SCHEMA if schema is None else schema
    if database is None:
        database = await in_thread(default_url, schema)
    async with await open_runner(database, schema, timings, requires_schema=False) as runner:
        return await AdministeredObjects(runner).lookup(name)


def _unknown(name: str) -> JMSException:
    return JMSException(
        f"Nothing is bound to {name!r}. Administration.bind(), or `jmsql binding bind`, binds an object."
    )


def _to_document(administered: ConnectionFactory | Destination) -> dict[str, Any]:
    kind = type(administered).__name__
    if isinstance(administered, Queue | Topic) and _DESTINATIONS.get(kind) is type(administered):
        return {"class": kind, "name": administered.name}
    if isinstance(administered, ConnectionFactory) and _FACTORIES.get(kind) is type(administered):
        return {
            "class": kind,
            "url": _without_password(administered.url),
            "client_id": administered.client_id,
            "schema": administered.schema,
            "control_url": _without_password(administered.control_url),
            "automatic_creation": administered.automatic_creation,
            **_timings_document(administered.timings),
        }
    raise JMSException(f"Expected a connection factory, a queue or a topic, got {administered!r}.")


def _from_document(name: str, document: dict[str, Any]) -> AdministeredObject:
    parts = dict(document)
    kind = parts.pop("class", None)
    if kind in _DESTINATIONS:
        return _DESTINATIONS[kind](**parts)
    if kind in _FACTORIES:
        timings = _timings(name, parts.pop("timings", {}))
        return _FACTORIES[kind](**parts, timings=timings)
    raise JMSException(f"{name!r} is bound to {kind!r}, which this release does not know; upgrade jmsql.")


def _timings_document(timings: Timings) -> dict[str, dict[str, float]]:
    """Return the differences from the defaults, which may change in a later release."""
    differences = timings.differences()
    return {"timings": differences} if differences else {}


def _timings(name: str, differences: object) -> Timings:
    if not isinstance(differences, dict):
        raise JMSException(f"{name!r} is bound to a factory whose timings are {differences!r}; bind it again.")
    try:
        return from_differences(differences)
    except (TypeError, ValueError) as error:
        raise JMSException(
            f"{name!r} is bound to a factory whose timings this release does not take: {error} Upgrade jmsql, or bind "
            "it again."
        ) from error


def _without_password(url: str | None) -> str | None:
    if url is None:
        return None
    return parse_url(url).without_parameters("sslpassword")._replace(password=None).text()
