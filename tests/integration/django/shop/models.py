from __future__ import annotations

from django.db import models


class Article(models.Model):
    name: str = models.TextField(unique=True)
    amount = models.IntegerField(default=0)
    facts = models.JSONField(default=dict)
    changed = models.DateTimeField(null=True)

    class Meta:
        app_label = "shop"
        db_table = "shop_article"

    def __str__(self) -> str:
        return self.name
