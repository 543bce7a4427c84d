"""Building expressions while the text is parsed, bottom up, so that no depth of nesting needs recursion.

Each method of `ExpressionBuilder` serves the grammar's rule of its name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from lark import Token, Transformer, v_args

from jmsql.selectors.checker import (
    as_condition,
    check_comparison,
    check_delivery_mode,
    check_number,
    check_range,
    check_string,
)
from jmsql.selectors.errors import SelectorError
from jmsql.selectors.evaluator import is_number, negated
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
    Positive,
    Wildcard,
)
from jmsql.selectors.headers import is_refused_header
from jmsql.selectors.literals import parse_number, parse_pattern, parse_string

MAXIMUM_PATTERN = 4096
"""How many characters a pattern may have: PostgreSQL refuses regular expressions that are much longer."""

MAXIMUM_WILDCARDS = 200
"""How many wildcards a pattern may have: PostgreSQL matches each on its stack."""


def _position(token: Token) -> int:
    return cast(int, token.start_pos)


@v_args(inline=True)
class ExpressionBuilder(Transformer[Token, Expression]):
    """Makes an expression of each rule of the grammar, and checks it."""

    def start(self, expression: Expression) -> Expression:
        return as_condition(expression)

    def disjunction(self, *operands: Expression) -> Expression:
        return Or(operands[0].position, tuple(map(as_condition, operands)))

    def conjunction(self, *operands: Expression) -> Expression:
        return And(operands[0].position, tuple(map(as_condition, operands)))

    def inverted(self, operand: Expression) -> Expression:
        return Not(operand.position, as_condition(operand))

    def comparison(self, left: Expression, operator: Token, right: Expression) -> Expression:
        comparison = Comparison(left.position, left, right, cast(ComparisonOperator, operator.value))
        check_comparison(comparison)
        return comparison

    def between(self, operand: Expression, low: Expression, high: Expression) -> Expression:
        for expression in (operand, low, high):
            check_number(expression)
        return Between(operand.position, operand, low, high)

    def not_between(self, operand: Expression, low: Expression, high: Expression) -> Expression:
        # JMS defines it so; the opposite of BETWEEN would also select values that are not numbers.
        return Or(operand.position, (self._compared(operand, "<", low), self._compared(operand, ">", high)))

    def _compared(self, left: Expression, operator: ComparisonOperator, right: Expression) -> Comparison:
        check_number(left)
        check_number(right)
        return Comparison(left.position, left, right, operator)

    def in_list(self, operand: Expression, strings: list[Token]) -> In:
        identifier = check_string(operand)
        for token in strings:
            check_delivery_mode(identifier, parse_string(token), _position(token))
        return In(operand.position, identifier, tuple(map(parse_string, strings)))

    def not_in_list(self, operand: Expression, strings: list[Token]) -> Expression:
        return replace(self.in_list(operand, strings), negated=True)

    def strings(self, *strings: Token) -> list[Token]:
        return list(strings)

    def like(self, operand: Expression, pattern: Token, escape: Token | None) -> Like:
        identifier = check_string(operand)
        escape_character = None if escape is None else parse_string(escape)
        if escape is not None and escape_character is not None and len(escape_character) != 1:
            raise SelectorError("the escape of LIKE is one character", _position(escape))
        try:
            parsed = parse_pattern(parse_string(pattern), escape_character)
        except ValueError as error:
            raise SelectorError(str(error), _position(pattern)) from error
        if len(pattern) > MAXIMUM_PATTERN:
            raise SelectorError(f"the pattern is longer than {MAXIMUM_PATTERN} characters", _position(pattern))
        if sum(isinstance(part, Wildcard) for part in parsed) > MAXIMUM_WILDCARDS:
            raise SelectorError(f"the pattern has more than {MAXIMUM_WILDCARDS} wildcards", _position(pattern))
        return Like(operand.position, identifier, parsed)

    def not_like(self, operand: Expression, pattern: Token, escape: Token | None) -> Expression:
        return replace(self.like(operand, pattern, escape), negated=True)

    def is_null(self, operand: Expression) -> Expression:
        if not isinstance(operand, Identifier):
            raise SelectorError("IS NULL tests a header or property, by its name", operand.position)
        return IsNull(operand.position, operand)

    def is_not_null(self, operand: Expression) -> Expression:
        return Not(operand.position, self.is_null(operand))

    def arithmetic(self, left: Expression, operator: Token, right: Expression) -> Expression:
        check_number(left)
        check_number(right)
        return Arithmetic(left.position, left, right, cast(ArithmeticOperator, operator.value))

    def positive(self, sign: Token, operand: Expression) -> Expression:
        check_number(operand)
        return Positive(_position(sign), operand) if isinstance(operand, Identifier) else operand

    def negative(self, sign: Token, operand: Expression) -> Expression:
        if isinstance(operand, Constant) and is_number(operand.value):
            return Constant(_position(sign), negated(operand.value))
        check_number(operand)
        return Negative(_position(sign), operand)

    def parenthesized(self, expression: Expression) -> Expression:
        check_range(expression)
        return expression

    def identifier(self, name: Token) -> Expression:
        if is_refused_header(name):
            raise SelectorError(f"the header {name} cannot be used in a selector", _position(name))
        return Identifier(_position(name), str(name))

    def number(self, number: Token) -> Expression:
        try:
            return Constant(_position(number), parse_number(number))
        except ValueError as error:
            raise SelectorError(str(error), _position(number)) from error

    def string(self, string: Token) -> Expression:
        return Constant(_position(string), parse_string(string))

    def boolean(self, word: Token) -> Expression:
        return Constant(_position(word), word.upper() == "TRUE")
