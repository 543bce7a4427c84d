"""The routing of the flights: a queue shared out by selectors, and subscriptions to a topic."""

from __future__ import annotations

from typing import NamedTuple

import jmsql

FLIGHTS = jmsql.Queue("jmsql_demo.flights")

DELAY_DESK = "delay desk"
"""The name of the worker that handles delayed flights alone."""

DELAYED = "carrier = 'UA' AND departure_delay > 60"
"""The selector of the delay desk."""

ALL_OTHERS = "carrier <> 'UA' OR departure_delay <= 60 OR departure_delay IS NULL"
"""The selector of the other workers. A cancelled flight has no delay, and to compare that is neither true nor false."""

DEPARTURES = jmsql.Topic("jmsql_demo.departures")


class Subscription(NamedTuple):
    """A durable subscription to the departures.

    The properties of the messages are called like the columns of the table `flight`, so that the selector is also the
    condition in SQL for the flights that it chooses.
    """

    title: str
    selector: str | None
    workers: int = 1
    """How many share it."""
    comes_late: bool = False
    """True if its worker comes when all is published."""

    @property
    def name(self) -> str:
        """Its name, which tells it from those of others in the database."""
        return f"jmsql_demo.{self.title}"

    @property
    def client_id(self) -> str | None:
        """Whose it is, if it is not shared."""
        return None if self.workers > 1 else self.name

    def consume(self, session: jmsql.Session) -> jmsql.MessageConsumer:
        """Make the subscription, if it is not there, and a consumer of it."""
        if self.workers > 1:
            return session.create_shared_durable_consumer(DEPARTURES, self.name, self.selector)
        return session.create_durable_consumer(DEPARTURES, self.name, self.selector)


SUBSCRIPTIONS = (
    Subscription("departure board", None),
    Subscription("United delays", "carrier = 'UA' AND departure_delay > 60"),
    Subscription("west coast", "origin = 'JFK' AND destination IN ('LAX', 'SFO')", workers=2),
    Subscription("cancellations", "departure_delay IS NULL", comes_late=True),
)
