"""A message selector, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Self

from jmsql.exceptions import InvalidSelectorException
from jmsql.selectors.errors import SelectorError, invalid_selector

# Programs without selectors load neither the parser nor the classes of expressions.
if TYPE_CHECKING:
    from jmsql.selectors.evaluator import SelectableMessage
    from jmsql.selectors.expressions import Expression
    from jmsql.selectors.selector_sql import SelectorSQL


_WHITE_SPACE = " \t\f\r\n"


@dataclass(frozen=True, slots=True)
class Selector:
    """Chooses messages by their headers and properties.

    Make one with `parse`. Source: JMS 1.1 chapter 3.8.1.
    """

    text: str
    _condition: Expression = field(repr=False, compare=False)

    @classmethod
    def parse(cls, text: str | None) -> Self | None:
        """Check a selector.

        Args:
            text: The selector; None, or nothing but white space, chooses all messages.

        Returns:
            The selector, or None if it chooses all messages.

        Raises:
            InvalidSelectorException: The text is no selector; the message shows where and says why.
        """
        if text is not None and not isinstance(text, str):
            raise InvalidSelectorException(f"A selector is a string, not {text!r}.")
        if text is None or not text.strip(_WHITE_SPACE):
            return None
        return cls(text, _parse(text))

    def to_sql(self, first: int = 0) -> SelectorSQL:
        """Write the selector as a condition on ``message as m``, which is true for the messages that it chooses.

        Functions of jmsql are named as in the schema `jmsql_internal`, which statements put into theirs.

        Args:
            first: The number of the first placeholder, for a statement with several selectors.
        """
        from jmsql.selectors.sql import compile_condition

        return compile_condition(self._condition, first)

    @property
    def indexable_expressions(self) -> tuple[str, ...]:
        """The SQL expressions of an index on the messages that would serve the selector; empty if no index can."""
        from jmsql.selectors.sql import indexable_expressions

        return indexable_expressions(self._condition)

    @property
    def properties(self) -> frozenset[str]:
        """The names of the properties that it compares; headers are none."""
        from jmsql.selectors.expressions import Identifier
        from jmsql.selectors.headers import HEADER_TYPES

        names, expressions = set(), [self._condition]
        while expressions:
            expression = expressions.pop()
            if isinstance(expression, Identifier):
                names.add(expression.name)
            expressions.extend(expression.parts)
        return frozenset(names - HEADER_TYPES.keys())

    def matches(self, message: SelectableMessage) -> bool:
        """Tell whether the selector chooses a message."""
        from jmsql.selectors.evaluator import truth, value_in

        return truth(self._condition, partial(value_in, message)) is True


@lru_cache(maxsize=128)
def _parse(text: str) -> Expression:
    from jmsql.selectors.parser import parse

    try:
        return parse(text)
    except SelectorError as error:
        raise invalid_selector(text, error) from error
