"""jmsql in a Django project: ``jmsql.django`` in `INSTALLED_APPS`, and listeners in the `messages` modules of its apps.

See [Django](/django.md). It needs Django 5.2 or newer, and psycopg 3.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jmsql.django.application import Application, app
    from jmsql.django.console import staff
    from jmsql.django.tasks import TaskBackend

__all__ = ["Application", "TaskBackend", "app", "staff"]

if not TYPE_CHECKING:  # else a type checker would take each misspelt name for a value
    _MODULES = {"Application": "application", "TaskBackend": "tasks", "app": "application", "staff": "console"}

    def __getattr__(name: str) -> object:
        # Django imports this package before its settings can be used.
        if name in _MODULES:
            return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
