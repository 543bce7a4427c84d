"""Connections to the database, with the time-outs and settings of those that clients open."""

from __future__ import annotations

from jmsql.store.connections.database_url import DatabaseUrl, parse_url, without_secrets
from jmsql.store.connections.engine import Endpoint, connect
from jmsql.store.connections.keepalives import keepalive_parameters, reader_settings
from jmsql.store.schema.version import check_version

__all__ = [
    "DatabaseUrl",
    "Endpoint",
    "check_version",
    "connect",
    "keepalive_parameters",
    "parse_url",
    "reader_settings",
    "without_secrets",
]
