"""Whether the first use of a queue or topic makes it."""

from __future__ import annotations

from jmsql.destinations import Destination, Topic
from jmsql.exceptions import InvalidDestinationException
from jmsql.store.driver import Driver
from jmsql.store.errors import jms_errors
from jmsql.store.identifier import quote_identifier

__all__ = ["AutomaticCreation"]


class AutomaticCreation:
    """The setting of a schema.

    Args:
        driver: Runs the statements.
        schema: The name of the schema.
    """

    def __init__(self, driver: Driver, schema: str) -> None:
        self._driver = driver
        self._table = f"{quote_identifier(schema)}.configuration"

    @property
    def enabled(self) -> bool:
        """Whether the first use of a queue or topic makes it."""
        with jms_errors("looking at the configuration"):
            return bool(self._driver.execute(f"select automatic_creation from {self._table}").rows[0][0])

    @enabled.setter
    def enabled(self, enabled: bool) -> None:
        with jms_errors("changing the configuration"):
            self._driver.execute(f"update {self._table} set automatic_creation = %(enabled)s", {"enabled": enabled})

    def refusal(self, destination: Destination, *, by_client: bool) -> InvalidDestinationException:
        """Return what to raise for a destination that is not there and was not made.

        Args:
            destination: The destination.
            by_client: Whether the client does not want it made.
        """
        kind = "topic" if isinstance(destination, Topic) else "queue"
        if not by_client and self.enabled:
            return InvalidDestinationException(
                f"The {kind} {destination.name!r} was deleted as fast as it was created."
            )
        name = destination.uri if kind == "topic" else destination.name
        return InvalidDestinationException(
            f"There is no {kind} {destination.name!r}, and its use does not make it: automatic creation is off. "
            f"`jmsql destination create {name}` makes it."
        )
