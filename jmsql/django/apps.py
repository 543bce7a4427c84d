"""The app that stands in `INSTALLED_APPS`."""

from __future__ import annotations

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.db.models.signals import pre_migrate
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy

from jmsql.client.transaction_of_caller import known_transactions
from jmsql.django.coroutines import watch_connections
from jmsql.django.database import atomic_block
from jmsql.django.schema import check_schema, check_settings, restore_schema


class JmsqlConfig(AppConfig):
    """Loads the `messages` module of each installed app, which registers its listeners."""

    name = "jmsql.django"
    label = "jmsql"
    verbose_name = gettext_lazy("Messages")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Connect the signal handlers, and load the listeners."""
        checks.register(check_settings, "jmsql")
        checks.register(check_schema, checks.Tags.database)
        pre_migrate.connect(restore_schema, sender=self, dispatch_uid="jmsql.django.schema")
        watch_connections()
        known_transactions.append(atomic_block)
        autodiscover_modules("messages")
        if getattr(settings, "TASKS", None):  # else there may be nothing to import them with
            from jmsql.django.tasks import register_backends

            register_backends()
