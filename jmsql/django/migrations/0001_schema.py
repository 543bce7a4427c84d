"""The schema in the version of the first release that has migrations of Django's."""

from __future__ import annotations

from django.db import migrations, models

from jmsql.django.models import DEAD_LETTERS
from jmsql.django.schema import MigrateSchema


class Migration(migrations.Migration):
    """Makes the schema, on a connection of its own."""

    initial = True
    atomic = False
    dependencies = ()
    operations = (
        MigrateSchema("0001"),
        migrations.CreateModel(
            name="DeadLetter",
            fields=[
                ("sequence", models.BigIntegerField(editable=False, primary_key=True, serialize=False)),
                ("queue", models.TextField()),
                ("original_destination", models.TextField(null=True)),
                ("original_subscription", models.TextField(null=True)),
                ("reason", models.TextField()),
                ("deliveries", models.IntegerField(null=True)),
                ("error", models.TextField(null=True)),
                ("last_error", models.TextField(null=True)),
                ("first_failed_at", models.DateTimeField(null=True)),
                ("died_at", models.DateTimeField()),
                ("message_id", models.TextField(null=True)),
                ("type", models.TextField()),
                ("priority", models.SmallIntegerField()),
                ("sent_at", models.DateTimeField(null=True)),
                ("expires_at", models.DateTimeField(null=True)),
                ("correlation_id", models.TextField(null=True)),
                ("jms_type", models.TextField(null=True)),
                ("properties", models.JSONField()),
                ("body", models.TextField(null=True)),
            ],
            options={
                "base_manager_name": "dumped",
                "default_manager_name": "dumped",
                "verbose_name": "dead letter",
                "verbose_name_plural": "dead letters",
                "db_table": DEAD_LETTERS,
                "permissions": (("retry_deadletter", "Can retry dead letters"),),
                "managed": False,
                "default_permissions": ("view",),
            },
            managers=[("dumped", models.Manager())],
        ),
    )
