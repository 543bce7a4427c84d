from __future__ import annotations

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jmsql.store.statement import array_literal

storable_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@pytest.mark.parametrize(
    ("kind", "elements"),
    [
        ("text", storable_text),
        ("bytea", st.binary()),
        ("bigint", st.integers(-(2**63), 2**63 - 1)),
        ("float8", st.floats(allow_nan=False)),
    ],
    ids=["text", "bytea", "bigint", "float8"],
)
def test_postgresql_reads_an_array_as_it_was_written(
    jmsql_url: str, kind: str, elements: st.SearchStrategy[object]
) -> None:
    with psycopg.connect(jmsql_url, autocommit=True) as database:

        @given(st.lists(st.none() | elements))
        @settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
        def check(values: list[str | bytes | int | float | None]) -> None:
            row = database.execute(f"select %s::{kind}[]", [array_literal(values)]).fetchone()
            assert row == (values,)

        check()
