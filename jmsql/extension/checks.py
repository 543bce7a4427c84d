"""Checks of `jmsql doctor` that packages add, by entry points of the group ``jmsql.doctor``.

An entry point has the name of the check, and a function without parameters that makes its statements.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from jmsql.store.statement import Steps

__all__ = [
    "Check",
    "Remark",
    "Remarks",
]


class Remark(NamedTuple):
    """A remark about one subject, and its remedy."""

    says: str
    advice: str


class Remarks(NamedTuple):
    """The remarks of a check, and its result if it has none."""

    remarks: list[Remark]
    otherwise: str


Check: TypeAlias = Steps[Remarks]
"""The statements of a check, which change nothing."""
