"""Publishing the message of a schedule on its topic, to each subscription that wants it."""

from __future__ import annotations

from datetime import datetime

from jmsql.store.rows.message_rows import OutgoingMessage
from jmsql.store.sending.notification import notify_sent
from jmsql.store.sending.send import Publisher, publish
from jmsql.store.statement import SqlFile, Steps, record
from jmsql.values.destinations import Topic, require_topic

_outgoing = SqlFile("schedules").statement("outgoing", "publishing", record(lambda row: OutgoingMessage(*row)))


def publish_scheduled(name: str, tick: datetime, left_out: int) -> Steps[None]:
    """Publish a message of a schedule, in the transaction that has noted it as sent.

    Args:
        name: The schedule.
        tick: The time of the tick.
        left_out: The number of ticks before it that were missed.
    """
    message = yield from _outgoing.bind(name=name, tick=tick, left_out=left_out)
    topic = require_topic(message.destination)
    assert isinstance(topic, Topic)
    yield from publish(topic, [message._replace(destination=topic.name)], Publisher())
    yield from notify_sent([], [topic.name], delayed=False)
