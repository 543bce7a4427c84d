"""Selectors as text: white space and errors. JMS 1.1 chapter 3.8.1.1."""

from __future__ import annotations

import pytest

from jmsql import AcknowledgeMode, Connection, InvalidSelectorException, Queue, Session
from jmsql.testing import receive_all
from tests.compliance.selecting import Selecting


@pytest.mark.requirement("selector.whitespace")
@pytest.mark.parametrize("space", [" ", "\t", "\f", "\n", "\r", "\r\n", " \t\f\r\n "], ids=repr)
def test_white_space_separates(selecting: Selecting, space: str) -> None:
    selector = space.join(["", "n", "between", "1", "and", "2", "and", "s", "=", "'a b'", ""])
    assert selecting.truth(selector, n=1, s="a b") is True
    assert selecting.truth(selector, n=1, s="ab") is False


@pytest.mark.requirement("selector.whitespace")
def test_no_white_space_is_needed_between_signs(selecting: Selecting) -> None:
    assert selecting.truth("(n*2)+1=5 and(s='a')or s in('b')", n=2, s="a") is True


@pytest.mark.requirement("selector.whitespace", "selector.validation")
@pytest.mark.parametrize("space", ["\v", "\u00a0", "\u2028", "\u3000"], ids=repr)
def test_other_characters_do_not_separate(selecting: Selecting, space: str) -> None:
    selecting.check_invalid(f"n{space}= 1")


@pytest.mark.requirement("selector.validation")
@pytest.mark.parametrize(
    ("selector", "position"),
    [("n = ", 4), ("n == 1", 3), ("color = 'red", 8), ("n = 1 and", 9), ("(n = 1", 6), ("n = 1)", 5), ("n ! 1", 2)],
)
def test_error_is_raised_at_once_and_shows_the_place(session: Session, selector: str, position: int) -> None:
    for create in (session.create_consumer, session.create_browser):
        with pytest.raises(InvalidSelectorException) as raised:
            create(Queue("compliance"), selector)
        line, caret = str(raised.value).splitlines()[1:3]
        assert line.strip() == selector.strip()
        assert caret.index("^") - line.index(selector[0]) == position


@pytest.mark.requirement("selector.expression")
@pytest.mark.parametrize("mode", list(AcknowledgeMode))
def test_every_kind_of_session_receives_selected_messages_alone(
    connection: Connection, queue: Queue, mode: AcknowledgeMode
) -> None:
    session = connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode)
    producer = session.create_producer(queue)
    for weight in (1, 2, 3, None, "2"):
        message = session.create_message()
        message.set_object_property("weight", weight)
        producer.send(message)
    if session.transacted:
        session.commit()
    with session.create_consumer(queue, "weight >= 2") as consumer:
        assert [message.get_int_property("weight") for message in receive_all(consumer)] == [2, 3]
    with session.create_consumer(queue, "not weight >= 2") as consumer:
        assert [message.get_object_property("weight") for message in receive_all(consumer)] == [1, "2"]
    with session.create_consumer(queue, "weight is null") as consumer:
        assert len(receive_all(consumer)) == 1


@pytest.mark.requirement("selector.expression", "selector.validation")
@pytest.mark.parametrize("selector", ["1", "'a'", "n + 1", "n = 1 n = 2", "n = 1, n = 2", "n = 1 = 2", "true;", ";"])
def test_selector_is_one_condition(selecting: Selecting, selector: str) -> None:
    selecting.check_invalid(selector)
