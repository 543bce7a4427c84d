from __future__ import annotations

from typing import Any

from django.db import migrations

import jmsql


def announce(apps: Any, schema_editor: Any) -> None:
    """Send in a migration, which has to find the schema."""
    jmsql.enlist(schema_editor.connection).create_producer().send(jmsql.Queue("announcements"), "the shop is open")


class Migration(migrations.Migration):
    dependencies = (("shop", "0001_article"), ("jmsql", "0001_schema"))
    operations = (migrations.RunPython(announce, migrations.RunPython.noop),)
