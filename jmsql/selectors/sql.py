"""From a selector's expression to a condition of PostgreSQL on the table ``message``, alias ``m``.

The condition says true, false or null just as the evaluator says True, False or None, and never raises. All text of the
selector is in parameters, but for property names of ASCII letters, digits, ``_`` and ``$``, which an index on an
expression needs to see.
Comparisons of a property with a literal use the operators of jsonb, those of a header the operators of its column.
Other comparisons, and arithmetic, call the functions ``selector_compare`` and ``selector_arithmetic`` on values in the
form that ``properties`` has, see `json_value`. An index can serve comparisons of a property, or of JMSType and the
like, for equality.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from decimal import Decimal

from jmsql.selectors.evaluator import compare, is_number
from jmsql.selectors.expressions import (
    And,
    Arithmetic,
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
    Wildcard,
)
from jmsql.selectors.headers import DELIVERY_MODES, UNKNOWN_UNTIL_DELIVERY
from jmsql.selectors.selector_sql import SelectorSQL
from jmsql.values.postgresql_text import escape_like, to_postgresql

_HEADERS = {
    "JMSDeliveryMode": "(case m.jms_delivery_mode when 1 then 'NON_PERSISTENT' else 'PERSISTENT' end)",
    "JMSPriority": "(9 - m.inverse_priority)",
    "JMSMessageID": "('ID:' || m.jms_message_id::text)",
    "JMSTimestamp": "coalesce(m.jms_timestamp, 0)",
    "JMSCorrelationID": "m.jms_correlation_id",
    "JMSType": "m.jms_type",
}
CORRELATION_ID = _HEADERS["JMSCorrelationID"].removeprefix("m.")
"""The expression of an index on the correlation ids."""

_MIRRORED: dict[ComparisonOperator, ComparisonOperator] = {
    "=": "=",
    "<>": "<>",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}

_OUTCOMES: dict[ComparisonOperator, str] = {
    "=": "in ('=', 'equal')",
    "<>": "in ('<', '>', 'different')",
    "<": "= '<'",
    "<=": "in ('<', '=')",
    ">": "= '>'",
    ">=": "in ('>', '=')",
}
"""The results of ``selector_compare`` for which the comparison is true."""

# jsonb orders values by type first: strings, numbers, booleans, arrays. So these lie below and above all numbers.
_BELOW_NUMBERS = "'-2e308'::jsonb"
_ABOVE_NUMBERS = "'false'::jsonb"
_ARRAY_NUMBERS = (math.inf, -math.inf, -0.0)

_EXACT_IN_DOUBLE = 2**53
"""Below this, decimals compare as the doubles do that they are the shortest form of, and all integers are doubles."""

_plain_name = re.compile("[A-Za-z_$][A-Za-z0-9_$]*").fullmatch
_message_id = re.compile("ID:([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})").fullmatch


def compile_condition(condition: Expression, first: int = 0) -> SelectorSQL:
    """Write a condition in SQL."""
    compiler = _Compiler(first)
    return SelectorSQL(compiler.condition(condition), compiler.parameters)


class _Compiler:
    def __init__(self, first: int) -> None:
        self._first = first
        self.parameters: dict[str, object] = {}

    def _parameter(self, value: str, type_name: str) -> str:
        name = f"selector_{self._first + len(self.parameters)}"
        self.parameters[name] = value
        return f"%({name})s::{type_name}"

    # Conditions

    def condition(self, expression: Expression) -> str:
        match expression:
            case Constant():
                return "true" if expression.value else "false"
            case Comparison():
                return self._comparison(expression)
            case Between():
                return self._simple_between(expression) or self._between(expression)
            case In():
                return self._in(expression)
            case Like():
                return self._like(expression)
            case IsNull():
                return f"({self._plain_value(expression.identifier)} is null)"
            case Not():
                return f"(not {self.condition(expression.operand)})"
            case And():
                return "(" + " and ".join(map(self.condition, expression.operands)) + ")"
            case Or():
                return "(" + " or ".join(map(self.condition, expression.operands)) + ")"
        raise TypeError(f"{expression!r} is not a condition.")

    def _comparison(self, expression: Comparison) -> str:
        simple = None
        match expression:
            case Comparison(left=Identifier() as identifier, right=Constant(value=value), operator=operator):
                simple = self._simple_comparison(identifier, operator, value)
            case Comparison(left=Constant(value=value), right=Identifier() as identifier, operator=operator):
                simple = self._simple_comparison(identifier, _MIRRORED[operator], value)
        if simple is not None:
            return simple
        return self._compared(self._value(expression.left), expression.operator, self._value(expression.right))

    def _compared(self, left: str, operator: ComparisonOperator, right: str) -> str:
        return f"(jmsql_internal.selector_compare({left}, {right}) {_OUTCOMES[operator]})"

    def _between(self, expression: Between) -> str:
        value = self._value(expression.operand)
        low, high = self._value(expression.low), self._value(expression.high)
        return f"({self._compared(value, '>=', low)} and {self._compared(value, '<=', high)})"

    def _in(self, expression: In) -> str:
        value = self._plain_value(expression.identifier)
        test = "<> all" if expression.negated else "= any"
        if _is_header(expression.identifier):
            return f"({value} {test} ({self._array(map(to_postgresql, expression.strings), 'text')}))"
        condition = f"{value} {test} ({self._array(map(json_value, expression.strings), 'jsonb')})"
        return f"({condition} and jsonb_typeof({value}) = 'string')" if expression.negated else f"({condition})"

    def _array(self, elements: Iterable[str], type_name: str) -> str:
        escaped = (element.replace("\\", "\\\\").replace('"', '\\"') for element in elements)
        return self._parameter("{" + ",".join(f'"{element}"' for element in escaped) + "}", f"{type_name}[]")

    def _like(self, expression: Like) -> str:
        value = self._plain_value(expression.identifier)
        if _is_header(expression.identifier):
            return self._matches(value, expression)
        text = f"({value} #>> '{{}}'::text[])"
        return f"(jsonb_typeof({value}) = 'string' and {self._matches(text, expression)})"

    def _matches(self, text: str, expression: Like) -> str:
        sign = ("not ", "!") if expression.negated else ("", "")
        like = f"{text} {sign[0]}like {self._parameter(_like_pattern(expression.pattern), 'text')}"
        match = f"{text} {sign[1]}~ {self._parameter(_regular_expression(expression.pattern), 'text')}"
        return f"(case strpos({text}, chr(65534)) when 0 then {like} else {match} end)"

    # Comparisons of a header or property with a literal

    def _simple_comparison(self, identifier: Identifier, operator: ComparisonOperator, constant: object) -> str | None:
        if _is_header(identifier):
            return self._header_comparison(identifier, operator, constant)
        value = self._plain_value(identifier)
        match constant:
            case bool():
                expected = constant if operator == "=" else not constant
                return f"({value} = '{json_value(expected)}'::jsonb)"
            case str():
                literal = self._parameter(json_value(constant), "jsonb")
                if operator == "=":
                    return f"({value} = {literal})"
                return f"({value} <> {literal} and jsonb_typeof({value}) = 'string')"
            case int() | float() if abs(constant) < _EXACT_IN_DOUBLE:
                return self._number_comparison(value, operator, constant)
        return None

    def _header_comparison(self, identifier: Identifier, operator: ComparisonOperator, constant: object) -> str | None:
        header = _HEADERS[identifier.name]
        match constant:
            case int():
                return f"({header} {operator} {self._parameter(str(constant), 'bigint')})"
            case float() if abs(constant) < _EXACT_IN_DOUBLE:
                return f"({header}::numeric {operator} {self._parameter(str(constant), 'numeric')})"
            case str() if identifier.name == "JMSDeliveryMode":
                mode = next(number for number, name in DELIVERY_MODES.items() if name == constant)
                return f"(m.jms_delivery_mode {operator} {mode})"
            case str() if identifier.name == "JMSMessageID" and (match := _message_id(constant)):
                return f"(m.jms_message_id {operator} {self._parameter(match[1], 'uuid')})"
            case str():
                return f"({header} {operator} {self._parameter(to_postgresql(constant), 'text')})"
        return None

    def _number_comparison(self, value: str, operator: ComparisonOperator, number: float) -> str:
        literal = self._parameter(json_value(number + 0), "jsonb")
        arrays = ", ".join(
            f"'{json_value(array)}'::jsonb" for array in _ARRAY_NUMBERS if compare(operator, array, number)
        )
        match operator:
            case "=":
                return f"({value} = {literal} or {value} in ({arrays}))" if arrays else f"({value} = {literal})"
            case "<>":
                negative_zero = "" if number else f" and {value} <> '{json_value(-0.0)}'::jsonb"
                return f"({value} <> {literal} and jsonb_typeof({value}) in ('number', 'array'){negative_zero})"
            case ">" | ">=":
                return f"({value} {operator} {literal} and ({value} < {_ABOVE_NUMBERS} or {value} in ({arrays})))"
            case "<" | "<=":
                return f"({value} {operator} {literal} and {value} > {_BELOW_NUMBERS} or {value} in ({arrays}))"

    def _simple_between(self, expression: Between) -> str | None:
        match expression:
            case Between(operand=Identifier() as identifier, low=Constant(value=low), high=Constant(value=high)) if (
                not _is_header(identifier)
                and is_number(low)
                and is_number(high)
                and max(abs(low), abs(high)) < _EXACT_IN_DOUBLE
            ):
                value = self._plain_value(identifier)
                first = self._parameter(json_value(low + 0), "jsonb")
                last = self._parameter(json_value(high + 0), "jsonb")
                negative_zero = f" or {value} = '{json_value(-0.0)}'::jsonb" if low <= 0 <= high else ""
                return f"({value} between {first} and {last}{negative_zero})"
        return None

    # Values

    def _plain_value(self, identifier: Identifier) -> str:
        """The value of a header as its column has it, or of a property as jsonb."""
        if _is_header(identifier):
            return _HEADERS[identifier.name]
        if identifier.name in UNKNOWN_UNTIL_DELIVERY:
            return "null::jsonb"
        if _plain_name(identifier.name):
            return f"(m.properties->'{identifier.name}'::text)"
        return f"(m.properties->{self._parameter(to_postgresql(identifier.name), 'text')})"

    def _value(self, expression: Expression) -> str:
        """Any value as jsonb."""
        match expression:
            case Constant():
                return self._parameter(json_value(expression.value), "jsonb")
            case Identifier():
                value = self._plain_value(expression)
                return f"pg_catalog.to_jsonb({value})" if _is_header(expression) else value
            case Arithmetic():
                left, right = self._value(expression.left), self._value(expression.right)
                return self._calculated(expression.operator, left, right)
            case Negative():
                return self._calculated("*", self._value(expression.operand), "'-1'")
            case Positive():
                return self._calculated("*", self._value(expression.operand), "'1'")
            case _:
                return f"pg_catalog.to_jsonb({self.condition(expression)})"

    def _calculated(self, operator: str, left: str, right: str) -> str:
        return f"jmsql_internal.selector_arithmetic('{operator}', {left}, {right})"


def _is_header(identifier: Identifier) -> bool:
    return identifier.name in _HEADERS


def json_value(value: bool | float | str) -> str:
    """Write a value in the form that ``properties`` has.

    An approximate number has fraction digits, and a value without a JSON number stands in an array.
    """
    if not isinstance(value, float):
        return json.dumps(to_postgresql(value) if isinstance(value, str) else value, ensure_ascii=False)
    if not math.isfinite(value) or (value == 0 and math.copysign(1, value) < 0):
        name = repr(value) if value == 0 else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return json.dumps([name])
    digits = format(Decimal(repr(value)), "f")
    return digits if "." in digits else digits + ".0"


def _like_pattern(pattern: Pattern) -> str:
    return "".join(part.value if isinstance(part, Wildcard) else escape_like(to_postgresql(part)) for part in pattern)


# Any one character in a text that holds characters written in two.
_ONE_CHARACTER = "(?:\ufffe.|[^\ufffe])"


def _regular_expression(pattern: Pattern) -> str:
    return "^" + "".join(map(_regular_expression_part, pattern)) + "$"


def _regular_expression_part(part: str | Wildcard) -> str:
    if isinstance(part, Wildcard):
        return _ONE_CHARACTER if part is Wildcard.CHARACTER else _ONE_CHARACTER + "*"
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", to_postgresql(part))


_EQUALITY = re.compile(
    r"\((?P<expression>\(m\.properties->'[^']+'::text\)|m\.jms_type|m\.jms_correlation_id)"
    r" = (?:%\(selector_0\)s|'true'|'false')::(?:jsonb|text)\)"
)


def indexable_expressions(condition: Expression) -> tuple[str, ...]:
    """Return the SQL expressions of an index for a selector: the operands of its equality conditions.

    All messages that it chooses must fulfil these comparisons, and PostgreSQL can look them up as they are written.
    None are returned for a selector that no index serves.
    """
    found: dict[str, None] = {}
    for part in _required(condition):
        match part:
            case Comparison(left=Identifier(), right=Constant()) | Comparison(left=Constant(), right=Identifier()):
                equality = _EQUALITY.fullmatch(compile_condition(part).condition)
                if equality is not None:
                    found[equality["expression"].replace("m.", "").replace("::text", "")] = None
    return tuple(found)


def _required(condition: Expression) -> list[Expression]:
    """Return the conditions that must all hold."""
    if isinstance(condition, And):
        return [part for operand in condition.operands for part in _required(operand)]
    return [condition]
