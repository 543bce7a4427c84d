"""JMSDeliveryMode in selectors: JMS 1.1 chapter 3.8.1.3."""

from __future__ import annotations

import pytest

from jmsql import DeliveryMode
from jmsql.testing import receive_all
from tests.compliance.selecting import Selecting
from tests.compliance.selector_cases import SelectorCase, selector_parameters


@pytest.mark.parametrize("case", selector_parameters("selector-delivery-mode"))
def test_suite_s_case(selecting: Selecting, case: SelectorCase) -> None:
    selecting.check(case)


@pytest.mark.requirement("selector.JMSDeliveryMode", "selector.identifier.header")
@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("JMSDeliveryMode = 'PERSISTENT'", [DeliveryMode.PERSISTENT]),
        ("JMSDeliveryMode <> 'PERSISTENT'", [DeliveryMode.NON_PERSISTENT]),
        ("JMSDeliveryMode in ('NON_PERSISTENT')", [DeliveryMode.NON_PERSISTENT]),
        ("JMSDeliveryMode like '%PERSISTENT'", [DeliveryMode.PERSISTENT, DeliveryMode.NON_PERSISTENT]),
        ("JMSDeliveryMode is null", []),
    ],
)
def test_mode_is_that_of_the_send(selecting: Selecting, selector: str, chosen: list[DeliveryMode]) -> None:
    session, queue = selecting.session, selecting.send([])
    with session.create_producer(queue) as producer:
        for mode in (DeliveryMode.PERSISTENT, DeliveryMode.NON_PERSISTENT):
            producer.send(session.create_message(), delivery_mode=mode)
    with session.create_consumer(queue, selector) as consumer:
        assert [message.jms_delivery_mode for message in receive_all(consumer)] == chosen
