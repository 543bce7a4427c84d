"""What selectors mean: three-valued logic, types, and Java's numbers."""

from __future__ import annotations

import math

import pytest

from jmsql.messages import DeliveryMode, EncodedMessage, Message
from jmsql.selectors import Selector
from jmsql.selectors.expressions import Value
from tests.received_messages import decoded
from tests.unit.selectors.reading import evaluate

LOGIC = {"t": True, "f": False}


def logic(text: str) -> bool | None:
    """Evaluate with the conditions t, f and u, which are true, false and unknown."""
    return evaluate(text, **LOGIC)


@pytest.mark.requirement("selector.operator.and")
@pytest.mark.parametrize(("left", "row"), [("t", "tfu"), ("f", "fff"), ("u", "ufu")])
def test_and(left: str, row: str) -> None:
    assert [logic(f"{left} and {right}") for right in "tfu"] == [LOGIC.get(outcome) for outcome in row]


@pytest.mark.requirement("selector.operator.or")
@pytest.mark.parametrize(("left", "row"), [("t", "ttt"), ("f", "tfu"), ("u", "tuu")])
def test_or(left: str, row: str) -> None:
    assert [logic(f"{left} or {right}") for right in "tfu"] == [LOGIC.get(outcome) for outcome in row]


@pytest.mark.requirement("selector.operator.not")
def test_not() -> None:
    assert [logic(f"not {operand}") for operand in "tfu"] == [False, True, None]


@pytest.mark.requirement("selector.values.null", "selector.operator.in", "selector.operator.like")
@pytest.mark.parametrize(
    "text",
    [
        *("u = 1", "u <> 1", "1 < u", "u = 'a'", "u = true", "u = u", "u + 1 = 1", "-u = 1", "+u = 1", "1 / u = 1"),
        *("u in ('a')", "u not in ('a')", "u like '%'", "u not like '%'", "u between 1 and 2", "u not between 1 and 2"),
        *("1 between u and 2", "1 not between u and 2", "not u"),
    ],
)
def test_null_makes_unknown(text: str) -> None:
    assert evaluate(text) is None


@pytest.mark.requirement("selector.operator.is")
def test_is_null_is_never_unknown() -> None:
    assert evaluate("x is null") is True
    assert evaluate("x is not null") is False
    assert evaluate("x is null", x="") is False
    assert evaluate("x is not null", x=False) is True


@pytest.mark.requirement("selector.operator.comparison.types", "selector.property.conversion")
@pytest.mark.parametrize("value", ["2", True, "x"])
@pytest.mark.parametrize("operator", ["=", "<>", "<", "<=", ">", ">="])
def test_unlike_types_compare_false(value: Value, operator: str) -> None:
    assert evaluate(f"x {operator} 2", x=value) is False
    assert evaluate(f"not (x {operator} 2)", x=value) is True


@pytest.mark.requirement("selector.operator.comparison.types")
def test_exact_and_approximate_numbers_are_like() -> None:
    assert evaluate("x = 2 and x = 2.0 and y = 2", x=2, y=2.0) is True


@pytest.mark.requirement("selector.comparison.string", "selector.comparison.boolean")
@pytest.mark.parametrize("value", ["a", True])
def test_strings_and_booleans_are_equal_or_not_but_never_ordered(value: Value) -> None:
    assert evaluate("x = y", x=value, y=value) is True
    assert evaluate("x <> y", x=value, y=value) is False
    for operator in ("<", "<=", ">", ">="):
        assert evaluate(f"x {operator} y", x=value, y=value) is False


def test_a_property_alone_is_compared_with_true() -> None:
    assert evaluate("x", x=True) is True
    assert evaluate("x", x=False) is False
    assert evaluate("x", x="true") is False
    assert evaluate("not x", x="true") is True


@pytest.mark.requirement("selector.operator.between")
def test_not_between_is_below_or_above_and_never_selects_other_values_than_numbers() -> None:
    assert evaluate("x between 1 and 2", x="a") is False
    assert evaluate("x not between 1 and 2", x="a") is False
    assert evaluate("x not between 1 and 2", x=math.nan) is False
    assert evaluate("x not between 1 and y", x=0) is True


@pytest.mark.requirement("selector.operator.in")
def test_in() -> None:
    assert evaluate("x in ('UK', 'US', 'France')", x="UK") is True
    assert evaluate("x in ('UK', 'US', 'France')", x="Peru") is False
    assert evaluate("x not in ('UK', 'US', 'France')", x="Peru") is True


@pytest.mark.requirement("selector.operator.in", "selector.operator.like")
@pytest.mark.parametrize("test", ["in ('1')", "not in ('a')", "like '%'", "not like 'a'"])
@pytest.mark.parametrize("value", [1, 0.5, True])
def test_tests_of_strings_are_false_for_other_values(test: str, value: Value) -> None:
    assert evaluate(f"x {test}", x=value) is False
    assert evaluate(f"not (x {test})", x=value) is True


