"""Text headers in selectors, and those that are refused: JMS 1.1 chapter 3.8.1.1."""

from __future__ import annotations

import pytest

from jmsql import Message
from jmsql.testing import receive_all
from tests.compliance.selecting import Selecting


def message_with(header: str, value: str | None) -> Message:
    message = Message()
    setattr(message, header, value)
    return message


@pytest.mark.requirement("selector.identifier.header")
@pytest.mark.parametrize(("name", "header"), [("JMSCorrelationID", "jms_correlation_id"), ("JMSType", "jms_type")])
def test_text_headers_are_compared_as_strings_and_null_as_null(selecting: Selecting, name: str, header: str) -> None:
    messages = [message_with(header, value) for value in ("a", "b", "", None)]
    a, b, empty, none = messages
    assert selecting.chosen(f"{name} = 'a'", messages) == [a]
    assert selecting.chosen(f"{name} <> 'a'", messages) == [b, empty]
    assert selecting.chosen(f"{name} in ('', 'b') and {name} like '%'", messages) == [b, empty]
    assert selecting.chosen(f"{name} is null", messages) == [none]


@pytest.mark.requirement("selector.identifier.header")
def test_message_is_chosen_by_its_identifier(selecting: Selecting) -> None:
    session = selecting.session
    messages = [Message() for _ in range(3)]
    queue = selecting.send(messages)
    wanted = messages[1].jms_message_id
    with session.create_consumer(queue, f"JMSMessageID = '{wanted}'") as consumer:
        assert [message.jms_message_id for message in receive_all(consumer)] == [wanted]
    with session.create_consumer(queue, f"JMSMessageID like 'ID:%' and JMSMessageID <> '{wanted}'") as consumer:
        assert len(receive_all(consumer)) == 2


@pytest.mark.requirement("selector.identifier.header")
def test_identifier_that_was_disabled_is_null(selecting: Selecting) -> None:
    session, queue = selecting.session, selecting.send([Message()])
    with session.create_producer(queue) as producer:
        producer.disable_message_id = True
        producer.send(session.create_text_message("without"))
    with session.create_consumer(queue, "JMSMessageID is null") as consumer:
        assert [message.get_body(str) for message in receive_all(consumer)] == ["without"]


@pytest.mark.requirement("selector.identifier.header", "selector.validation")
@pytest.mark.parametrize(
    "name", ["JMSDestination", "JMSReplyTo", "JMSExpiration", "JMSRedelivered", "JMSDeliveryTime", "JMSother"]
)
def test_other_headers_are_refused(selecting: Selecting, name: str) -> None:
    selecting.check_invalid(f"{name} is not null")
