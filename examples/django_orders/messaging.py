"""The worker: it ships what was ordered, with Django's models.

They have a connection of their own, so the message cannot be in their transaction: it is acknowledged after it, and may
come a second time if the worker is killed in between. The update is made so that it does no harm then.
"""

from __future__ import annotations

import os
from typing import Any

import django
from django.db import close_old_connections

from jmsql.worker import Application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.django_orders.settings")
django.setup()

app = Application()


@app.listener("example django orders", transacted=False)
def ship(body: dict[str, Any]) -> None:
    """Ship an order that was not shipped yet."""
    from examples.django_orders.models import Order

    close_old_connections()  # as Django does before each request
    Order.objects.filter(reference=body["reference"], state="placed").update(state="shipped")
