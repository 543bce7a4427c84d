"""The SQL functions calculate and compare as Java does, close to every limit of its numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import product
from random import Random

import pytest

from jmsql.selectors.evaluator import calculate, compare
from jmsql.selectors.expressions import ArithmeticOperator
from jmsql.selectors.sql import json_value
from tests.integration.selectors.conftest import MessageTable
from tests.integration.selectors.generation import ARITHMETIC, COMPARISONS, DOUBLES, LONGS, SPECIAL_DOUBLES

EDGES = (*LONGS, *DOUBLES, *SPECIAL_DOUBLES)


def near(random: Random, exponent: float) -> float:
    """A number of either sign whose logarithm to base 2 is close to `exponent`."""
    significand = random.choice((1.0, 1.0, math.nextafter(1, 2), math.nextafter(1, 0), random.uniform(0.5, 2)))
    scale = round(exponent + random.choice((-1, 0, 0, 1)))
    if scale > 1023:
        return random.choice((-1, 1)) * math.ldexp(min(significand, math.nextafter(1, 0)), 1024)
    return random.choice((-1, 1)) * math.ldexp(significand, max(scale, -1074))


def pairs_near_limits(count: int) -> Iterator[tuple[float, float]]:
    """Pairs whose sum, product or quotient is near infinity or near zero."""
    random = Random(754)
    for _ in range(count):
        exponent = random.uniform(-1074, 1023)
        left = near(random, exponent)
        limit = random.choice((1024, 1023, -1074, -1075))
        yield left, near(random, random.choice((exponent, limit - exponent, exponent - limit)))


@pytest.mark.parametrize("operator", ARITHMETIC)
def test_edges_calculate_as_in_java(message_table: MessageTable, operator: ArithmeticOperator) -> None:
    pairs = [*product(EDGES, EDGES), *pairs_near_limits(10_000)]
    query = (
        f'select "{message_table.schema}_internal".selector_arithmetic(%s, a::jsonb, b::jsonb)::text'
        " from unnest(%s::text[], %s::text[]) with ordinality as pair(a, b, number) order by number"
    )
    left, right = ([json_value(pair[side]) for pair in pairs] for side in (0, 1))
    found = [row[0] for row in message_table.connection.execute(query, (operator, left, right))]
    for (a, b), in_sql in zip(pairs, found, strict=True):
        assert repr(number_in(in_sql)) == repr(calculate(operator, a, b)), f"{a!r} {operator} {b!r}"


def number_in(text: str | None) -> float | None:
    value = None if text is None else json.loads(text)
    return float(value[0]) if isinstance(value, list) else value


def test_edges_compare_as_in_java(message_table: MessageTable) -> None:
    values: tuple[bool | float | str, ...] = (*EDGES, True, False, "", "a", "1")
    pairs = list(product(values, values))
    query = (
        f'select "{message_table.schema}_internal".selector_compare(a::jsonb, b::jsonb)'
        " from unnest(%s::text[], %s::text[]) with ordinality as pair(a, b, number) order by number"
    )
    left, right = ([json_value(pair[side]) for pair in pairs] for side in (0, 1))
    found = [row[0] for row in message_table.connection.execute(query, (left, right))]
    for (a, b), in_sql in zip(pairs, found, strict=True):
        said = {
            "=": in_sql in ("=", "equal"),
            "<>": in_sql in ("<", ">", "different"),
            "<": in_sql == "<",
            "<=": in_sql in ("<", "="),
            ">": in_sql == ">",
            ">=": in_sql in (">", "="),
        }
        assert said == {comparison: compare(comparison, a, b) for comparison in COMPARISONS}, f"{a!r} with {b!r}"