def test_like_takes_time_in_proportion_to_the_two_lengths() -> None:
    """Trying all ways to spread the text over the runs would take for ever."""
    assert evaluate(f"x like '{'%a' * 100}%b'", x="a" * 2000) is False


@pytest.mark.requirement("selector.operator.arithmetic.promotion", "selector.expression.arithmetic")
@pytest.mark.parametrize(
    "text",
    [
        *(
            "7 / 2 = 3",
            "-7 / 2 = -3",
            "7 / -2 = -3",
            "7 / 2.0 = 3.5",
            "7.0 / 2 = 3.5",
            "1 / 3 * 3 = 0",
            "1 / 3.0 * 3 = 1",
        ),
        *("9223372036854775807 + 1 = -9223372036854775808", "-9223372036854775808 - 1 = 9223372036854775807"),
        *("9223372036854775807 * 2 = -2", "- -9223372036854775808 = -9223372036854775808"),
        *("-9223372036854775808 / -1 = -9223372036854775808", "4294967296 * 4294967296 = 0"),
        *("9223372036854775807 + 1.0 = 9223372036854775808.0", "9007199254740993 = 9007199254740992.0"),
        *("9007199254740993 <> 9007199254740992", "9223372036854775807 = 9223372036854775808.0"),
        *("1e308 * 10 = 1 / 0.0", "-1e308 * 10 = -1 / 0.0", "1 / -0.0 = -1 / 0.0", "5e-324 / 2 = 0.0", "-0.0 = 0"),
        *("1e308 + 1e308 > 1.7976931348623157e308", "0.1 + 0.2 = 0.30000000000000004", "0.1 + 0.2 <> 0.3"),
        *("0.0 / 0 <> 0.0 / 0", "not (0.0 / 0 = 0.0 / 0)", "not (0.0 / 0 < 1 or 0.0 / 0 >= 1)"),
    ],
)
def test_numbers_are_those_of_java(text: str) -> None:
    assert evaluate(text) is True


def test_an_exact_division_by_zero_is_unknown() -> None:
    assert evaluate("1 / 0 = 1") is None
    assert evaluate("x / y = 1 or true", x=1, y=0) is True


def test_arithmetic_with_other_values_than_numbers_is_unknown() -> None:
    assert evaluate("x + 1 = 2", x="1") is None
    assert evaluate("+x = y", x="1", y="1") is None
    assert evaluate("-x = y", x=True, y=True) is None


@pytest.mark.requirement("selector.identifier.header", "selector.JMSDeliveryMode", "selector.datetime")
def test_headers() -> None:
    message = Message()
    message.jms_message_id = "ID:1"
    message.jms_timestamp = 1_700_000_000_000
    message.jms_correlation_id = "c"
    message.jms_type = "car"
    message.jms_priority = 7
    message.jms_delivery_mode = DeliveryMode.NON_PERSISTENT
    for text in (
        "JMSMessageID = 'ID:1'",
        "JMSTimestamp between 1699999999999 and 1700000000000",
        "JMSCorrelationID in ('b', 'c')",
        "JMSType like 'c_r'",
        "JMSPriority + 1 = 8",
        "JMSDeliveryMode = 'NON_PERSISTENT'",
        "JMSDeliveryMode <> 'PERSISTENT'",
    ):
        assert matches(text, message), text


@pytest.mark.requirement("selector.identifier.header")
def test_headers_that_are_not_set() -> None:
    """Id, correlation id and type are null then; a timestamp that was disabled is 0."""
    message = Message()
    for name in ("JMSMessageID", "JMSCorrelationID", "JMSType"):
        assert matches(f"{name} is null", message)
    assert matches("JMSTimestamp = 0 and JMSTimestamp is not null", message)


def test_the_delivery_count_is_unknown_while_messages_are_selected() -> None:
    """Also in a message that has one because it was delivered before."""
    received = decoded(EncodedMessage("Message", *[None] * 9), delivery_count=3)
    assert received.get_int_property("JMSXDeliveryCount") == 3
    assert matches("JMSXDeliveryCount is null", received)


def test_all_types_of_properties() -> None:
    message = Message()
    message.set_boolean_property("boolean", True)
    message.set_byte_property("byte", -1)
    message.set_short_property("short", 2)
    message.set_int_property("int", 3)
    message.set_long_property("long", 2**40)
    message.set_float_property("float", 0.1)
    message.set_double_property("double", 0.1)
    message.set_string_property("string", "s")
    message.set_object_property("nothing", None)
    assert matches("boolean and byte = -1 and short = 2 and int = 3 and long = 1099511627776", message)
    assert matches("double = 0.1 and float <> 0.1 and float = 0.1f and string = 's' and nothing is null", message)


def matches(text: str, message: Message) -> bool:
    selector = Selector.parse(text)
    assert selector is not None
    return selector.matches(message)
