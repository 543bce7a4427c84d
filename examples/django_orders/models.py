"""What the backend and the worker store."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    """An order, under the reference that the customer gave it."""

    reference = models.TextField(primary_key=True)
    goods = models.TextField()
    state = models.TextField(default="placed")
    told_at = models.DateTimeField(null=True)

    class Meta:
        """Where they are stored."""

        db_table = "example_django_order"

    def __str__(self) -> str:
        return f"{self.reference}: {self.goods}, {self.state}"
