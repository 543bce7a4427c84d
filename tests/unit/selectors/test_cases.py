"""The compliance suite's selectors, on the evaluator."""

from __future__ import annotations

import pytest

from jmsql.exceptions import InvalidSelectorException
from jmsql.messages import Message
from jmsql.selectors import Selector
from tests.compliance.selector_cases import SELECTOR_CASES, SelectorCase

SENT_AT = 1_700_000_000_000


@pytest.mark.parametrize("case", SELECTOR_CASES, ids=lambda case: f"{case.id}: {case.selector}")
def test_it_selects_as_the_suite_says(case: SelectorCase) -> None:
    message = Message()
    message.jms_timestamp = SENT_AT
    for type_name, name, value in case.properties:
        getattr(message, f"set_{type_name}_property")(name, value)
    if case.outcome == "invalid":
        with pytest.raises(InvalidSelectorException):
            Selector.parse(case.text(SENT_AT))
    else:
        selector = Selector.parse(case.text(SENT_AT))
        assert selector is not None
        assert selector.matches(message) is (case.outcome == "all")
