"""Columns of text, seen as the bytes that they are made of."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["occurs"]


def occurs(text: str, column: pa.Array) -> bool:
    """Tell whether a text stands in a column of strings: somewhere, which is found out sooner than where.

    It may also stand across the end of a string, or where a null is: who has found it is to look more closely.
    """
    _, offsets, data = column.buffers()
    if data is None or not len(column):
        return False
    bounds = memoryview(offsets).cast("b").cast("q" if pa.types.is_large_string(column.type) else "i")
    content = data[bounds[column.offset] : bounds[column.offset + len(column)]].to_pybytes()
    searched = text.encode()
    # A single byte, which hardly any text has if it is none of ASCII, is found a hundred times as fast.
    return searched[:1] in content and searched in content
