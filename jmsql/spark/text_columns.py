"""Columns of text, seen as the bytes that they are made of."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

__all__ = ["occurs"]


def occurs(text: str, column: pa.Array) -> bool:
    """Tell whether a text stands in a column of strings: somewhere, which is found out sooner than where.

    It may also stand across the end of a string, or where a null is: who has found it is to look more closely.
    """
    _, offsets, data = column.buffers()
    if data is None or not len(column):
        return False
    width = np.int64 if pa.types.is_large_string(column.type) else np.int32
    bounds = np.frombuffer(offsets, width)[[column.offset, column.offset + len(column)]]
    return text.encode() in data[bounds[0] : bounds[1]].to_pybytes()
