"""The conversion of values between Python and PostgreSQL in jmsql's own statements.

An application may register adapters and JSON functions with psycopg, for its process or for one connection. They serve
the application's statements, on jmsql's connections as well. Statements of jmsql expect psycopg's defaults: with a list
sent as `jsonb`, or a text of declared type, PostgreSQL finds no function for their arguments. So each of them brings
its own adapters.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from psycopg import postgres
from psycopg.adapt import AdaptersMap
from psycopg.types import TypesRegistry, array
from psycopg.types.json import set_json_dumps, set_json_loads

if TYPE_CHECKING:
    from psycopg import BaseConnection


def _default_adapters() -> AdaptersMap:
    adapters = AdaptersMap(types=TypesRegistry())
    postgres.register_default_types(adapters.types)
    postgres.register_default_adapters(adapters)
    array.register_all_arrays(adapters)
    set_json_dumps(json.dumps, adapters)
    set_json_loads(json.loads, adapters)
    return adapters


ADAPTERS = _default_adapters()
"""psycopg's defaults. Nothing changes them after the import of this module."""


class Adaptation(NamedTuple):
    """The adapters of jmsql's statements on one connection, whose encoding they use; None: UTF-8."""

    connection: BaseConnection[Any] | None
    adapters: AdaptersMap = ADAPTERS
