from __future__ import annotations

import datetime as dt

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, IsNotNull, IsNull, LessThanOrEqual, Not

from jmsql.spark.columns.expressions import ColumnComparison
from jmsql.spark.reading.batch_reader import comparison_of

NOON = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("condition", "comparison"),
    [
        (EqualTo(("jms_type",), "greeting"), ColumnComparison("jms_type", "=", "greeting")),
        (EqualTo(("text_body",), "a NUL: \0"), ColumnComparison("text_body", "=", "a NUL: \ufffe0")),
        (GreaterThan(("priority",), 4), ColumnComparison("priority", ">", 4)),
        (LessThanOrEqual(("sent_at",), NOON), ColumnComparison("sent_at", "<=", NOON)),
        (In(("outcome",), ("expired", "purged")), ColumnComparison("outcome", "= any", ["expired", "purged"])),
        (IsNull(("jms_type",)), ColumnComparison("jms_type", "is null")),
        (IsNotNull(("jms_type",)), ColumnComparison("jms_type", "is null", negated=True)),
        (Not(EqualTo(("sequence",), 3)), ColumnComparison("sequence", "=", 3, negated=True)),
        (Not(IsNotNull(("jms_type",))), ColumnComparison("jms_type", "is null")),
    ],
)
def test_condition_that_postgresql_checks_as_spark_does(condition: Filter, comparison: ColumnComparison) -> None:
    assert comparison_of(condition) == comparison


@pytest.mark.parametrize(
    "condition",
    [
        GreaterThan(("jms_type",), "greeting"),  # in another order
        EqualTo(("text_body",), "what?"),  # perhaps a character that Spark's strings do not have
        EqualTo(("sent_at",), dt.datetime(2026, 11, 21)),  # noqa: DTZ001 - in which time zone?
        EqualTo(("json_body",), "{}"),
        EqualTo(("bytes_body",), b""),
        EqualTo(("properties", "color"), "blue"),
        EqualTo(("priority",), True),
        In(("priority",), (4, None)),
        Not(EqualTo(("body",), "x")),
    ],
)
def test_condition_that_is_left_to_spark(condition: Filter) -> None:
    assert comparison_of(condition) is None
