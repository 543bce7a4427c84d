"""ObjectMessage: JMS 1.1 chapter 11.2.21."""

from __future__ import annotations

import pytest

from jmsql.messages import ObjectMessage


@pytest.mark.requirement("message.object.method.setObject")
@pytest.mark.case("object-message-01")
def test_object_may_be_null() -> None:
    message = ObjectMessage([1])
    message.object = None
    assert message.object is None
    assert ObjectMessage(None).get_object() is None
