"""The expressions that a selector is made of.

Conditions that other expressions can express have no class of their own: ``NOT BETWEEN`` is two comparisons, and a bare
identifier that stands as a condition is compared with true. ``NOT IN`` and ``NOT LIKE`` have one: they are false for
values that are not strings, and so the opposite of ``IN`` and ``LIKE`` for strings alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, TypeAlias

Value: TypeAlias = bool | int | float | str | None
"""The value of an expression: an int is exact (a Java long), a float approximate (a double), and None is unknown."""

ComparisonOperator: TypeAlias = Literal["=", "<>", "<", "<=", ">", ">="]
ArithmeticOperator: TypeAlias = Literal["+", "-", "*", "/"]


class Wildcard(Enum):
    """The wildcards of LIKE."""

    CHARACTER = "_"
    RUN = "%"


Pattern: TypeAlias = tuple[str | Wildcard, ...]
"""A pattern of LIKE with its escapes resolved: texts that stand for themselves, and wildcards."""


@dataclass(frozen=True, slots=True)
class Expression:
    """Part of a selector, with the place in the text where it starts."""

    position: int = field(compare=False, repr=False)

    @property
    def parts(self) -> Iterable[Expression]:
        """The expressions that this one is made of."""
        return ()


@dataclass(frozen=True, slots=True)
class Constant(Expression):
    """A literal."""

    value: bool | int | float | str


@dataclass(frozen=True, slots=True)
class Identifier(Expression):
    """A header or property of the message."""

    name: str


@dataclass(frozen=True, slots=True)
class _Unary(Expression):
    operand: Expression

    @property
    def parts(self) -> Iterable[Expression]:
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class Negative(_Unary):
    """A number with its sign changed."""


@dataclass(frozen=True, slots=True)
class Positive(_Unary):
    """A number as it is; unknown if it is not a number."""


@dataclass(frozen=True, slots=True)
class Not(_Unary):
    """The opposite of a condition."""


@dataclass(frozen=True, slots=True)
class _Binary(Expression):
    left: Expression
    right: Expression

    @property
    def parts(self) -> Iterable[Expression]:
        return (self.left, self.right)


@dataclass(frozen=True, slots=True)
class Arithmetic(_Binary):
    """A sum, difference, product or quotient."""

    operator: ArithmeticOperator


@dataclass(frozen=True, slots=True)
class Comparison(_Binary):
    """A comparison of two values."""

    operator: ComparisonOperator


@dataclass(frozen=True, slots=True)
class Between(Expression):
    """The test that a number lies between two others, or is one of them."""

    operand: Expression
    low: Expression
    high: Expression

    @property
    def parts(self) -> Iterable[Expression]:
        return (self.operand, self.low, self.high)


@dataclass(frozen=True, slots=True)
class _Test(Expression):
    identifier: Identifier

    @property
    def parts(self) -> Iterable[Expression]:
        return (self.identifier,)


@dataclass(frozen=True, slots=True)
class In(_Test):
    """The test that a string is in a list, or, negated, is not."""

    strings: tuple[str, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Like(_Test):
    """The test that a string matches a pattern, or, negated, does not."""

    pattern: Pattern
    negated: bool = False


@dataclass(frozen=True, slots=True)
class IsNull(_Test):
    """The test that a header or property is null or missing."""


@dataclass(frozen=True, slots=True)
class _Combination(Expression):
    operands: tuple[Expression, ...]

    @property
    def parts(self) -> Iterable[Expression]:
        return self.operands


@dataclass(frozen=True, slots=True)
class And(_Combination):
    """A condition that is true when all its conditions are."""


@dataclass(frozen=True, slots=True)
class Or(_Combination):
    """A condition that is true when one of its conditions is."""
