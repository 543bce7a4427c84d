"""Consumers without a selector: JMS 1.1 chapter 3.8.1.1."""

from __future__ import annotations

import pytest

from jmsql import Message, Queue, TextMessage
from tests.compliance.selecting import Selecting


def assorted_messages() -> list[Message]:
    blue, numbered = TextMessage("blue"), Message()
    blue.set_string_property("color", "blue")
    numbered.set_int_property("number", 1)
    return [Message(), blue, numbered]


@pytest.mark.requirement("selector.empty")
@pytest.mark.case("selector-empty-01")
def test_empty_selector_chooses_everything(selecting: Selecting) -> None:
    messages = assorted_messages()
    assert selecting.chosen("", messages) == messages


@pytest.mark.requirement("selector.null")
@pytest.mark.case("selector-empty-02")
def test_no_selector_chooses_everything(selecting: Selecting) -> None:
    messages = assorted_messages()
    assert selecting.chosen(None, messages) == messages


@pytest.mark.requirement("selector.empty", "selector.null")
@pytest.mark.parametrize("selector", [None, ""])
def test_consumer_and_browser_tell_that_they_have_no_selector(selecting: Selecting, selector: str | None) -> None:
    queue = Queue("selecting")
    with selecting.session.create_consumer(queue, selector) as consumer:
        assert consumer.message_selector is None
    assert selecting.session.create_browser(queue, selector).message_selector is None
