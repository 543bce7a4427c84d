from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jmsql.spark.columns.properties import occurs


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
@given(texts=st.lists(st.none() | st.text(max_size=5)), cut=st.tuples(st.integers(0, 5), st.integers(0, 5)))
def test_text_is_found_in_each_slice_that_holds_it(
    kind: pa.DataType, texts: list[str | None], cut: tuple[int, int]
) -> None:
    column = pa.array(texts, kind).slice(*cut)
    kept = [text for text in column.to_pylist() if text is not None]
    for character in set("".join(text for text in texts if text is not None)) | {"\ufffe"}:
        assert occurs(character, column) == any(character in text for text in kept)


@pytest.mark.parametrize("column", [pa.nulls(0, pa.string()), pa.nulls(3, pa.string()), pa.array([], pa.string())])
def test_nothing_is_found_where_nothing_is(column: pa.Array) -> None:
    assert not occurs("x", column)
