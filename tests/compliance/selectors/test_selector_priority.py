"""JMSPriority in selectors: JMS 1.1 chapter 3.8.1.1."""

from __future__ import annotations

import pytest

from jmsql.testing import receive_all
from tests.compliance.selecting import Selecting
from tests.compliance.selector_cases import SelectorCase, selector_parameters


@pytest.mark.parametrize("case", selector_parameters("selector-priority"))
def test_suite_s_case(selecting: Selecting, case: SelectorCase) -> None:
    selecting.check(case)


@pytest.mark.requirement("selector.identifier.header", "selector.expression.arithmetic")
@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("JMSPriority > 7", [9, 8]),
        ("JMSPriority = 0", [0]),
        ("JMSPriority not between 1 and 8", [9, 0]),
        ("JMSPriority * 2 < 5.0", [2, 1, 0]),
        ("JMSPriority is null", []),
    ],
)
def test_priority_is_that_of_the_send(selecting: Selecting, selector: str, chosen: list[int]) -> None:
    session, queue = selecting.session, selecting.send([])
    with session.create_producer(queue) as producer:
        for priority in range(10):
            producer.send(session.create_message(), priority=priority)
    with session.create_consumer(queue, selector) as consumer:
        assert [message.jms_priority for message in receive_all(consumer)] == chosen
