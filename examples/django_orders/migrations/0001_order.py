"""The orders."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    """Makes the table."""

    initial = True
    operations = (
        migrations.CreateModel(
            name="Order",
            fields=[
                ("reference", models.TextField(primary_key=True, serialize=False)),
                ("goods", models.TextField()),
                ("state", models.TextField(default="placed")),
                ("told_at", models.DateTimeField(null=True)),
            ],
            options={"db_table": "example_django_order"},
        ),
    )
