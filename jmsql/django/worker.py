"""What the processes of a worker load: the project, and then its listeners.

``manage.py jmsql worker`` is ``jmsql worker jmsql.django.worker:app`` with the database of the settings.
"""

from __future__ import annotations

import django

django.setup()

from jmsql.django.application import app  # noqa: E402 - it needs the settings

__all__ = ["app"]
