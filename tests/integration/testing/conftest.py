"""What runs of pytest within a test would import is loaded before: pytester forgets it afterwards.

SQLAlchemy warns when it is loaded for a second time, and names of the package would stand for two classes.
"""

from __future__ import annotations

import importlib

import jmsql

for name in ("alembic.command", "sqlalchemy.dialects.postgresql", "jmsql.testing.database"):
    importlib.import_module(name)
for name in jmsql.__all__:
    getattr(jmsql, name)
