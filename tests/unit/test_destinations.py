"""Destinations given as text."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jmsql import Destination, InvalidDestinationException, Queue, Topic
from jmsql.values.destinations import require_destination, require_queue, require_topic


@pytest.mark.parametrize(
    ("require", "text", "expected"),
    [
        (require_destination, "orders", Queue("orders")),
        (require_destination, "queue://orders", Queue("orders")),
        (require_destination, "topic://orders", Topic("orders")),
        (require_destination, "queue://amqp://orders", Queue("amqp://orders")),
        (require_queue, "orders", Queue("orders")),
        (require_queue, "queue://orders", Queue("orders")),
        (require_topic, "orders", Topic("orders")),
        (require_topic, "topic://orders", Topic("orders")),
    ],
)
def test_a_text_names_a_destination(require: Callable[[object], Destination], text: str, expected: Destination) -> None:
    assert require(text) == expected
    assert require(expected) is expected


@pytest.mark.parametrize(
    ("require", "text", "words"),
    [
        (require_destination, "", "at least one character"),
        (require_destination, "queue://", "at least one character"),
        (require_destination, "amqp://orders", "write queue://NAME or topic://NAME"),
        (require_destination, "Queue://orders", "write queue://NAME or topic://NAME"),
        (require_queue, "topic://orders", r"Expected a queue .* got 'topic://orders'"),
        (require_topic, "queue://orders", r"Expected a topic .* got 'queue://orders'"),
    ],
)
def test_other_texts_are_refused_with_a_way_out(
    require: Callable[[object], Destination], text: str, words: str
) -> None:
    with pytest.raises(InvalidDestinationException, match=words):
        require(text)
