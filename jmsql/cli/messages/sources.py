"""Where `jmsql receive` and `jmsql browse` find messages: in a queue, or in a subscription to a topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from jmsql.cli.options import read_destination
from jmsql.client.acknowledge_mode import AcknowledgeMode
from jmsql.exceptions import IllegalStateException, InvalidDestinationException
from jmsql.selectors import Selector
from jmsql.store.administration.inspection import BrowsedMessage
from jmsql.store.administration.places import Place
from jmsql.store.destinations.subscriptions import SubscriptionChange
from jmsql.values.destinations import Destination, Topic
from jmsql.values.postgresql_text import from_postgresql

if TYPE_CHECKING:
    from jmsql.client._sync.administration.administration import Administration
    from jmsql.client._sync.connection.connection import Connection
    from jmsql.client._sync.session.consumer import MessageConsumer


SubscriptionName = Annotated[
    str | None,
    typer.Option("--subscription", metavar="NAME", help="The topic's durable subscription of that name."),
]
ClientId = Annotated[
    str | None, typer.Option("--client-id", metavar="ID", help="The client identifier that it belongs to, if any.")
]
Shared = Annotated[bool, typer.Option("--shared", help="Share the subscription with other consumers.")]


class Source(NamedTuple):
    """A queue, a topic, or a durable subscription to one."""

    destination: Destination
    subscription: str | None
    client_id: str | None
    shared: bool

    @classmethod
    def read(cls, destination: str, subscription: str | None, client_id: str | None, *, shared: bool = False) -> Source:
        """Read the options.

        Raises:
            typer.BadParameter: They do not go together.
        """
        source = cls(read_destination(destination), subscription, client_id, shared)
        if subscription is not None and not isinstance(source.destination, Topic):
            raise typer.BadParameter("Only topics have subscriptions: write topic://NAME.")
        if subscription is None and (client_id is not None or shared):
            raise typer.BadParameter("--client-id and --shared say whose a subscription is: give --subscription too.")
        return source

    def require_owner(self) -> None:
        """Refuse a durable subscription without a client.

        Raises:
            typer.BadParameter: It is one.
        """
        if self.subscription is not None and self.client_id is None and not self.shared:
            raise typer.BadParameter("A durable subscription belongs to a client: give --client-id, or --shared.")

    @property
    def ends_with_its_consumer(self) -> bool:
        """True if it is a subscription that begins and ends with its consumer."""
        return isinstance(self.destination, Topic) and self.subscription is None

    def is_paused(self, administration: Administration) -> bool:
        """Return whether nothing is delivered from there, because it is paused."""
        try:
            return bool(administration.destination(self.destination).settings.get("paused"))
        except InvalidDestinationException:
            return False  # its first use makes it

    def browse(
        self, administration: Administration, selector: str | None, after: Place | None, limit: int
    ) -> Iterator[BrowsedMessage]:
        """Return the first messages that are there.

        Raises:
            InvalidDestinationException: There is no such queue, or no such subscription to the topic.
        """
        if self.subscription is None:
            return administration.browse(self.destination.uri, selector, after=after, limit=limit)
        existing = administration.subscription(self.subscription, self.client_id)
        if existing is not None and existing.topic != self.destination.name:
            raise InvalidDestinationException(f"The subscription {self.subscription!r} is to topic://{existing.topic}.")
        return administration.browse_subscription(
            self.subscription, selector, client_id=self.client_id, after=after, limit=limit
        )

    def consume(self, administration: Administration, connection: Connection, selector: str | None) -> MessageConsumer:
        """Make a consumer whose messages are to be acknowledged.

        A queue must be there; a durable subscription is made if it is not.

        Args:
            administration: Lists the queues and subscriptions.
            connection: The consumer's; nothing has been done with it yet.
            selector: A message selector. Default: all messages, or those that the durable subscription has collected.

        Raises:
            InvalidDestinationException: There is no such queue.
            IllegalStateException: The durable subscription has a consumer, or is another.
        """
        if self.client_id is not None:
            connection.client_id = self.client_id
        session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        if not isinstance(self.destination, Topic):
            administration.destination(self.destination)
            return session.create_consumer(self.destination, selector)
        if self.subscription is None:
            return session.create_consumer(self.destination, selector)
        existing = administration.subscription(self.subscription, self.client_id)
        no_local = existing is not None and existing.no_local
        if existing is not None:
            # To JMS another selector or topic means another subscription, and its collected messages would be gone.
            own = None if existing.selector is None else from_postgresql(existing.selector)
            if existing.topic != self.destination.name or (_text(selector) or own) != own:
                raise IllegalStateException(
                    f"The subscription {self.subscription!r} is to topic://{existing.topic} with the selector "
                    f"{own or '(none)'}; leave the selector out, or end the subscription with `jmsql unsubscribe`."
                )
            selector = own
        if self.shared:
            return session.create_shared_durable_consumer(
                self.destination, self.subscription, selector, if_changed=SubscriptionChange.REFUSE
            )
        return session.create_durable_consumer(self.destination, self.subscription, selector, no_local=no_local)


def _text(selector: str | None) -> str | None:
    parsed = Selector.parse(selector)
    return None if parsed is None else parsed.text
