"""Checks of operators' operands, as far as the text shows their types.

A property may hold a value of any type, so no use of it is wrong before run time; a literal, a header or a calculation
in the wrong place is.
"""

from __future__ import annotations

from jmsql.selectors.errors import SelectorError
from jmsql.selectors.expressions import (
    Arithmetic,
    Comparison,
    Constant,
    Expression,
    Identifier,
    Negative,
    Positive,
)
from jmsql.selectors.headers import DELIVERY_MODES, HEADER_TYPES, Type
from jmsql.selectors.literals import LONG_LIMIT

MAXIMUM_DEPTH = 100
"""How deeply operators may be nested. Chains of AND and OR count as one, parentheses alone as none."""


def _type_of(expression: Expression) -> Type:
    match expression:
        case Constant(value=bool()):
            return Type.BOOLEAN
        case Constant(value=str()):
            return Type.STRING
        case Constant() | Arithmetic() | Negative() | Positive():
            return Type.NUMBER
        case Identifier():
            return HEADER_TYPES.get(expression.name, Type.PROPERTY)
        case _:
            return Type.BOOLEAN


def as_condition(expression: Expression) -> Expression:
    """Take an expression for a condition, which for a property means that it is compared with true.

    Raises:
        SelectorError: It is not a condition.
    """
    match _type_of(expression):
        case Type.BOOLEAN:
            return expression
        case Type.PROPERTY:
            return Comparison(expression.position, expression, Constant(expression.position, value=True), "=")
        case other:
            raise SelectorError(f"{other.value} is no condition, compare it with something", expression.position)


def check_number(expression: Expression) -> None:
    """Make sure that an expression may be a number.

    Raises:
        SelectorError: It is not a number, or an integer that is too large.
    """
    found = _type_of(expression)
    if found not in (Type.NUMBER, Type.PROPERTY):
        raise SelectorError(f"{found.value} stands here where a number belongs", expression.position)
    check_range(expression)


def check_range(expression: Expression) -> None:
    """Make sure that an integer has 64 bits; the smallest one is written under a minus sign, which was read before.

    Raises:
        SelectorError: It needs more.
    """
    if isinstance(expression, Constant) and expression.value == LONG_LIMIT and isinstance(expression.value, int):
        raise SelectorError("the integer needs more than 64 bits", expression.position)


def check_string(expression: Expression) -> Identifier:
    """Make sure that an expression names a header or property that may be a string.

    Raises:
        SelectorError: It does not.
    """
    if not isinstance(expression, Identifier):
        raise SelectorError("the name of a header or property belongs here", expression.position)
    if _type_of(expression) is Type.NUMBER:
        raise SelectorError(f"{expression.name} is a number, a string belongs here", expression.position)
    return expression


def check_comparison(comparison: Comparison) -> None:
    """Make sure that two values can be compared, and in this way.

    Raises:
        SelectorError: They cannot.
    """
    left, right = _type_of(comparison.left), _type_of(comparison.right)
    for expression, found in ((comparison.left, left), (comparison.right, right)):
        check_range(expression)
        if comparison.operator not in ("=", "<>") and found in (Type.STRING, Type.BOOLEAN):
            raise SelectorError(f"{found.value} can be compared with = and <> only", expression.position)
    if left is not right and Type.PROPERTY not in (left, right):
        raise SelectorError(f"{left.value} and {right.value} do not compare", comparison.right.position)
    _check_delivery_mode(comparison.left, comparison.right)
    _check_delivery_mode(comparison.right, comparison.left)


def _check_delivery_mode(identifier: Expression, constant: Expression) -> None:
    if isinstance(identifier, Identifier) and isinstance(constant, Constant):
        check_delivery_mode(identifier, str(constant.value), constant.position)


def check_delivery_mode(identifier: Identifier, text: str, position: int) -> None:
    """Make sure that JMSDeliveryMode meets one of its two values.

    Raises:
        SelectorError: It does not.
    """
    if identifier.name == "JMSDeliveryMode" and text not in DELIVERY_MODES.values():
        raise SelectorError("JMSDeliveryMode is 'PERSISTENT' or 'NON_PERSISTENT'", position)


def check_depth(selector: Expression) -> None:
    """Make sure that neither Python's stack nor PostgreSQL's can overflow.

    Raises:
        SelectorError: The expression is nested too deeply.
    """
    waiting = [(selector, 1)]
    while waiting:
        expression, depth = waiting.pop()
        if depth > MAXIMUM_DEPTH:
            raise SelectorError(f"operators are nested more than {MAXIMUM_DEPTH} deep", expression.position)
        waiting.extend((part, depth + 1) for part in expression.parts)
