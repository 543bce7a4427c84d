"""The app that stands in `INSTALLED_APPS`."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy

from jmsql.django.coroutines import watch_connections


class JmsqlConfig(AppConfig):
    """Loads the `messages` module of each installed app, which registers its listeners."""

    name = "jmsql.django"
    label = "jmsql"
    verbose_name = gettext_lazy("Messages")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Connect what Django is to call, and load the listeners."""
        watch_connections()
        autodiscover_modules("messages")
