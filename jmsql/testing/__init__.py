"""Tools for tests of messaging code: a real PostgreSQL, receiving all messages, and waiting without sleeping.

Installing jmsql makes these pytest fixtures available:

- ``jmsql_factory``: a ``ConnectionFactory`` on an empty schema, for each test;
- ``jmsql_timings``: the ``Timings`` of that factory, `FAST_TIMINGS`. Override it to use others;
- ``jmsql_url``: the URL of the database behind it, one for the test session, with the schema installed;
- ``jmsql_clean_url``: the same, after the schema was emptied;
- ``jmsql_server_url``: the server. Override it to bring your own;
- ``jmsql_schema``: the schema's name. Override it to use another than ``jmsql``.

A test that uses any of them fails if a connection to PostgreSQL that it opened is still open at its end.

The environment variable ``JMSQL_TEST_URL`` names the server (a database of a random name is made there, and dropped at
the end); else a container, where Docker runs and ``testcontainers`` is installed; else the embedded one.
``JMSQL_TEST_PROGRAMS`` names the directory of PostgreSQL's programs for the embedded server, and takes precedence over
a container.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jmsql.testing.handlers import call, empty, sent, subscribe
    from jmsql.testing.timings import FAST_TIMINGS
    from jmsql.testing.waiting import receive_all, wait_for

__all__ = ["FAST_TIMINGS", "call", "empty", "receive_all", "sent", "subscribe", "wait_for"]

if not TYPE_CHECKING:  # else a type checker would take each misspelt name for a value
    _MODULES = {"FAST_TIMINGS": "timings", "receive_all": "waiting", "wait_for": "waiting"}

    def __getattr__(name: str) -> object:
        # Every run of pytest loads the plugin beside this, also where no test has to do with messaging.
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"jmsql.testing.{_MODULES.get(name, 'handlers')}"), name)
        globals()[name] = value
        return value
