"""A handler, and which messages it is called with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jmsql.store.destinations.subscriptions import ChangeRefusedException
from jmsql.values.destinations import Queue, Topic
from jmsql.values.policies import RedeliveryPolicy
from jmsql.worker.handlers.parameters import Parameter, is_coroutine_function

__all__ = ["DEFAULT_REDELIVERY", "Listener", "way_out"]

DEFAULT_REDELIVERY = RedeliveryPolicy(
    maximum_deliveries=20, delay=1.0, multiplier=2.0, maximum_delay=4 * 3600.0, jitter=0.1
)
"""What holds for messages of which neither the listener nor the destination says anything: about a day in all."""


@dataclass(frozen=True)
class Listener:
    """A handler, and which messages it is called with."""

    name: str
    handler: Callable[..., object]
    parameters: tuple[Parameter, ...]
    destination: Queue | Topic
    selector: str | None
    transacted: bool
    concurrency: int | None
    subscription: str | None
    durable: bool
    redelivery: RedeliveryPolicy | None
    visibility_timeout: float | None

    @property
    def is_async(self) -> bool:
        """Whether the handler is a coroutine function."""
        return is_coroutine_function(self.handler)

    @property
    def shares_transaction(self) -> bool:
        """Whether the handler can do something in the transaction in which its message is received."""
        return any(parameter.shares_transaction for parameter in self.parameters)

    def facts(self, concurrency: int) -> dict[str, object]:
        """Return what the log tells of it when a worker starts.

        Args:
            concurrency: How many messages it handles at a time, unless it says so itself.
        """
        return {
            "listener": self.name,
            "destination": str(self.destination),
            "selector": self.selector or None,
            "subscription": self.subscription,
            "durable": None if self.subscription is None else self.durable,
            "concurrency": self.concurrency or concurrency,
            "transacted": self.transacted,
        }

    def __str__(self) -> str:
        return f"{self.name} on {self.destination}"


def way_out(error: ChangeRefusedException, listener: Listener) -> str:
    """Return what a new release can do whose listener wants a durable subscription with another selector."""
    if error.is_active:
        return (
            "That may be a worker of another release: end it before this one starts (what is published in between is "
            "collected), or let this release have a subscription of another name."
        )
    keep = (
        "--changed-subscriptions keep has the new selector decide from now on, and delivers what waits, whatever it "
        "is; "
        if error.same_topic
        else ""
    )
    return (
        f"Nothing was changed. {keep}--changed-subscriptions drop deletes what waits; or give the subscription another "
        f"name, and end this one with `jmsql unsubscribe {listener.subscription}`."
    )
