"""The destinations of a write: looked up before it begins, and made where the options allow it."""

from __future__ import annotations

from jmsql import Destination, Topic
from jmsql.extension.scanning import automatic_creation, find_queue, find_topic, queue_id, topic_id
from jmsql.extension.statements import Steps
from jmsql.logs import contained_logger

logger = contained_logger("jmsql")


def is_there(destination: Destination) -> Steps[bool]:
    """Tell whether a queue or topic exists."""
    find = find_topic if isinstance(destination, Topic) else find_queue
    return (yield from find(destination.name)) is not None


def create(destination: Destination, *, wanted: bool) -> Steps[None]:
    """Make a queue or topic that does not exist, if the write and the schema's configuration want that.

    Raises:
        InvalidDestinationException: One of them does not.
    """
    yield from (topic_id if isinstance(destination, Topic) else queue_id)(destination.name, create=wanted)


def check_destination(destination: Destination, *, wanted: bool) -> Steps[None]:
    """Make sure that a write can send to a destination, and warn of one that it will make: the name may be misspelt.

    Raises:
        InvalidDestinationException: It does not exist, and the write does not make it.
    """
    if (yield from is_there(destination)):
        return
    if not (wanted and (yield from automatic_creation)):
        yield from create(destination, wanted=False)
    logger.warning("%s does not exist; the write makes it (option 'automaticCreation').", destination.uri)
