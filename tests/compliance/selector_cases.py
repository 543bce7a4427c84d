"""The cases of the compliance suite that a selector decides: its text, the message's properties, and what it selects.

Where the suite's description contradicts itself, the outcome is the one that JMS demands: ``selector-between-20``,
``selector-boolean-04`` and ``selector-float-28`` are such.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import pytest
from _pytest.mark import ParameterSet

Outcome = Literal["all", "none", "invalid"]


class SelectorCase(NamedTuple):
    """One case: every message is sent with the same properties, and all, none, or an exception is to be expected."""

    id: str
    selector: str
    """``{time}`` in it stands for the time before the messages are sent, see `text`."""
    outcome: Outcome
    requirements: tuple[str, ...]
    properties: tuple[tuple[str, str, float | str], ...]
    """JMS type, name and value of each property."""

    def text(self, time: int) -> str:
        """The selector; `time` is in milliseconds since the epoch."""
        return self.selector.replace("{time}", str(time))


def _case(
    case: str, selector: str, outcome: Outcome, requirements: str = "", *properties: tuple[str, str, float | str]
) -> SelectorCase:
    implied = "validation" if outcome == "invalid" else "expression"
    ids = tuple(f"selector.{name}" for name in (*requirements.split(), implied))
    return SelectorCase(case, selector, outcome, ids, properties)


SELECTOR_CASES = (
    _case("selector-and-01", "true and true", "all", "operator.and"),
    _case("selector-and-02", "true and false", "none", "operator.and"),
    _case("selector-and-03", "false and true", "none", "operator.and"),
    _case("selector-and-04", "false and false", "none", "operator.and"),
    _case("selector-and-05", "true AND true", "all", "operator.and reservedwords.case"),
    _case("selector-and-06", "and", "invalid"),
    _case("selector-and-07", "true and", "invalid"),
    _case("selector-and-08", "false and", "invalid"),
    _case("selector-and-09", "true and dummy", "none", "operator.and values.null"),
    _case("selector-and-10", "false and dummy", "none", "operator.and values.null"),
    _case("selector-and-11", "dummy and true", "none", "operator.and values.null"),
    _case("selector-and-12", "dummy and false", "none", "operator.and values.null"),
    _case("selector-and-13", "dummy and dummy", "none", "operator.and values.null"),
    _case("selector-between-01", "17 between 16 and 18", "all", "operator.between"),
    _case("selector-between-02", "17 between 18 and 19", "none", "operator.between"),
    _case("selector-between-03", "17 Between 17 And 17", "all", "operator.between reservedwords.case"),
    _case("selector-between-04", "17 between 4 * 4 and 10 + 8", "all", "operator.between"),
    _case("selector-between-05", "17 between 4 * 5 and 10 + 12", "none", "operator.between"),
    _case(
        "selector-between-06",
        "two between one and three",
        "all",
        "operator.between",
        ("int", "one", 1),
        ("int", "two", 2),
        ("int", "three", 3),
    ),
    _case("selector-between-07", "two between '1' and '3'", "invalid"),
    _case("selector-between-08", "one between false and true", "invalid"),
    _case("selector-between-09", "'b' between 'a' and 'c'", "invalid"),
    _case("selector-between-10", "between 1 and 3", "invalid"),
    _case("selector-between-11", "not between 1 and 3", "invalid"),
    _case("selector-between-12", "2 between 1, 3", "invalid"),
    _case("selector-between-13", "2 between 1 and", "invalid"),
    _case("selector-between-14", "2 between and 3", "invalid"),
    _case("selector-between-15", "JMSMessageID between 1 and 10", "invalid"),
    _case("selector-between-16", "17 not between 18 and 19", "all", "operator.between"),
    _case("selector-between-17", "17 not between 16 and 18", "none", "operator.between"),
    _case("selector-between-18", "17 not between 17 and 17", "none", "operator.between"),
    _case("selector-between-19", "17 Not Between 4 * 5 And 20 / 1", "all", "operator.between reservedwords.case"),
    _case(
        "selector-between-20",
        "two not between one and three",
        "none",
        "operator.between",
        ("int", "one", 1),
        ("int", "two", 2),
        ("int", "three", 3),
    ),
    _case("selector-between-21", "dummy between 1 and 10", "none", "operator.between values.null"),
    _case("selector-between-22", "1 between dummy and 10", "none", "operator.between values.null"),
    _case("selector-between-23", "1 between 0 and dummy", "none", "operator.between values.null"),
    _case("selector-boolean-01", "true = true", "all", "comparison.boolean"),
    _case("selector-boolean-02", "true = false", "none", "comparison.boolean"),
    _case("selector-boolean-03", "false", "none", "literal.boolean reservedwords.case"),
    _case("selector-boolean-04", "FALSE", "none", "literal.boolean reservedwords.case"),
    _case("selector-boolean-05", "false >= true", "invalid", "comparison.boolean"),
    _case("selector-boolean-06", "false > true", "invalid", "comparison.boolean"),
    _case("selector-boolean-07", "false <= true", "invalid", "comparison.boolean"),
    _case("selector-boolean-08", "false < true", "invalid", "comparison.boolean"),
    _case("selector-boolean-09", "false <> true", "all", "comparison.boolean"),
    _case("selector-boolean-10", "false <> false", "none", "comparison.boolean"),
    _case("selector-boolean-11", "true", "all", "literal.boolean reservedwords.case"),
    _case("selector-boolean-12", "TrUe", "all", "literal.boolean reservedwords.case"),
    _case("selector-float-01", "10 / zero = 10 / zero", "all", "", ("double", "zero", 0.0)),
    _case("selector-float-02", "doubleNaN = doubleNaN", "none", "", ("double", "doubleNaN", math.nan)),
    _case("selector-float-03", "doubleNaN <> doubleNaN", "all", "", ("double", "doubleNaN", math.nan)),
    _case("selector-float-04", "0.0 = 0.0", "all", "literal.approxnumeric"),
    _case("selector-float-05", "0.0 = 1.0", "none", "literal.approxnumeric"),
    _case("selector-float-06", "0.2 = 0.2", "all", "literal.approxnumeric"),
    _case("selector-float-07", "0.2 = 0.0", "none", "literal.approxnumeric"),
    _case("selector-float-08", "92d = 92", "all", "literal.approxnumeric"),
    _case("selector-float-09", "93f = 93", "all", "literal.approxnumeric"),
    _case("selector-float-10", "rate = 0.2", "all", "literal.approxnumeric", ("double", "rate", 0.2)),
    _case("selector-float-11", "floatNaN = floatNaN", "none", "", ("float", "floatNaN", math.nan)),
    _case("selector-float-12", "floatNaN <> floatNaN", "all", "", ("float", "floatNaN", math.nan)),
    _case("selector-float-13", "2.0 >= 1.0", "all", "literal.approxnumeric"),
    _case("selector-float-14", "1.0 >= 2.0", "none", "literal.approxnumeric"),
    _case("selector-float-15", "2.0 > 1.0", "all", "literal.approxnumeric"),
    _case("selector-float-16", "1.0 > 2.0", "none", "literal.approxnumeric"),
    _case("selector-float-17", "1.0", "invalid"),
    _case("selector-float-18", "-1.0", "invalid"),
    _case("selector-float-19", "2.0 < '3.0'", "invalid"),
    _case("selector-float-20", "1.0 <> false", "invalid"),
    _case("selector-float-21", "1a.0 = 1a.0", "invalid"),
    _case("selector-float-22", "1.0 <= 2.0", "all", "literal.approxnumeric"),
    _case("selector-float-23", "2.0 <= 1.0", "none", "literal.approxnumeric"),
    _case("selector-float-24", "1.0 < 2.0", "all", "literal.approxnumeric"),
    _case("selector-float-25", "2.0 < 1.0", "none", "literal.approxnumeric"),
    _case("selector-float-26", "1.0 <> 2.0", "all", "literal.approxnumeric"),
    _case("selector-float-27", "1.0 <> 1.0", "none", "literal.approxnumeric"),
    _case("selector-float-28", "1.0 <> 1.0", "none", "literal.approxnumeric"),
    _case("selector-float-29", "rate <> 0.2", "none", "literal.approxnumeric", ("double", "rate", 0.2)),
    _case("selector-float-30", "4.9E-324 = 4.9E-324", "all", "literal.approxnumeric"),
    _case("selector-float-30", "1.7976931348623157E308 = 1.7976931348623157E308", "all", "literal.approxnumeric"),
    _case("selector-float-31", "-1.0 = -1.0", "all", "literal.approxnumeric"),
    _case("selector-float-32", "-1.0 = 1.0", "none", "literal.approxnumeric"),
    _case("selector-float-33", "--1.0 = 1.0", "all", "literal.approxnumeric"),
    _case("selector-float-34", "dummy + 10.0 = 10.0", "none", "values.null"),
    _case("selector-float-35", "dummy - 10.0 = -10.0", "none", "values.null"),
    _case("selector-float-36", "10.0 + dummy = 10.0", "none", "values.null"),
    _case("selector-float-37", "10.0 - dummy = 0.0", "none", "values.null"),
    _case("selector-float-38", "dummy * 10.0 = 0.0", "none", "values.null"),
    _case("selector-float-39", "10.0 * dummy = 0.0", "none", "values.null"),
    _case("selector-float-40", "dummy / 10.0 = 0.0", "none", "values.null"),
    _case("selector-float-41", "10.0 / dummy = 0.0", "none", "values.null"),
    _case("selector-identifier-01", "$State = 'VIC'", "all", "identifier.name", ("string", "$State", "VIC")),
    _case("selector-identifier-02", "~ABC = 'foo'", "invalid", "identifier.name"),
    _case("selector-identifier-03", "Country.name = 'Australia'", "invalid", "identifier.name"),
    _case("selector-identifier-04", "_postcode_ = '3001'", "all", "identifier.name", ("string", "_postcode_", "3001")),
    _case(
        "selector-identifier-05", "country = 'Australia'", "none", "identifier.case", ("string", "Country", "Australia")
    ),
    _case("selector-delivery-mode-01", "JMSDeliveryMode = 1 or JMSDeliveryMode = 2", "invalid", "JMSDeliveryMode"),
    _case("selector-delivery-mode-02", "JMSDeliveryMode = 'non_persistent'", "invalid", "JMSDeliveryMode"),
    _case(
        "selector-delivery-mode-03",
        "JMSDeliveryMode = 'PERSISTENT' or JMSDeliveryMode = 'NON_PERSISTENT'",
        "all",
        "JMSDeliveryMode identifier.header",
    ),
    _case("selector-priority-01", "JMSPriority >= '0'", "invalid"),
    _case("selector-priority-02", "'0' <= JMSPriority", "invalid", "datetime"),
    _case("selector-priority-03", "JMSPriority <> 0", "all", "identifier.header"),
    _case("selector-priority-04", "jmspriority between 1 and 9", "none", "identifier.case"),
    _case("selector-timestamp-01", "JMSTimestamp >= '0'", "invalid", "datetime"),
    _case("selector-timestamp-02", "'0' <= JMSTimestamp", "invalid", "datetime"),
    _case("selector-timestamp-03", "JMSTimestamp = '2001/1/1 0:0'", "invalid", "datetime"),
    _case("selector-timestamp-04", "JMSTimestamp >= 0", "all", "datetime identifier.header"),
    _case("selector-timestamp-05", "JMSTimestamp >= {time}", "all", "datetime identifier.header"),
    _case("selector-timestamp-06", "JMSTimestamp < {time}", "none", "datetime identifier.header"),
    _case("selector-string-01", "'abc' = 'ABC'", "none", "literal.string comparison.string"),
    _case("selector-string-02", "'abc' <> 'ABC'", "all", "literal.string comparison.string"),
    _case(
        "selector-string-03",
        "Country = 'france'",
        "none",
        "literal.string comparison.string",
        ("string", "Country", "France"),
    ),
    _case("selector-string-04", "'it''s' = 'it''s'", "all", "literal.string comparison.string"),
    _case("selector-string-05", "'it''s' = 'its'", "none", "literal.string comparison.string"),
    _case("selector-string-06", "'abc' = 'abc'", "all", "literal.string comparison.string"),
    _case(
        "selector-string-07",
        "Country = 'France'",
        "all",
        "literal.string comparison.string",
        ("string", "Country", "France"),
    ),
    _case("selector-string-08", "'abc' >= 'abc'", "invalid", "comparison.string"),
    _case("selector-string-09", "dummy >= 'abc'", "invalid", "comparison.string"),
    _case("selector-string-10", "'abc' >= dummy", "invalid", "comparison.string"),
    _case("selector-string-11", "'abc' > 'abc'", "invalid", "comparison.string"),
    _case("selector-string-12", "dummy > 'abc'", "invalid", "comparison.string"),
    _case("selector-string-13", "'abc' > dummy", "invalid", "comparison.string"),
    _case("selector-string-14", "'abc'", "invalid"),
    _case("selector-string-15", "'abc' = 'abc", "invalid"),
    _case("selector-string-16", "'abc' = abc'", "invalid"),
    _case("selector-string-17", "'abc = 'abc'", "invalid"),
    _case("selector-string-18", "'abc'''' = 'abc'", "invalid"),
    _case("selector-string-19", '"abc" = "abc"', "invalid"),
    _case("selector-string-20", "'abc' <= 'abc'", "invalid", "comparison.string"),
    _case("selector-string-21", "dummy <= 'abc'", "invalid", "comparison.string"),
    _case("selector-string-22", "'abc' <= dummy", "invalid", "comparison.string"),
    _case("selector-string-23", "'abc' < 'abc'", "invalid", "comparison.string"),
    _case("selector-string-24", "dummy < 'abc'", "invalid", "comparison.string"),
    _case("selector-string-25", "'abc' < dummy", "invalid", "comparison.string"),
)


def selector_parameters(topic: str) -> list[ParameterSet]:
    """The cases of a class of the suite as marked parameters, for example of the topic ``selector-between``."""
    return [
        pytest.param(
            case,
            marks=(pytest.mark.case(case.id), pytest.mark.requirement(*case.requirements)),
            id=f"{case.id}: {case.selector}",
        )
        for case in SELECTOR_CASES
        if case.id.rpartition("-")[0] == topic
    ]
