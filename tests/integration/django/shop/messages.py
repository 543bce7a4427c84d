"""The listeners of the app."""

from __future__ import annotations

from typing import Any

from django.db import IntegrityError, connection, transaction
from django.utils import timezone

import jmsql
from jmsql.django import app
from tests.integration.django.shop.models import Article

DELIVERIES, BILLS = jmsql.Queue("deliveries"), jmsql.Queue("bills")


@app.listener(DELIVERIES, redelivery=jmsql.RedeliveryPolicy(maximum_deliveries=1000, delay=0.01))
def deliver(body: dict[str, Any]) -> None:
    """Store the article, with an error that a savepoint takes back, and send a bill."""
    article = Article.objects.create(name=body["name"], changed=timezone.now())
    try:
        with transaction.atomic():
            Article.objects.create(name=body["name"])
    except IntegrityError:
        article.amount = 1
        article.save()
    jmsql.enlist(connection).create_producer().send(BILLS, {"name": body["name"]})
