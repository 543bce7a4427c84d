"""JMSTimestamp in selectors: JMS 1.1 chapter 3.8.1.3."""

from __future__ import annotations

import pytest

from jmsql import Message
from jmsql.testing import receive_all
from tests.compliance.selecting import Selecting
from tests.compliance.selector_cases import SelectorCase, selector_parameters


@pytest.mark.parametrize("case", selector_parameters("selector-timestamp"))
def test_suite_s_case(selecting: Selecting, case: SelectorCase) -> None:
    selecting.check(case)


@pytest.mark.requirement("selector.datetime")
@pytest.mark.parametrize(
    ("selector", "count"),
    [
        ("JMSTimestamp < {}", 0),
        ("JMSTimestamp >= {} + 1", 0),
        ("JMSTimestamp / 1000 > {} / 1000", 0),
        ("JMSTimestamp = {}", 1),
        ("JMSTimestamp between {} - 1 and {} + 1", 1),
    ],
)
def test_time_is_compared_in_milliseconds(selecting: Selecting, selector: str, count: int) -> None:
    message = Message()
    queue = selecting.send([message])
    text = selector.replace("{}", str(message.jms_timestamp))
    with selecting.session.create_consumer(queue, text) as consumer:
        assert len(receive_all(consumer)) == count
