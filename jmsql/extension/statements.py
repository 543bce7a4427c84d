"""Statements as values, their runners, and their errors."""

from __future__ import annotations

from jmsql.store.errors import from_sqlstate, is_connection_lost, jms_errors, translate
from jmsql.store.identifier import quote_identifier
from jmsql.store.statement import (
    Query,
    Result,
    SqlFile,
    Statement,
    Steps,
    array_literal,
    fill,
    first_value,
    in_transaction,
    nothing,
    optional_value,
    records,
    row_count,
    rows,
    value,
)
from jmsql.store.wire._sync.runner import PsycopgRunner, Runner
from jmsql.values.duration import as_setting

__all__ = [
    "PsycopgRunner",
    "Query",
    "Result",
    "Runner",
    "SqlFile",
    "Statement",
    "Steps",
    "array_literal",
    "as_setting",
    "fill",
    "first_value",
    "from_sqlstate",
    "in_transaction",
    "is_connection_lost",
    "jms_errors",
    "nothing",
    "optional_value",
    "quote_identifier",
    "records",
    "row_count",
    "rows",
    "translate",
    "value",
]
