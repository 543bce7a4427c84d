"""The formats of an archive."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["ArchiveFormat"]


class ArchiveFormat(StrEnum):
    """How an archive is stored."""

    parquet = "parquet"
    delta = "delta"
    iceberg = "iceberg"
