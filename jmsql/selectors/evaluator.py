"""The meaning of selectors, in plain Python.

Three-valued logic with None for unknown, and the numbers of Java: exact ones wrap around at 64 bits, approximate ones
are IEEE 754 doubles, and an exact number beside an approximate one is promoted. Decisions where JMS leaves a choice:

- an exact division by zero, and arithmetic with values that are not numbers, yield unknown;
- a property that stands alone as a condition means that it equals TRUE.

Source: JMS 1.1 chapters 3.8.1.1 and 3.8.1.2.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias, TypeGuard

from jmsql.selectors.expressions import (
    And,
    Arithmetic,
    ArithmeticOperator,
    Between,
    Comparison,
    ComparisonOperator,
    Constant,
    Expression,
    Identifier,
    In,
    IsNull,
    Like,
    Negative,
    Not,
    Or,
    Pattern,
    Positive,
    Value,
    Wildcard,
)
from jmsql.selectors.headers import DELIVERY_MODES, UNKNOWN_UNTIL_DELIVERY

Values: TypeAlias = Callable[[str], Value]
"""Gives the value of a header or property by its name; None if it is missing."""

_COMPARISONS: dict[ComparisonOperator, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def truth(condition: Expression, values: Values) -> bool | None:
    """Evaluate a condition: True, False, or None for unknown."""
    match condition:
        case Constant(value=bool() as constant):
            return constant
        case Comparison():
            return compare(condition.operator, _value(condition.left, values), _value(condition.right, values))
        case Between():
            value = _value(condition.operand, values)
            return _all(
                (
                    compare(">=", value, _value(condition.low, values)),
                    compare("<=", value, _value(condition.high, values)),
                )
            )
        case In() | Like():
            value = _value(condition.identifier, values)
            if value is None:
                return None
            return isinstance(value, str) and _passes(value, condition) is not condition.negated
        case IsNull():
            return _value(condition.identifier, values) is None
        case Not():
            return _opposite(truth(condition.operand, values))
        case And():
            return _all(truth(operand, values) for operand in condition.operands)
        case Or():
            return _opposite(_all(_opposite(truth(operand, values)) for operand in condition.operands))
    raise TypeError(f"{condition!r} is not a condition.")


def _opposite(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


def _all(truths: Iterable[bool | None]) -> bool | None:
    result: bool | None = True
    for truth in truths:
        if truth is False:
            return False
        result = result and truth
    return result


def _value(expression: Expression, values: Values) -> Value:
    match expression:
        case Constant():
            return expression.value
        case Identifier():
            return values(expression.name)
        case Arithmetic():
            return calculate(expression.operator, _value(expression.left, values), _value(expression.right, values))
        case Negative():
            value = _value(expression.operand, values)
            return negated(value) if is_number(value) else None
        case Positive():
            value = _value(expression.operand, values)
            return value if is_number(value) else None
        case _:
            return truth(expression, values)


def is_number(value: Value) -> TypeGuard[int | float]:
    """Tell numbers, exact or approximate, from other values."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def compare(comparison: ComparisonOperator, left: Value, right: Value) -> bool | None:
    """Compare two values: unknown if either is, false if they are of unlike types or not numbers and to be ordered."""
    if left is None or right is None:
        return None
    if is_number(left) and is_number(right):
        if isinstance(left, float) or isinstance(right, float):
            left, right = float(left), float(right)
        return _COMPARISONS[comparison](left, right)
    like = (isinstance(left, bool) and isinstance(right, bool)) or (isinstance(left, str) and isinstance(right, str))
    return like and comparison in ("=", "<>") and _COMPARISONS[comparison](left, right)


def negated(number: float) -> int | float:
    """Change the sign of a number; the smallest exact number stays as it is, as in Java."""
    return _wrapped(-number) if isinstance(number, int) else -number


def _wrapped(integer: int) -> int:
    return (integer + 2**63) % 2**64 - 2**63


def calculate(sign: ArithmeticOperator, left: Value, right: Value) -> int | float | None:
    """Add, subtract, multiply or divide two values: unknown if either is not a number."""
    if not is_number(left) or not is_number(right):
        return None
    if isinstance(left, float) or isinstance(right, float):
        return _calculate_approximate(sign, float(left), float(right))
    match sign:
        case "+":
            return _wrapped(left + right)
        case "-":
            return _wrapped(left - right)
        case "*":
            return _wrapped(left * right)
        case "/" if right == 0:
            return None
        case "/":
            quotient = abs(left) // abs(right)
            return _wrapped(quotient if (left < 0) == (right < 0) else -quotient)


def _calculate_approximate(sign: ArithmeticOperator, left: float, right: float) -> float:
    match sign:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/" if right != 0:
            return left / right
        case "/" if left == 0 or math.isnan(left):
            return math.nan
        case "/":
            return math.copysign(math.inf, left) * math.copysign(1, right)


def _passes(text: str, test: In | Like) -> bool:
    return text in test.strings if isinstance(test, In) else _matches(text, test.pattern)


def _matches(text: str, pattern: Pattern) -> bool:
    """Match a text with a pattern of LIKE.

    Between two runs, the first place where the pattern fits is as good as any: the atomic groups say so, and so the
    time stays within the product of the two lengths.
    """
    *fixed, last = _split_at_runs(pattern)
    if not fixed:
        return re.fullmatch(last, text, re.DOTALL) is not None
    first, *middle = fixed
    expression = first + "".join(f"(?>.*?{part})" for part in middle) + ".*" + last
    return re.fullmatch(expression, text, re.DOTALL) is not None


def _split_at_runs(pattern: Pattern) -> list[str]:
    parts = [""]
    for part in pattern:
        if part is Wildcard.RUN:
            parts.append("")
        else:
            parts[-1] += "." if part is Wildcard.CHARACTER else re.escape(str(part))
    return parts


class SelectableMessage(Protocol):
    """The parts of a message that a selector reads, jmsql's own or another provider's."""

    @property
    def jms_delivery_mode(self) -> int: ...
    @property
    def jms_priority(self) -> int: ...
    @property
    def jms_message_id(self) -> str | None: ...
    @property
    def jms_timestamp(self) -> int: ...
    @property
    def jms_correlation_id(self) -> str | None: ...
    @property
    def jms_type(self) -> str | None: ...
    def get_object_property(self, name: str, /) -> Value: ...


def value_in(message: SelectableMessage, name: str) -> Value:
    """Return the value of a selector's name, or None for null and missing.

    A timestamp that the producer disabled is the header's 0. Only message id, correlation id and type can be null.
    """
    match name:
        case "JMSDeliveryMode":
            return DELIVERY_MODES[message.jms_delivery_mode]
        case "JMSPriority":
            return message.jms_priority
        case "JMSMessageID":
            return message.jms_message_id
        case "JMSTimestamp":
            return message.jms_timestamp
        case "JMSCorrelationID":
            return message.jms_correlation_id
        case "JMSType":
            return message.jms_type
        case _ if name in UNKNOWN_UNTIL_DELIVERY:
            return None
        case _:
            return message.get_object_property(name)
