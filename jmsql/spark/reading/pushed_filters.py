"""The conditions of a query that PostgreSQL can check, so that the other rows are not sent to Spark.

Spark checks all of them again: PostgreSQL may leave too much, but never take away what Spark would keep. Spark allows
it only while `spark.sql.python.filterPushdown.enabled` is true, and refuses readers that want it otherwise; so these
readers are others, which the option `pushFilters` chooses.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from jmsql.spark.columns.expressions import HISTORY_COLUMNS, ColumnComparison
from jmsql.spark.reading.batch_reader import BatchReader, HistoryReader
from jmsql.values.postgresql_text import to_postgresql

__all__ = ["FilteringBatchReader", "FilteringHistoryReader", "comparison_of"]

_KINDS: dict[str, type] = {"string": str, "int": int, "bigint": int, "timestamp": dt.datetime}
_NOT_COMPARED = {"properties", "property_types", "json_body", "body_types"}
"""JSON, which PostgreSQL would have to write as text for each row."""

_COMPARED = {
    name: _KINDS[kind] for name, kind in HISTORY_COLUMNS.items() if kind in _KINDS and name not in _NOT_COMPARED
}
_EQUALITIES = {EqualTo: "=", EqualNullSafe: "is not distinct from"}
_ORDERS = {GreaterThan: ">", GreaterThanOrEqual: ">=", LessThan: "<", LessThanOrEqual: "<="}


def comparison_of(condition: Filter) -> ColumnComparison | None:
    """Return a condition as PostgreSQL can check it; None if it cannot."""
    if isinstance(condition, Not):
        comparison = comparison_of(condition.child)
        return None if comparison is None else comparison._replace(negated=not comparison.negated)
    attribute: tuple[str, ...] = getattr(condition, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in _COMPARED:
        return None
    column = attribute[0]
    if isinstance(condition, IsNull | IsNotNull):
        return ColumnComparison(column, "is null", negated=isinstance(condition, IsNotNull))
    if isinstance(condition, In):
        values = [_value(column, value) for value in condition.value]
        return None if None in values else ColumnComparison(column, "= any", values)
    # PostgreSQL's order of texts is another than Spark's.
    operators = _EQUALITIES if _COMPARED[column] is str else {**_EQUALITIES, **_ORDERS}
    operator = operators.get(type(condition))
    value = _value(column, getattr(condition, "value", None))
    return None if operator is None or value is None else ColumnComparison(column, operator, value)


def _value(column: str, value: object) -> object:
    """Return what a column is compared with as the database has it; None if it cannot be said."""
    if type(value) is not _COMPARED[column]:
        return None
    if isinstance(value, dt.datetime) and value.tzinfo is None:
        return None
    if isinstance(value, str):
        # A question mark may stand for a character that Spark's strings do not have.
        return None if "?" in value else to_postgresql(value)
    return value


class _Filtering:
    """What readers have that take conditions."""

    filters: Sequence[ColumnComparison]

    def pushFilters(self, filters: Sequence[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Keep the conditions that PostgreSQL can check; return all, for Spark to check them again."""
        found = map(comparison_of, filters)
        self.filters = [comparison for comparison in found if comparison is not None]
        return filters


class FilteringBatchReader(_Filtering, BatchReader):
    """Browses what fulfils the conditions of the query."""


class FilteringHistoryReader(_Filtering, HistoryReader):
    """Reads of the history what fulfils the conditions of the query."""
