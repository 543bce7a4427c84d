"""The schema in the version of the first release with Django migrations."""

from __future__ import annotations

from django.db import migrations, models

from jmsql.django.models import DEAD_LETTERS, MESSAGES
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
                "permissions": (
                    ("retry_deadletter", "Can retry dead letters"),
                    ("delete_deadletter", "Can delete dead letters"),
                ),
                "managed": False,
                "default_permissions": ("view",),
            },
            managers=[("dumped", models.Manager())],
        ),
        migrations.CreateModel(
            name="Message",
            fields=[
                ("sequence", models.BigIntegerField(editable=False, primary_key=True, serialize=False)),
                ("queue", models.TextField(null=True)),
                ("topic", models.TextField(null=True)),
                ("subscription", models.TextField(null=True)),
                ("message_id", models.TextField(null=True)),
                ("state", models.TextField()),
                ("delivery_count", models.IntegerField()),
                ("last_error", models.TextField(null=True)),
                ("next_attempt", models.DateTimeField(null=True)),
                ("claimed_at", models.DateTimeField(null=True)),
                ("claimed_by", models.BigIntegerField(null=True)),
                ("priority", models.SmallIntegerField()),
                ("sent_at", models.DateTimeField(null=True)),
                ("delivery_time", models.DateTimeField(null=True)),
                ("expires_at", models.DateTimeField(null=True)),
                ("correlation_id", models.TextField(null=True)),
                ("jms_type", models.TextField(null=True)),
                ("group_id", models.TextField(null=True)),
                ("properties", models.JSONField()),
                ("type", models.TextField()),
                ("body", models.TextField(null=True)),
            ],
            options={
                "base_manager_name": "dumped",
                "default_manager_name": "dumped",
                "verbose_name": "message",
                "verbose_name_plural": "messages",
                "db_table": MESSAGES,
                "permissions": (
                    ("deliver_message", "Can deliver waiting messages now"),
                    ("delete_message", "Can delete messages"),
                    ("cancel_message", "Can cancel messages that are handled"),
                    ("operate_console", "Can use the actions of the console"),
                ),
                "managed": False,
                "default_permissions": ("view",),
            },
            managers=[("dumped", models.Manager())],
        ),
    )
