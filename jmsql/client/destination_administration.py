"""Administration of destinations: made, changed, deleted, opened to roles and kept under names."""

from __future__ import annotations

from types import TracebackType
from typing import Self, Unpack

from sqlalchemy import Engine

from jmsql.client.administered_objects import AdministeredObject, AdministeredObjects
from jmsql.client.factory import ConnectionFactory, default_url
from jmsql.destinations import Destination, Queue, Topic, named_destination
from jmsql.store.access import Access, AccessSummary, Action
from jmsql.store.autocommit_connection import AutocommitConnection
from jmsql.store.automatic_creation import automatic_creation, set_automatic_creation
from jmsql.store.destination_settings import DestinationsAdministration, DestinationSettings, DestinationSummary
from jmsql.store.errors import jms_errors
from jmsql.store.migration import DEFAULT_SCHEMA, check_schema
from jmsql.timings import Timings

__all__ = ["DestinationAdministration"]


class DestinationAdministration:
    """The half of [`Administration`][jmsql.admin.Administration] that is about destinations.

    Args:
        database: Where to connect to.
        schema: The PostgreSQL schema of jmsql's tables.
    """

    def __init__(self, database: str | ConnectionFactory | Engine | None = None, *, schema: str | None = None) -> None:
        self._timings = Timings()
        if isinstance(database, ConnectionFactory):
            self._timings = database.timings
            schema = schema or database.schema
            database = database.url
        self._schema = schema or DEFAULT_SCHEMA
        self._connection = AutocommitConnection(database or default_url(self._schema), self._timings)
        try:
            with jms_errors("looking at the schema"):
                check_schema(self._connection.sqlalchemy, self._schema)
        except BaseException:
            self._connection.close()
            raise
        self._runner = self._connection.runner(self._schema)
        self._objects = AdministeredObjects(self._connection, self._schema)
        self._access = Access(self._connection, self._schema)
        self._destinations = DestinationsAdministration(self._connection, self._schema)

    # Destinations

    def create(self, destination: Destination | str, **settings: Unpack[DestinationSettings]) -> bool:
        """Make a queue or topic if it is not there, and change the settings that are given.

        Returns:
            Whether it was made.

        Raises:
            InvalidDestinationException: The name is none, or a queue that a setting names is not there.
            JMSException: A setting cannot have the value.
        """
        return self._destinations.create(named_destination(destination), settings)

    def create_queue(self, name: str, **settings: Unpack[DestinationSettings]) -> Queue:
        """Make a queue if it is not there, change the settings that are given, and return it; raises as `create`."""
        queue = Queue(name)
        self._destinations.create(queue, settings)
        return queue

    def create_topic(self, name: str, **settings: Unpack[DestinationSettings]) -> Topic:
        """Make a topic if it is not there, change the settings that are given, and return it; raises as `create`."""
        topic = Topic(name)
        self._destinations.create(topic, settings)
        return topic

    def alter(self, destination: Destination | str, **settings: Unpack[DestinationSettings]) -> None:
        """Change settings of a queue, or of a topic and all its subscriptions.

        Raises:
            InvalidDestinationException: There is no such destination, or no queue that a setting names.
            JMSException: A setting cannot have the value.
        """
        self._destinations.alter(named_destination(destination), settings)

    def reset(self, destination: Destination | str, *settings: str) -> None:
        """Change settings, given by their names, to what they are by default.

        Raises:
            InvalidDestinationException: There is no such destination.
            JMSException: There is no such setting.
        """
        self._destinations.reset(named_destination(destination), settings)

    def pause(self, destination: Destination | str) -> None:
        """Stop the delivery of messages from a queue, or from all subscriptions of a topic; they still collect.

        Nobody gets a message any more, also of those that consumers have fetched and not delivered. What was delivered
        can be acknowledged, committed or rolled back. Browsers see the messages, and those that expire go.

        Raises:
            InvalidDestinationException: There is no such destination.
        """
        self.alter(destination, paused=True)

    def resume(self, destination: Destination | str) -> None:
        """Go on with the delivery of messages; whoever waits for one is woken.

        Raises:
            InvalidDestinationException: There is no such destination.
        """
        self.alter(destination, paused=False)

    def delete(self, destination: Destination | str, *, force: bool = False) -> None:
        """Delete a queue with its messages, or a topic with its subscriptions and their messages.

        Args:
            destination: The queue or topic.
            force: Delete it also while clients receive from it. Their consumers then wait for one of the same name to
                be made; what they have received and not acknowledged goes when they let go of it.

        Raises:
            InvalidDestinationException: There is no such destination.
            IllegalStateException: A client receives from it.
        """
        self._destinations.delete(named_destination(destination), force=force)

    @property
    def automatic_creation(self) -> bool:
        """Whether the first use of a queue or topic makes it, by whatever client. True by default."""
        return self._runner.run(automatic_creation())

    @automatic_creation.setter
    def automatic_creation(self, enabled: bool) -> None:
        self._runner.run(set_automatic_creation(enabled=enabled))

    def destinations(self) -> list[DestinationSummary]:
        """Return all destinations, with what is set for them: queues first, by name."""
        return self._destinations.summaries()

    def destination(self, destination: Destination | str) -> DestinationSummary:
        """Return a destination, with what is set for it.

        Raises:
            InvalidDestinationException: There is no such destination.
        """
        return self._destinations.summary(named_destination(destination))

    # Access

    def create_roles(self) -> list[str]:
        """Make the roles ``jmsql_producer``, ``jmsql_consumer``, ``jmsql_browser`` and ``jmsql_admin``.

        Their members may do with all destinations what the roles are called after. Roles are the server's, not the
        database's: those that are there already are given the rights in this schema.

        Returns:
            Those that were not there.

        Raises:
            JMSSecurityException: The role that has connected may not make roles, or does not own the schema.
        """
        return self._access.create_roles()

    def grant(
        self,
        destination: Destination | str,
        role: str,
        *,
        send: bool = False,
        receive: bool = False,
        browse: bool = False,
    ) -> None:
        """Let a role of PostgreSQL send to a destination, receive from it, or browse it.

        The first grant switches PostgreSQL's row security on. From then on, only the owner of the schema and those
        who were given access do anything with destinations.

        Raises:
            InvalidDestinationException: There is no such destination.
            JMSSecurityException: The role that has connected does not administer the schema.
            JMSException: There is no such role.
        """
        self._access.grant(named_destination(destination), role, _actions(send, receive, browse))

    def revoke(
        self,
        destination: Destination | str,
        role: str,
        *,
        send: bool = False,
        receive: bool = False,
        browse: bool = False,
    ) -> None:
        """Take back what `grant` has given; raises as `grant`."""
        self._access.revoke(named_destination(destination), role, _actions(send, receive, browse))

    def grants(self, destination: Destination | str | None = None) -> list[AccessSummary]:
        """Return which roles have access, to a destination or, with None, to any; those with access to all come first.

        Raises:
            JMSException: The server could not be asked.
        """
        return self._access.summaries(None if destination is None else named_destination(destination))

    # Administered objects

    def bind(self, name: str, administered: ConnectionFactory | Destination) -> None:
        """Keep a connection factory, queue or topic in the database, for [`lookup`][jmsql.lookup].

        What was bound to the name is replaced. No password is stored: let it come from ``PGPASSWORD``, ``~/.pgpass``
        or a service file where the factory is used, or give it to `create_connection`.

        Args:
            name: Such as ``jms/orders``.
            administered: The object.

        Raises:
            JMSException: It is no such object, or a temporary destination; or the name is none.
        """
        self._objects.bind(name, administered)

    def unbind(self, name: str) -> None:
        """Forget what is bound to a name.

        Raises:
            JMSException: Nothing is.
        """
        self._objects.unbind(name)

    def bindings(self) -> dict[str, AdministeredObject]:
        """Return the administered objects that are bound, by name."""
        return self._objects.all()

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._connection.engine.url.render_as_string(hide_password=True)}>"


def _actions(send: bool, receive: bool, browse: bool) -> list[Action]:
    wanted: dict[Action, bool] = {"send": send, "receive": receive, "browse": browse}
    return [action for action, is_wanted in wanted.items() if is_wanted]
