"""Where administered objects are kept under their names, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jmsql.store.statement import Query, SqlFile, mapping, nothing, optional_value, row_count

_sql = SqlFile("administration")
_bind = _sql.statement("bind", "binding {name!r}", nothing)
_unbind = _sql.statement("unbind", "unbinding {name!r}", row_count)
_find = _sql.statement("find_binding", "looking up {name!r}", optional_value(dict[str, Any]))
bindings: Query[dict[str, dict[str, Any]]] = _sql.statement("bindings", "looking at the bindings", mapping).bind()
"""All that is kept, by name."""


def bind(name: str, document: Mapping[str, Any]) -> Query[None]:
    """Keep an object under a name, in place of an earlier one."""
    return _bind.bind(name=name, object=json.dumps(document))


def unbind(name: str) -> Query[int]:
    """Forget an object; return how many there were: one, or none."""
    return _unbind.bind(name=name)


def find_binding(name: str) -> Query[dict[str, Any] | None]:
    """Return the object that is kept under a name, or None."""
    return _find.bind(name=name)
