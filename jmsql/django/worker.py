"""The modules of a worker's processes: the project, and then its listeners.

``manage.py jmsql worker`` is ``jmsql worker jmsql.django.worker:app`` with the database of the settings.
"""

from __future__ import annotations

import os

import django
from django.db import connections

django.setup()

from jmsql.django.application import app  # noqa: E402 - it needs the settings
from jmsql.django.configuration import database_alias  # noqa: E402 - so does it

__all__ = ["app"]

# The connections of the process begin with Django's time zone, which each transaction would otherwise have to set in an
# exchange of its own. libpq sends it with the start; poolers know that, and do not know `options`.
if zone := connections[database_alias()].timezone_name:
    os.environ.setdefault("PGTZ", zone)
