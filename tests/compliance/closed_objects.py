"""Every use of a session and of what it makes, each of which a closed one refuses."""

from __future__ import annotations

from collections.abc import Callable

from jmsql import Message, MessageConsumer, MessageProducer, Queue, QueueBrowser, Session

QUEUE = Queue("closed")

SESSION_CALLS: list[Callable[[Session], object]] = [
    lambda session: session.transacted,
    lambda session: session.acknowledge_mode,
    lambda session: session.database,
    lambda session: session.commit(),
    lambda session: session.rollback(),
    lambda session: session.recover(),
    lambda session: session.create_queue("queue"),
    lambda session: session.create_topic("topic"),
    lambda session: session.create_message(),
    lambda session: session.create_text_message(),
    lambda session: session.create_text_message("text"),
    lambda session: session.create_bytes_message(),
    lambda session: session.create_map_message(),
    lambda session: session.create_stream_message(),
    lambda session: session.create_object_message(),
    lambda session: session.create_producer(),
    lambda session: session.create_producer(QUEUE),
    lambda session: session.create_consumer(QUEUE),
    lambda session: session.create_consumer(QUEUE, "a = 1"),
    lambda session: session.create_browser(QUEUE),
]

PRODUCER_CALLS: list[Callable[[MessageProducer, Message], object]] = [
    lambda producer, message: producer.send(message),
    lambda producer, message: producer.send(message, QUEUE, priority=1),
    lambda producer, message: producer.destination,
    lambda producer, message: producer.delivery_mode,
    lambda producer, message: setattr(producer, "delivery_mode", 1),
    lambda producer, message: producer.priority,
    lambda producer, message: setattr(producer, "priority", 1),
    lambda producer, message: producer.time_to_live,
    lambda producer, message: setattr(producer, "time_to_live", 1),
    lambda producer, message: producer.disable_message_id,
    lambda producer, message: setattr(producer, "disable_message_id", True),
    lambda producer, message: producer.disable_message_timestamp,
    lambda producer, message: setattr(producer, "disable_message_timestamp", True),
]

CONSUMER_CALLS: list[Callable[[MessageConsumer], object]] = [
    lambda consumer: consumer.destination,
    lambda consumer: consumer.message_selector,
    lambda consumer: consumer.message_listener,
    lambda consumer: setattr(consumer, "message_listener", print),
    lambda consumer: setattr(consumer, "message_listener", None),
    lambda consumer: consumer.receive(timeout=0),
    lambda consumer: consumer.receive(),
    lambda consumer: consumer.receive_no_wait(),
    lambda consumer: next(iter(consumer)),
]

BROWSER_CALLS: list[Callable[[QueueBrowser], object]] = [
    lambda browser: browser.queue,
    lambda browser: browser.message_selector,
    lambda browser: next(browser.enumeration),
    lambda browser: next(iter(browser)),
]
