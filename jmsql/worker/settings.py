"""The settings of a worker's processes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from jmsql.store.destinations.subscriptions import SubscriptionChange
from jmsql.worker.logs import LogFormat, LogLevel
from jmsql.worker.timings import WorkerTimings

if TYPE_CHECKING:
    from jmsql.client._async.connection.factory import ConnectionFactory as AsyncConnectionFactory
    from jmsql.client._sync.connection.factory import ConnectionFactory


# Settings travel to a process as an argument, in JSON, so each field has to survive that:
# test_settings_pass_through_text. The database's URL goes by the environment, since other users of the machine can read
# arguments.


@dataclass(frozen=True, kw_only=True)
class HandlerSettings:
    """How the handlers of a process are called.

    Args:
        concurrency: How many messages of each listener are handled at a time, unless it says so itself.
        drain_timeout: For how many seconds handlers may run on at the end.
        warn_transaction_after: Seconds after which the log names a handler that holds a transaction open.
        on_subscription_change: The action on a durable subscription that a listener has with another selector.
        declares: True if the listeners' limits and the schedules replace those that other workers have declared.
        timings: The intervals and time-outs.
    """

    concurrency: int = 1
    drain_timeout: float = 30.0
    warn_transaction_after: float = 10.0
    on_subscription_change: SubscriptionChange = SubscriptionChange.REFUSE
    declares: bool = True
    timings: WorkerTimings = WorkerTimings()


@dataclass(frozen=True)
class Settings(HandlerSettings):
    """How a process of a worker is to work.

    Args:
        application: The application: ``package.module:name``.
        database_named: Whether JMSQL_URL goes before the factory of the application.
        schema: The schema that goes before the factory's; None: none does.
        log_format: How the log is written; None: as the application has it, or as text.
        log_level: The lowest level of its records; None: as the application has it, or info.
        metrics: True if the processes count their connections' sent and received messages.
        max_messages: After how many messages a process is replaced; None: by none.
        max_memory: With how many MiB of memory a process is replaced; None: with any.
        only: Patterns of the destinations whose listeners it has; none: all have a listener.
        without: Patterns of the destinations whose listeners it leaves out.
    """

    application: str
    database_named: bool = False
    schema: str | None = None
    log_format: LogFormat | None = None
    log_level: LogLevel | None = None
    metrics: bool = False
    max_messages: int | None = None
    max_memory: int | None = None
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Write the settings as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """Read the text that `to_json` wrote."""
        document = json.loads(text)
        given = {
            "log_format": document["log_format"] and LogFormat(document["log_format"]),
            "log_level": document["log_level"] and LogLevel(document["log_level"]),
            "on_subscription_change": SubscriptionChange(document["on_subscription_change"]),
            "timings": WorkerTimings(**document["timings"]),
            "only": tuple(document["only"]),
            "without": tuple(document["without"]),
        }
        return cls(**document | given)

    def factory(
        self, of_application: ConnectionFactory | AsyncConnectionFactory | None
    ) -> ConnectionFactory | AsyncConnectionFactory:
        """Return the connection factory."""
        from jmsql.client._sync.connection.factory import ConnectionFactory

        factory: ConnectionFactory | AsyncConnectionFactory = of_application or ConnectionFactory()
        if self.database_named:
            factory = replace(factory, url=None, control_url=None)
        return factory if self.schema is None else replace(factory, schema=self.schema)
