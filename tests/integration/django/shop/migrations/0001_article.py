from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    operations = (
        migrations.CreateModel(
            name="Article",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.TextField(unique=True)),
                ("amount", models.IntegerField(default=0)),
                ("facts", models.JSONField(default=dict)),
                ("changed", models.DateTimeField(null=True)),
            ],
            options={"db_table": "shop_article"},
        ),
    )
