"""A selector as SQL."""

from __future__ import annotations

import re
from typing import NamedTuple

MOST_PARAMETERS = 10_000
"""The most parameters that are sent one by one. PostgreSQL takes 65,535 in a statement."""

_IN_AN_ARRAY = 100
"""Elements of an array: PostgreSQL walks through those before the one that it looks up."""

_placeholder = re.compile(r"%\((selector_[0-9]+)\)s")


class SelectorSQL(NamedTuple):
    """A condition for a WHERE clause on ``message as m``."""

    condition: str
    """SQL with psycopg's named placeholders, ``%(selector_0)s`` and so on; each states its type."""
    parameters: dict[str, object]
    """The values of the placeholders."""

    def packed(self) -> SelectorSQL:
        """Return the same condition with a bounded number of parameters, also where many selectors make it.

        More than `MOST_PARAMETERS` travel as elements of arrays.
        """
        if len(self.parameters) <= MOST_PARAMETERS:
            return self
        names = list(self.parameters)
        places = {name: divmod(number, _IN_AN_ARRAY) for number, name in enumerate(names)}

        def element(found: re.Match[str]) -> str:
            array, index = places[found[1]]
            return f"(%(selectors_{array})s::text[])[{index + 1}]"

        arrays: dict[str, object] = {
            f"selectors_{array}": [self.parameters[name] for name in names[start : start + _IN_AN_ARRAY]]
            for array, start in enumerate(range(0, len(names), _IN_AN_ARRAY))
        }
        return SelectorSQL(_placeholder.sub(element, self.condition), arrays)
