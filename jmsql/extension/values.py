"""Values and texts of messages as the database has them, and destinations given as text."""

from __future__ import annotations

from jmsql.messages.properties import is_settable
from jmsql.messages.types import typed_json
from jmsql.messages.types.values import Byte, Char, Float, Long, Short, Value, boolean, double, integer, with_article
from jmsql.values.destinations import parse_destination, require_destination
from jmsql.values.postgresql_text import ESCAPE, from_postgresql, optional_to_postgresql, to_postgresql

__all__ = [
    "ESCAPE",
    "Byte",
    "Char",
    "Float",
    "Long",
    "Short",
    "Value",
    "boolean",
    "double",
    "from_postgresql",
    "integer",
    "is_settable",
    "optional_to_postgresql",
    "parse_destination",
    "require_destination",
    "to_postgresql",
    "typed_json",
    "with_article",
]
