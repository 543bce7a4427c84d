"""The queue behind what the options name: a queue's own, or a subscription's."""

from __future__ import annotations

from jmsql.destinations import Destination
from jmsql.exceptions import InvalidDestinationException
from jmsql.postgresql_text import optional_to_postgresql, to_postgresql
from jmsql.spark.database import check_database
from jmsql.spark.options import Options
from jmsql.spark.reading.browse_statements import browse_statements
from jmsql.store import lookup
from jmsql.store.driver import Driver
from jmsql.store.runner import Runner

__all__ = ["find_queue", "source_of"]


def source_of(options: Options) -> Destination:
    """Return the queue or topic that is read.

    Raises:
        JMSException: The options name none.
    """
    options.require_source()
    assert options.destination is not None
    return options.destination


def find_queue(driver: Driver, options: Options) -> int:
    """Return the id of the queue to read from, which the role may browse.

    Raises:
        JMSSecurityException: It may not.
        InvalidDestinationException: The queue or the subscription does not exist.
        JMSException: The schema is missing or of another version.
    """
    check_database(driver, options.schema)
    runner = Runner(driver, options.schema)
    queue_id = (
        _find_subscription(driver, options)
        if options.queue is None
        else runner.run(lookup.find_queue(options.queue.name))
    )
    if queue_id is None:
        assert options.queue is not None
        raise InvalidDestinationException(f"Option 'queue': there is no queue {options.queue.name!r}.")
    runner.run(lookup.require_access(queue_id, "browse"))
    return queue_id


def _find_subscription(driver: Driver, options: Options) -> int:
    assert options.topic is not None
    assert options.subscription is not None
    rows = driver.execute(
        browse_statements(options.schema).find_subscription,
        {
            "topic": options.topic.name,
            "subscription": to_postgresql(options.subscription),
            "client_id": optional_to_postgresql(options.client_id),
        },
    ).rows
    if not rows:
        client = "" if options.client_id is None else f" of the client {options.client_id!r}"
        raise InvalidDestinationException(
            f"Option 'subscription': the topic {options.topic.name!r} has no subscription {options.subscription!r}"
            f"{client}."
        )
    return int(rows[0][0])
